// The product of a few rows with a weight, on tensor cores: out[m, n] = x[m, k] * weight[n, k]^T + bias[n]
// for m up to 8, bf16 and fp16. It reads the weight once, as fast as memory allows. If gated, the first half
// of the columns gates the second before rounding: out[m, n / 2].
//
// n and k alone decide the order in which k is summed: a row's bits do not depend on the other rows.
#pragma once

#include <device/stream.hpp>
#include <kernels/gate_activation.hpp>
#include <kernels/tensor/dtype.hpp>

#include <cstdint>

namespace maniple::cuda {

// Beyond them the library is faster. A weight of codes, which it does not read, has more (dequant_gemm.hpp).
inline constexpr int max_skinny_rows = 8;
inline constexpr int max_code_rows = 64;

struct SkinnyGemmArguments {
  DType dtype;         // of x and weight
  DType out_type;      // the same or fp32
  const void* x;       // [m, k]
  const void* weight;  // [n, k]; no kernel that may still run writes it
  const float* bias;   // [n] or null
  void* out;           // [m, n], or [m, n / 2]
  int m;
  int n;
  int k;
  bool gated = false;
  GateActivation gate = {};  // where gated
};

// Holds the sums of slices of k until the last slice of their columns.
// Their tiles are about as many as multiprocessors: on more of them a slice costs more than it saves.
inline constexpr int skinny_arrivals = 128;
inline constexpr int skinny_partial_floats = skinny_arrivals * 32 * max_code_rows;
struct SkinnyGemmWorkspace {
  float* partials;    // skinny_partial_floats
  int32_t* arrivals;  // skinny_arrivals; zero before the first call, and left zero
};

// Returns false and does nothing for other types and more rows.
bool skinny_gemm(device::Stream stream, const SkinnyGemmArguments& arguments,
                 const SkinnyGemmWorkspace& workspace);

}  // namespace maniple::cuda
