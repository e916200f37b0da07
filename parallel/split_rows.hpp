// Tensors that hold the parts of all ranks, one after the other.
#pragma once

#include <kernels/tensor/tensor_view.hpp>

#include <span>
#include <vector>

namespace maniple {

// The part of rank `index` in a tensor [size, ...], reshaped to `shape`.
inline TensorView stacked_part(TensorView stacked, int index, const Shape& shape) {
  return stacked.rows(index, 1).reshaped(shape);
}

// Whether all_to_all can pass these tensors between the ranks of a group.
inline bool exchangeable(ConstTensorView in, ConstTensorView out, int size) {
  return in.shape[0] == size && in.shape == out.shape && in.dtype == out.dtype;
}

// The parts of a tensor [sum of rows, ...], by rank.
template <typename View>
std::vector<View> split_rows(View x, std::span<const int64_t> rows) {
  std::vector<View> parts;
  int64_t begin = 0;
  for (const int64_t count : rows) {
    parts.push_back(x.rows(begin, count));
    begin += count;
  }
  require(begin == x.shape[0], "the rows of all ranks are not those of the tensor");
  return parts;
}

// The same, for a collective operation: checks that `mine`, the tensor of `rank` of `size`, fits its part.
template <typename View>
std::vector<View> split_rows(View whole, ConstTensorView mine, std::span<const int64_t> rows, int rank,
                             int size) {
  require(rows.size() == static_cast<size_t>(size), "not one number of rows a rank");
  Shape expected = whole.shape;
  expected[0] = rows[rank];
  require(mine.dtype == whole.dtype && mine.shape == expected, "the rank's tensor is not [rows[rank], ...]");
  return split_rows(whole, rows);
}

}  // namespace maniple
