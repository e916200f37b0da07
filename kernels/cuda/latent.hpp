// The kernels of latent attention beside attention itself, for host code. Pointers are device memory.
#pragma once

#include <device/stream.hpp>
#include <kernels/tensor/dtype.hpp>

#include <cstdint>

namespace maniple::cuda {

// Ops::latent_store, with slots: one head, whose first lanes are normed. Ops::latent_queries, without: the first lanes stay.
struct LatentArguments {
  DType dtype;                  // of from and to
  const void* from;             // [tokens, heads, from_lanes]
  const float* cos_sin;         // [positions, rotary_width]
  const float* norm = nullptr;  // [value_dim], or null
  float epsilon = 0;
  int norm_size = 0;
  const int32_t* positions;        // [tokens]
  const int32_t* slots = nullptr;  // [tokens], or null
  void* to;                        // [slots or tokens x heads, key_dim]
  int tokens;
  int heads;
  int from_lanes;
  int value_dim;
  int key_dim;
  int rotary_width;
};
void latent_rows(device::Stream stream, const LatentArguments& arguments);

// Ops::matmul_heads.
struct HeadsArguments {
  DType x_dtype, out_dtype;
  const void* x;               // [tokens, heads, x_lanes]
  const void* const* weights;  // [heads], each [rows, columns]
  void* out;                   // [tokens, heads, out_lanes]
  int tokens;
  int heads;
  int x_lanes;
  int out_lanes;
  int rows;
  int columns;
};
void multiply_heads(device::Stream stream, const HeadsArguments& arguments);

}  // namespace maniple::cuda
