#include <runtime/checkpoint/quantization/scheme.hpp>
#include <runtime/checkpoint/quantization/stored_values.hpp>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <utility>

namespace maniple {
namespace {

std::vector<int64_t> sizes_of(const Shape& shape) {
  std::vector<int64_t> sizes;
  for (int d = 0; d < shape.rank(); ++d) sizes.push_back(shape[d]);
  return sizes;
}

class DenseMatrix final : public StoredWeight {
 public:
  DenseMatrix(std::string tensor, const Shape& shape) : tensor_(std::move(tensor)), shape_(shape) {}

  const ModuleQuantization& quantization() const override { return quantization_; }
  std::vector<ExpectedTensor> tensors() const override {
    return {{tensor_, {"BF16", "F16", "F32"}, {sizes_of(shape_)}}};
  }
  std::vector<StoredBox> needs(const Box& wanted) const override {
    return {{tensor_, wanted.rows, wanted.columns}};
  }
  RawRows decode(const Box& wanted, std::span<const StoredPart> stored, DecodedRows&) const override {
    require(stored[0].box == wanted, "rows of a matrix as they arrive");
    const Shape shape{wanted.rows.size(), wanted.columns.size()};
    return {view_of(stored[0].bytes.data(), *stored[0].info->dtype, shape), {}, {}};
  }

 private:
  std::string tensor_;
  Shape shape_;
  ModuleQuantization quantization_;
};

bool is_packed(const std::string& module, const WeightIndex* index) {
  const IndexedTensor* weight = stored_part(index, module, "weight");
  return index && is_stored(*index, module) && !(weight && is_floating(weight->info));
}

[[noreturn]] void refuse_parts(const std::string& one, const std::string& other) {
  throw Error(
      ExitCode::input, fmt::format("{} and {} are quantised in different ways", one, other),
      "the parts of one product, and the experts of a layer, must agree in format, groups, scale type, zero "
      "points, the order of inputs and the rule for activations",
      "use a checkpoint whose parts agree");
}

// why: it cannot be.
[[noreturn]] void refuse_order(const std::string& module, const char* what, const char* why) {
  throw Error(ExitCode::input,
              fmt::format("{} has an order of its inputs (desc_act), which {} must not have", module, what),
              why, "use a checkpoint that was quantised without desc_act, or one in bf16");
}

WeightShape shape_of(const WeightSpec& spec, const ModuleQuantization& q, DType weight_type) {
  const auto padded = [](const WeightPiece& piece) { return piece.padding.run != piece.padding.padded; };
  if (q.format != WeightFormat::dense && std::ranges::any_of(spec.pieces, padded))
    throw Error(ExitCode::input,
                fmt::format("{} is quantised, and its heads are no multiple of 16 lanes",
                            spec.pieces[0].source.module),
                "kernels pad such heads, and groups of inputs would shift",
                "use a checkpoint of this model in bf16");
  return {.dtype = spec.type(weight_type),
          .rows = spec.rows,
          .columns = spec.columns,
          .slices = spec.slices,
          .format = q.format,
          .group = q.group,
          .first_column = spec.pieces.empty() ? 0 : spec.pieces[0].columns.begin,
          .activation = q.activation,
          .zeros = q.zeros,
          .ordered = !q.order.empty(),
          .scale = q.scale,
          .power_scales = q.power_scales};
}

}  // namespace

std::unique_ptr<const StoredWeight> dense_weight(std::string tensor, const Shape& shape) {
  return std::make_unique<DenseMatrix>(std::move(tensor), shape);
}

// The tensors decide: a floating-point weight is taken as it is, whatever the config says.
std::unique_ptr<const StoredWeight> QuantScheme::of(const std::string& module, const Shape& shape,
                                                    const WeightIndex* index) const {
  const bool packed = is_packed(module, index);
  const std::optional<std::string> entry = left_out(module);
  if (packed && entry)
    refuse_files("config.json leaves {} out of quantisation (\"{}\"), but it is stored quantised", module,
                 *entry);
  if (packed || (!stored_part(index, module, "weight") && !entry && covers(module)))
    return coded(module, shape, index);
  return dense_weight(module + ".weight", shape);
}

std::unique_ptr<const StoredWeight> QuantScheme::coded(const std::string& module, const Shape& shape,
                                                       const WeightIndex*) const {
  return dense_weight(module + ".weight", shape);
}

std::unique_ptr<const StoredWeight> QuantScheme::fused_experts(const std::string& tensor,
                                                               const Shape& shape) const {
  return dense_weight(tensor, shape);
}

std::unique_ptr<const StoredWeight> stored_weight(const QuantScheme& scheme, const WeightSpec& spec,
                                                  const WeightPiece& piece, const WeightIndex* index) {
  const std::string& part = piece.source.part;
  if (spec.role == WeightRole::vector || spec.fp32 || part == "bias")
    return dense_weight(piece.source.tensor(), piece.source_shape);
  if (spec.decoded && !is_packed(piece.source.module, index))
    return dense_weight(piece.source.tensor(), piece.source_shape);
  if (part.empty()) {
    std::unique_ptr<const StoredWeight> fused = scheme.fused_experts(piece.source.module, piece.source_shape);
    if (piece.transposed && fused->quantization().format != WeightFormat::dense)
      throw Error(ExitCode::input,
                  fmt::format("{} is stored inputs by outputs, and cannot be quantised while it is loaded",
                              piece.source.module),
                  "inputs that share a scale lie apart there",
                  "load it as it is, or use a checkpoint of this model that is quantised");
    return fused;
  }
  return scheme.of(piece.source.module, piece.source_shape, index);
}

WeightShape expected_shape(const QuantScheme& scheme, const WeightSpec& spec, DType weight_type) {
  if (spec.pieces.empty()) return shape_of(spec, {}, weight_type);
  return shape_of(spec, stored_weight(scheme, spec, spec.pieces[0], nullptr)->quantization(), weight_type);
}

PlannedWeight planned_weight(const QuantScheme& scheme, const WeightSpec& spec, DType weight_type,
                             const WeightIndex* index) {
  PlannedWeight planned;
  const WeightPiece* first = nullptr;
  for (const WeightPiece& piece : spec.pieces) {
    ModuleQuantization quantization = stored_weight(scheme, spec, piece, index)->quantization();
    if (spec.decoded) {
      if (!quantization.order.empty())
        refuse_order(piece.source.module, "keys and values of latent attention",
                     "they are decoded while they are loaded, in the order in which they lie");
      quantization = {};
    }
    if (!first) planned.quantization = quantization;
    if (float& mine = planned.quantization.input_scale, &its = quantization.input_scale;
        std::isinf(mine + its))
      mine = its = std::numeric_limits<float>::infinity();
    if (quantization != planned.quantization) refuse_parts(first->source.module, piece.source.module);
    if (!first) first = &piece;
  }
  planned.shape = shape_of(spec, planned.quantization, weight_type);
  return planned;
}

void check_grouped(const QuantScheme& scheme, const Parameters& parameters, const WeightIndex& index) {
  struct First {
    std::string module;
    ModuleQuantization quantization;
  };
  std::map<std::string, First> firsts;  // by product
  for (const Parameter* parameter : parameters) {
    const WeightSpec& spec = parameter->spec;
    if (spec.grouped.empty()) continue;
    for (const WeightPiece& piece : spec.pieces)
      if (!stored_weight(scheme, spec, piece, &index)->quantization().order.empty())
        refuse_order(piece.source.module, "experts",
                     "one product multiplies the inputs of all experts, and each has an order of its own");
    const std::string& module = spec.pieces[0].source.module;
    ModuleQuantization quantization = planned_weight(scheme, spec, DType::bf16, &index).quantization;
    quantization.input_scale = 0;  // each expert may have its own
    const First& first = firsts.try_emplace(spec.grouped, First{module, quantization}).first->second;
    if (quantization != first.quantization) refuse_parts(first.module, module);
  }
}

}  // namespace maniple
