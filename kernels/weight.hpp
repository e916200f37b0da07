// A packed weight: Ops::make_weight makes it, Ops::pack fills it, products read it.
//
// Dense weights hold elements of an activation type. The others hold codes, a scale for each row and group of columns, and maybe a zero
// for each of them: W[n, c] = fp32((code - zero) * scale), or the value of a floating-point code * scale. An activation rule rounds the inputs of a product to codes too:
//   int8   sx = amax / 127 (1 for zeros), xq = round(x / sx) half to even, sum of xq * (code - zero) in int32, * (sx * scale)
//   fp8    sx = max(amax / 448, 1 / (448 * 512)), or amax / 448 (1 for zeros) by groups, or the given one; xq = e4m3(x / sx)
//          power_scales: the least power of two that is no less than amax / 448, and none below 2^-126
// amax is that of the whole row: over all ranks' columns. Groups count from column 0 of the whole matrix, so that they may begin
// before this part of it, straddle its reduction slices and end behind it.
#pragma once

#include <kernels/tensor/tensor.hpp>

#include <algorithm>
#include <string_view>

namespace maniple {

// What an element of W is stored as: a number of dtype; a code of 8 or 4 bits, unsigned; an e4m3 code; an e2m1 code: a sign, then 0, 0.5,
// 1, 1.5, 2, 3, 4 or 6.
enum class WeightFormat : uint8_t { dense, int8, fp8, int4, mxfp4 };

constexpr std::string_view name_of(WeightFormat format) {
  constexpr std::string_view names[] = {"dense", "int8", "fp8", "int4", "mxfp4"};
  return names[static_cast<size_t>(format)];
}

// Of a code.
constexpr int bits_of(WeightFormat format) {
  return format == WeightFormat::int4 || format == WeightFormat::mxfp4 ? 4 : 8;
}

// How a product rounds its inputs. per_group: by the groups of the weight; fixed: by Weight::input_scale.
enum class ActivationRule : uint8_t { none, per_token, per_group, fixed };

// The weight of a linear layer or an embedding table, [rows, columns]. A product with a row-parallel weight sums `slices` equal parts of
// the columns (reduction slices), each on its own, and adds them by a binary tree. Other weights have one slice.
struct WeightShape {
  DType dtype = DType::bf16;  // an activation type
  int64_t rows = 0;
  int64_t columns = 0;
  int slices = 1;
  // The rest is for codes.
  WeightFormat format = WeightFormat::dense;
  int64_t group = -1;        // columns that share a scale; -1: all
  int64_t first_column = 0;  // of this part, in the whole matrix (in the order of `order`)
  ActivationRule activation = ActivationRule::none;
  bool zeros = false;         // stored; else the zero is 8 (int4), 128 (int8) or 0
  bool ordered = false;       // inputs are gathered by Weight::order before a product
  DType scale = DType::bf16;  // e8m0 for mxfp4, for others bf16, fp16 or fp32
  bool power_scales = false;  // of inputs, per_group: powers of two

  int64_t slice_columns() const { return columns / slices; }
  // Of column `column` of this part, counted from its first group.
  int64_t group_of(int64_t column) const {
    return group < 0 ? 0 : (first_column + column) / group - first_column / group;
  }
  int64_t groups() const { return columns > 0 ? group_of(columns - 1) + 1 : 0; }
  // The run of a column ends with its slice or its group.
  int64_t run_end(int64_t column) const {
    const int64_t slice_end = (column / slice_columns() + 1) * slice_columns();
    return group < 0 ? slice_end : std::min(slice_end, column + group - (first_column + column) % group);
  }
  int64_t runs() const {
    int64_t count = 0;
    for (int64_t column = 0; column < columns; column = run_end(column)) ++count;
    return count;
  }
  int common_zero() const {
    return format == WeightFormat::int4 ? 8 : format == WeightFormat::int8 ? 128 : 0;
  }
  // What the weight takes in memory, without padding to whole panels and steps.
  size_t stored_bytes() const {
    const auto elements = static_cast<size_t>(rows * columns), scales = static_cast<size_t>(rows * runs());
    if (format == WeightFormat::dense) return elements * size_of(dtype);
    return (elements * static_cast<size_t>(bits_of(format)) + 7) / 8 +
           scales * (size_of(scale) + (zeros ? 1 : 0)) + (ordered ? static_cast<size_t>(columns) * 4 : 0);
  }
};

// The order of the elements in packed, scales and zero_points is that of the Ops that made it.
struct Weight : WeightShape {
  Tensor packed;
  Tensor scales, zero_points;  // of codes; empty for dense weights, and where all zeros are common_zero()
  Tensor
      order;  // int32 [columns], set by the owner: what Ops::gather_columns puts at each column. Products do not read it
  float input_scale = 1;  // of ActivationRule::fixed, set by the owner

  size_t bytes() const {
    return packed.view().bytes() + scales.view().bytes() + zero_points.view().bytes() + order.view().bytes();
  }
};

// n rows of a weight in host memory. Dense: values [n, columns] in bf16, fp16 or fp32. Codes: values uint8 [n, columns], one code a byte
// (int8 and int4 unsigned, also where the checkpoint stores two's complement: + 128; no NaN of e4m3), scales [n, groups()] in bf16, fp16,
// fp32 or e8m0 (no NaN), zeros uint8 [n, groups()] or empty.
struct RawRows {
  ConstTensorView values;
  ConstTensorView scales = {};
  ConstTensorView zeros = {};
};

// Refuses, as a bug of the caller, shapes that no backend computes.
void require_computable(const WeightShape& shape);

}  // namespace maniple
