// The product of a few rows with a weight, on tensor cores: out[m, n] = x[m, k] * weight[n, k]^T + bias[n]
// bf16 and fp16, for m up to 8; for a matrix of codes up to 64. It reads the weight once, as fast as memory allows. If gated, the first half
// of the columns gates the second before rounding: out[m, n / 2].
//
// n and k alone decide the order in which k is summed: a row's bits do not depend on the other rows.
#pragma once

#include <kernels/cuda/codes.hpp>
#include <kernels/gate_activation.hpp>

#include <cstdint>

namespace maniple::cuda {

// Beyond them the library is faster. It does not read weights of codes, which have more.
inline constexpr int max_skinny_rows = 8;
inline constexpr int max_code_rows = 64;

struct SkinnyGemmArguments {
  DType dtype;             // of x and weight
  DType out_type;          // the same or fp32
  const void* x;           // [m, k]
  const void* weight;      // [n, k]; no kernel that may still run writes it; null: finish.codes
  FinishArguments finish;  // of elements its bias alone
  void* out;               // [m, n], or [m, n / 2]
  int m;
  int n;
  int k;  // of rows of x; with codes a multiple of 8, zeros behind the matrix's columns
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

// Returns false and does nothing for other types and more rows. With codes, rows of x begin at multiples of sixteen bytes, and sums are
// those with the matrix as expand_rows makes it.
bool skinny_gemm(device::Stream stream, const SkinnyGemmArguments& arguments,
                 const SkinnyGemmWorkspace& workspace);

}  // namespace maniple::cuda
