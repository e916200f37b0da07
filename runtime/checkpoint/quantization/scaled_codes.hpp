// Codes of 8 bits, one a byte, stored as W, with scales of tensors, rows or blocks: FP8 and W8A8.
#pragma once

#include <runtime/checkpoint/quantization/scheme.hpp>

namespace maniple {

struct CodesLayout {
  std::string_view type;    // "F8_E4M3", "I8"
  std::string_view scales;  // the tensor beside `weight`
  int64_t block = 0;  // rows and columns with one scale; 0: a scale for the tensor or for each row, as stored
};

// A matrix `<module>.weight` with its scales; an `input_scale` where the rule is fixed. quantization: its scale type and
// input scale are read from the index.
std::unique_ptr<const StoredWeight> scaled_codes(const std::string& module, const Shape& shape,
                                                 const WeightIndex* index, const CodesLayout& layout,
                                                 ModuleQuantization quantization);

}  // namespace maniple
