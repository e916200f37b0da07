// What becomes of decoded rows before they are packed: rows of a piece's matrix in the order and shape of the rank's weight. Each
// returns a view of its argument, or of `memory`.
#pragma once

#include <layers/weight.hpp>
#include <runtime/checkpoint/quantization/scheme.hpp>

namespace maniple {

// Zeros after every run of columns.
ConstTensorView padded_columns(ConstTensorView rows, const ColumnPadding& padding,
                               std::vector<std::byte>& memory);
// Rows first, first + step, ...
RawRows every_row(const RawRows& raw, int64_t first, int64_t step, DecodedRows& memory);
// Columns first, first + step, ... of numbers, as rows.
ConstTensorView transposed(ConstTensorView rows, int64_t first, int64_t step, std::vector<std::byte>& memory);
// The numbers that codes stand for, in fp32; numbers stay as they are. first_column: that of raw in the module's matrix.
RawRows numbers_of(const RawRows& raw, const ModuleQuantization& quantization, int64_t first_column,
                   std::vector<std::byte>& memory);

}  // namespace maniple
