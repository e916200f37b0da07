// The block table of a sequence.
#pragma once

#include <device/primitives.hpp>
#include <kernels/cuda/attention.hpp>

namespace maniple::cuda {

__device__ inline const int32_t* block_table(const AttentionArguments& a, int sequence) {
  return a.block_tables + static_cast<int64_t>(a.seats[sequence]) * a.table_width;
}

}  // namespace maniple::cuda
