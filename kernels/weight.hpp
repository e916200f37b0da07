// A packed weight: Ops::make_weight makes it, Ops::pack fills it, products read it.
#pragma once

#include <kernels/tensor/tensor.hpp>

namespace maniple {

// The weight of a linear layer or an embedding table, [rows, columns], in the packed layout of the Ops that
// made it. A product with a row-parallel weight sums `slices` equal parts of the columns (reduction slices),
// each on its own, and adds them by a binary tree. Other weights have one slice.
struct Weight {
  Tensor packed;
  DType dtype = DType::bf16;  // an activation type
  int64_t rows = 0;
  int64_t columns = 0;
  int slices = 1;

  int64_t slice_columns() const { return columns / slices; }
};

}  // namespace maniple
