#include <kernels/reference/codes.hpp>
#include <runtime/checkpoint/loading/raw_rows.hpp>

#include <algorithm>
#include <cstring>

namespace maniple {
namespace {

ConstTensorView every_row(ConstTensorView rows, int64_t first, int64_t step, std::vector<std::byte>& memory) {
  if (rows.empty()) return rows;
  const Shape shape{(rows.shape[0] - first + step - 1) / step, rows.shape[1]};
  const size_t row_bytes = static_cast<size_t>(shape[1]) * size_of(rows.dtype);
  memory.resize(static_cast<size_t>(shape[0]) * row_bytes);
  for (int64_t row = 0; row < shape[0]; ++row)
    std::memcpy(&memory[static_cast<size_t>(row) * row_bytes],
                rows.data + static_cast<size_t>(first + row * step) * row_bytes, row_bytes);
  return view_of(memory.data(), rows.dtype, shape);
}

}  // namespace

ConstTensorView padded_columns(ConstTensorView rows, const ColumnPadding& padding,
                               std::vector<std::byte>& memory) {
  if (padding.run == padding.padded) return rows;
  const Shape shape{rows.shape[0], padding.local(rows.shape[1])};
  const size_t run = static_cast<size_t>(padding.run) * size_of(rows.dtype),
               padded = static_cast<size_t>(padding.padded) * size_of(rows.dtype);
  memory.resize(static_cast<size_t>(shape.elements()) * size_of(rows.dtype));
  for (size_t from = 0, to = 0; from < rows.bytes(); from += run, to += padded)
    std::memcpy(&memory[to], rows.data + from, run);
  return view_of(memory.data(), rows.dtype, shape);
}

RawRows every_row(const RawRows& raw, int64_t first, int64_t step, DecodedRows& memory) {
  return {every_row(raw.values, first, step, memory.values),
          every_row(raw.scales, first, step, memory.scales), every_row(raw.zeros, first, step, memory.zeros)};
}

ConstTensorView transposed(ConstTensorView rows, int64_t first, int64_t step,
                           std::vector<std::byte>& memory) {
  const Shape shape{(rows.shape[1] - first + step - 1) / step, rows.shape[0]};
  memory.resize(static_cast<size_t>(shape.elements()) * size_of(rows.dtype));
  const auto turn = [&](auto element) {
    using Element = decltype(element);
    const auto* const from = reinterpret_cast<const Element*>(rows.data) + first;
    auto* const to = reinterpret_cast<Element*>(memory.data());
    constexpr int64_t tile = 32;  // of columns, so that the lines that they share stay in a cache
    for (int64_t begin = 0; begin < shape[0]; begin += tile)
      for (int64_t row = 0; row < shape[1]; ++row)
        for (int64_t column = begin; column < std::min(begin + tile, shape[0]); ++column)
          to[column * shape[1] + row] = from[row * rows.shape[1] + column * step];
  };
  size_of(rows.dtype) == sizeof(uint16_t) ? turn(uint16_t{}) : turn(uint32_t{});
  return view_of(memory.data(), rows.dtype, shape);
}

RawRows numbers_of(const RawRows& raw, const ModuleQuantization& quantization, int64_t first_column,
                   std::vector<std::byte>& memory) {
  if (raw.scales.empty()) return raw;
  const Shape& shape = raw.values.shape;
  const WeightShape codes{.columns = shape[1],
                          .format = quantization.format,
                          .group = quantization.group,
                          .first_column = first_column};
  const int64_t groups = raw.scales.shape[1];
  const std::vector<float> scales = reference::read(raw.scales, 0, raw.scales.shape.elements());
  memory.resize(static_cast<size_t>(shape.elements()) * sizeof(float));
  auto* number = reinterpret_cast<float*>(memory.data());
  for (int64_t row = 0; row < shape[0]; ++row)
    for (int64_t column = 0; column < shape[1]; ++column) {
      const int64_t scale = row * groups + codes.group_of(column);
      const int zero = raw.zeros.empty() ? codes.common_zero() : raw.zeros.as<uint8_t>()[scale];
      const uint8_t code = raw.values.as<uint8_t>()[row * shape[1] + column];
      *number++ = reference::code_value(codes.format, code, zero) * scales[static_cast<size_t>(scale)];
    }
  return {view_of(memory.data(), DType::fp32, shape), {}, {}};
}

}  // namespace maniple
