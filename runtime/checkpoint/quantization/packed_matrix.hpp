// Integers of 4 or 8 bits in words, with a scale and perhaps a zero point for each output and group of inputs: what GPTQ, AWQ
// and pack-quantized have in common. They differ in a PackedLayout.
#pragma once

#include <runtime/checkpoint/quantization/packed_words.hpp>
#include <runtime/checkpoint/quantization/scheme.hpp>

namespace maniple {

struct PackedLayout {
  std::string_view codes, scales, zeros;  // tensors beside the module's name
  bool transposed = false;                // stored as [inputs, outputs]; else as W
  WordPacking code_packing, zero_packing;
  int zero_offset = 0;  // zero point = (stored + this) mod 2^bits
  std::vector<std::string_view> scale_types;
};

class PackedMatrix final : public StoredWeight {
 public:
  // others: further tensors that the module has, which decode does not need. quantization: its scale type is read from the index.
  PackedMatrix(std::string module, const Shape& shape, const WeightIndex* index, PackedLayout layout,
               ModuleQuantization quantization, std::vector<ExpectedTensor> others = {});

  const ModuleQuantization& quantization() const override { return quantization_; }
  std::vector<ExpectedTensor> tensors() const override;
  std::vector<StoredBox> needs(const Box& wanted) const override;
  RawRows decode(const Box& wanted, std::span<const StoredPart> stored, DecodedRows& memory) const override;

 private:
  std::string name(std::string_view part) const;
  Box groups_of(const Box& wanted) const;
  Box codes_of(const Box& wanted) const;
  void decode_codes(const Box& wanted, const StoredPart& stored, std::span<std::byte> values) const;

  std::string module_;
  int64_t outputs_, inputs_;
  PackedLayout layout_;
  ModuleQuantization quantization_;
  std::vector<ExpectedTensor> others_;
};

}  // namespace maniple
