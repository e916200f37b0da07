#include <kernels/reference/codes.hpp>

#include <algorithm>
#include <cmath>
#include <cstring>

namespace maniple::reference {

void require_rows_of(const Weight& weight, int64_t first_row, const RawRows& raw) {
  const int64_t count = raw.values.shape[0];
  require(
      raw.values.shape == Shape{count, weight.columns} && 0 <= first_row && first_row + count <= weight.rows,
      "raw rows fit the weight");
  const auto floating = [](DType dtype) {
    return dtype == DType::bf16 || dtype == DType::fp16 || dtype == DType::fp32;
  };
  if (weight.format == WeightFormat::dense)
    return require(floating(raw.values.dtype), "raw weights are floating point");
  const Shape groups{count, weight.groups()};
  require(raw.values.dtype == DType::uint8, "codes are bytes");
  require(raw.scales.shape == groups && (floating(raw.scales.dtype) || raw.scales.dtype == DType::e8m0),
          "a scale for each row and group");
  require(!weight.zeros || (raw.zeros.shape == groups && raw.zeros.dtype == DType::uint8),
          "a zero for each row and group");
}

float code_value(WeightFormat format, uint32_t code, int zero) {
  if (format == WeightFormat::mxfp4) {
    constexpr float magnitudes[] = {0, 0.5F, 1, 1.5F, 2, 3, 4, 6};
    return code & 8 ? -magnitudes[code & 7] : magnitudes[code & 7];
  }
  if (format != WeightFormat::fp8) return static_cast<float>(static_cast<int>(code) - zero);
  Float8 e4m3;
  e4m3.bits = static_cast<uint8_t>(code);
  return static_cast<float>(e4m3);
}

float abs_maximum(std::span<const float> values) {
  float largest = 0;
  for (const float value : values)
    if (largest == largest && !(std::abs(value) <= largest)) largest = std::abs(value);
  return largest;
}

float over_ranks(ConstTensorView maxima, int64_t row) {
  float largest = 0;
  for (int64_t rank = 0; rank < maxima.shape[0]; ++rank)
    if (const float of_rank = maxima.as<float>()[rank * maxima.shape[1] + row];
        largest == largest && !(of_rank <= largest))
      largest = of_rank;
  return largest;
}

float input_scale(const Weight& weight, float abs_maximum) {
  if (weight.activation == ActivationRule::fixed) return weight.input_scale;
  const bool integers = weight.format != WeightFormat::fp8;
  const float scale = abs_maximum / (integers ? 127.0f : Float8::largest);
  if (weight.power_scales && scale > 0) return power_from(scale);
  if (integers || weight.activation == ActivationRule::per_group) return scale == 0 ? 1.0f : scale;
  constexpr float least = 1 / (Float8::largest * 512);
  return scale < least ? least : scale;
}

namespace {

float code_of(WeightFormat format, float x, float scale) {
  if (format == WeightFormat::fp8) return static_cast<float>(Float8(x / scale));
  const float code = std::nearbyint(x / scale);  // a row with a NaN has a NaN scale
  return code == code ? std::clamp(code, -127.0f, 127.0f) : 0;
}

}  // namespace

Floats round_inputs(const Weight& weight, ConstTensorView row_maxima, int64_t rows, Floats& x) {
  const bool by_group = weight.activation == ActivationRule::per_group;
  const int64_t scales_of_row = by_group ? weight.groups() : 1,
                width = by_group ? weight.group : weight.columns;
  Floats scales;
  for (int64_t row = 0; row < rows; ++row)
    for (int64_t i = 0; i < scales_of_row; ++i) {
      const auto first = static_cast<size_t>(row * weight.columns + i * width);
      const std::span<float> part =
          std::span(x).subspan(first, static_cast<size_t>(std::min(width, weight.columns - i * width)));
      const float largest = by_group || row_maxima.empty() ? abs_maximum(part) : over_ranks(row_maxima, row);
      const float scale = scales.emplace_back(input_scale(weight, largest));
      for (float& value : part) value = code_of(weight.format, value, scale);
    }
  return scales;
}

void gather_columns(ConstTensorView x, ConstTensorView order, IndexRange tokens, TensorView out) {
  const int64_t all_tokens = x.shape[1], part = x.shape[2], columns = out.shape[1];
  const size_t element = size_of(x.dtype);
  for (int64_t token = tokens.begin; token < tokens.end; ++token)
    for (int64_t c = 0; c < columns; ++c) {
      const int64_t from = order.as<int32_t>()[c], rank = from / part;
      std::memcpy(out.data + static_cast<size_t>(token * columns + c) * element,
                  x.data + static_cast<size_t>((rank * all_tokens + token) * part + from % part) * element,
                  element);
    }
}

}  // namespace maniple::reference
