// How a tensor's bytes lie in a file: whole, or cut into the chunks of a packed model.
#pragma once

#include <runtime/checkpoint/weight_index.hpp>

namespace maniple {

// A tensor as its layouts see it: a row for each element of its first dimension, of three and more for each of the first two; a type
// of unknown item size: one row of bytes. An empty tensor has neither rows nor columns.
struct StoredMatrix {
  int64_t rows = 0, columns = 0;
  uint64_t item_bytes = 1;
};
StoredMatrix matrix_of(const TensorInfo& tensor);

// Of a dense tensor: one, or none for an empty tensor.
std::vector<Extent> whole_extent(const TensorInfo& tensor, uint32_t file, uint64_t offset);

// The chunks of a tensor in a file of file_size bytes, row by row. Fails (input) unless they tile the tensor and lie inside
// the file. where: "m.h5: tensor T".
std::vector<Extent> extents_of(const TensorInfo& tensor, const PackedTensor& packed, uint32_t file,
                               uint64_t file_size, const std::string& where);

// Fails (input) where two ranges of a packed model share a byte.
void check_apart(const WeightIndex& index, const PackedIndex& packed, const std::string& where);

}  // namespace maniple
