// What the backends on the host share about weights of codes, and the specification of rounded activations.
#pragma once

#include <kernels/reference/rows.hpp>

namespace maniple::reference {

// Refuses, as a bug of the caller, rows that do not fit the weight.
void require_rows_of(const Weight& weight, int64_t first_row, const RawRows& raw);

// code - zero, or the value of an e4m3 or e2m1 code.
float code_value(WeightFormat format, uint32_t code, int zero);

// NaN where a value is.
float abs_maximum(std::span<const float> values);
// Largest of maxima [ranks, rows] of a row. NaN where one is.
float over_ranks(ConstTensorView maxima, int64_t row);
// The scale by which inputs are divided: of a row or group with this largest magnitude.
float input_scale(const Weight& weight, float abs_maximum);

// Replaces x [rows, columns] by its codes (weight.hpp) and returns their scales, one a row, or [rows, groups].
Floats round_inputs(const Weight& weight, ConstTensorView row_maxima, int64_t rows, Floats& x);

// Ops::gather_columns for some tokens.
void gather_columns(ConstTensorView x, ConstTensorView order, IndexRange tokens, TensorView out);

}  // namespace maniple::reference
