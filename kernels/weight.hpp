// A packed weight: what Ops::make_weight makes, Ops::pack fills and the products read.
#pragma once

#include <kernels/tensor/tensor.hpp>

namespace maniple {

// The weight of a linear layer or an embedding table, [rows, columns], in the packed layout of the Ops that
// made it. A row-parallel weight sums its columns in `slices` equal parts (reduction slices), each a sum of
// its own, added by a binary tree; others have one slice.
struct Weight {
  Tensor packed;
  DType dtype = DType::bf16;  // an activation type
  int64_t rows = 0;
  int64_t columns = 0;
  int slices = 1;

  int64_t slice_columns() const { return columns / slices; }
};

}  // namespace maniple
