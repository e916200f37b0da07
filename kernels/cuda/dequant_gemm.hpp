// The product of a few rows with a matrix of codes, on tensor cores: skinny_gemm, but the weight is read as codes. Its sums are those of
// skinny_gemm with the matrix as expand_rows makes it: a row's bits do not depend on the other rows.
#pragma once

#include <kernels/cuda/codes.hpp>
#include <kernels/cuda/skinny_gemm.hpp>

namespace maniple::cuda {

struct DequantGemmArguments {
  SkinnyGemmArguments
      product;  // weight and bias are null; k: of rows of x, a multiple of 8, zeros behind the matrix's columns
  FinishArguments weight;
};

// Returns false and does nothing for other types and more rows. Rows of x begin at multiples of sixteen bytes.
bool dequant_gemm(device::Stream stream, const DequantGemmArguments& arguments,
                  const SkinnyGemmWorkspace& workspace);

}  // namespace maniple::cuda
