// How publishers store quantised matrices. A QuantScheme reads one checkpoint's quantization_config; a StoredWeight is
// one of its modules: what W is, which tensors hold it, and what they mean. Both are pure and the same on every rank:
// no rank but the first has a reader. W is [n outputs, k inputs].
//
// To add a scheme: a file with its QuantScheme, and a line of registry.cpp.
#pragma once

#include <kernels/weight.hpp>
#include <layers/model_config.hpp>
#include <layers/weight.hpp>
#include <runtime/checkpoint/box.hpp>
#include <runtime/checkpoint/quantization/module_rules.hpp>
#include <runtime/checkpoint/read_plan.hpp>

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace maniple {

// What a matrix is made of.
struct ModuleQuantization {
  WeightFormat format = WeightFormat::dense;
  int64_t group = -1;  // columns that share a scale; -1: all
  ActivationRule activation = ActivationRule::none;
  float input_scale = 0;  // rule fixed
  bool zeros = false;
  DType scale = DType::bf16;
  bool power_scales = false;  // WeightShape::power_scales
  // The inputs sorted by group; columns of W mean these. Empty: W's columns are the inputs in their order.
  std::vector<int32_t> order = {};

  bool operator==(const ModuleQuantization&) const = default;
};

struct ExpectedTensor {
  std::string name;
  std::vector<std::string_view> types;       // any of these, as safetensors calls them
  std::vector<std::vector<int64_t>> shapes;  // any of these
};

// A rectangle of a stored tensor, as it was read: row by row.
struct StoredPart {
  const TensorInfo* info = nullptr;
  Box box;
  std::span<const std::byte> bytes;
};

// Memory of decoded rows.
struct DecodedRows {
  std::vector<std::byte> values, scales, zeros;
};

class StoredWeight {
 public:
  virtual ~StoredWeight() = default;
  virtual const ModuleQuantization& quantization() const = 0;
  // For check_names.
  virtual std::vector<ExpectedTensor> tensors() const = 0;
  // The stored rectangles behind a rectangle of W. A matrix that needs one alone needs the same rows of it, and is decoded
  // by rows as they arrive.
  virtual std::vector<StoredBox> needs(const Box& wanted) const = 0;
  // stored: in the order of needs(), and at least what it says for `wanted`. The result may lie in `memory` or in `stored`.
  // Throws Error (input) on values that are no numbers.
  virtual RawRows decode(const Box& wanted, std::span<const StoredPart> stored,
                         DecodedRows& memory) const = 0;
};

class QuantScheme {
 public:
  virtual ~QuantScheme() = default;
  // For the banner: "gptq 4 bit, groups of 128". Empty: nothing is quantised.
  virtual std::string description() const = 0;
  // The inputs that a rule rounds with one scale; parts of a row-parallel layer must not cut them.
  virtual int64_t activation_group() const { return 1; }
  // Whether the checkpoint asks for an FP8 KV cache, and has scales for it.
  virtual bool keeps_fp8_kv() const { return false; }
  // Checks what only all modules together can say. Throws Error (input).
  virtual void check(const WeightIndex& /*index*/) const {}
  // What users should know of numbers that programs read in different ways; empty: nothing.
  virtual std::string warning(const WeightIndex& /*index*/) const { return ""; }
  // Whether the first rank reads this tensor with the index, for all: it is small, and says how others are read.
  virtual bool decides(std::string_view /*tensor*/, const WeightIndex& /*index*/) const { return false; }
  // Its value as all ranks get it: no longer than what it decides. A model has thousands of experts.
  virtual std::vector<std::byte> condensed(std::string_view /*tensor*/, std::vector<std::byte> value) const {
    return value;
  }
  // The matrix `<module>.weight` of this shape. index: null without a checkpoint; then the config alone decides. Throws
  // Error (input) on a module that contradicts the config.
  virtual std::unique_ptr<const StoredWeight> of(const std::string& module, const Shape& shape,
                                                 const WeightIndex* index) const;
  // A tensor [experts, outputs, inputs] with the matrices of a layer's experts; most publishers leave it in floating point.
  virtual std::unique_ptr<const StoredWeight> fused_experts(const std::string& tensor,
                                                            const Shape& shape) const;

 private:
  // The entry of a list of the config that leaves the module in floating point.
  virtual std::optional<std::string> left_out(std::string_view /*module*/) const { return std::nullopt; }
  // Whether a module that no list leaves out is quantised, where no checkpoint says so.
  virtual bool covers(std::string_view module) const { return is_linear(module) && module != "lm_head"; }
  // A scheme that quantises no such matrix expects floating point: the check of types refuses anything else.
  virtual std::unique_ptr<const StoredWeight> coded(const std::string& module, const Shape& shape,
                                                    const WeightIndex* index) const;
};

// A tensor of floating-point numbers, as it is: a vector is a matrix of one column.
std::unique_ptr<const StoredWeight> dense_weight(std::string tensor, const Shape& shape);

// Of config.quantization, or of config.quantize. Throws Error (input) on a config that names what is not read.
std::unique_ptr<const QuantScheme> scheme_of(const ModelConfig& config);

// What a piece is stored as; index: as above.
std::unique_ptr<const StoredWeight> stored_weight(const QuantScheme& scheme, const WeightSpec& spec,
                                                  const WeightPiece& piece, const WeightIndex* index);

// What config.json alone says of the weight that a parameter becomes; the tensors may say otherwise.
WeightShape expected_shape(const QuantScheme& scheme, const WeightSpec& spec, DType weight_type);

// The weight that a parameter becomes, and what its pieces have in common. Throws Error (input) where the parts of one
// product disagree.
struct PlannedWeight {
  WeightShape shape;
  ModuleQuantization quantization;
};
PlannedWeight planned_weight(const QuantScheme& scheme, const WeightSpec& spec, DType weight_type,
                             const WeightIndex* index);

// Throws Error (input) unless all experts of a grouped product are stored alike, with their inputs in order.
void check_grouped(const QuantScheme& scheme, const Parameters& parameters, const WeightIndex& index);

}  // namespace maniple
