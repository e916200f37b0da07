// Random weights of codes, and what products with them are in double precision: computed here from the rules in kernels/weight.hpp, with
// nothing of the kernels but the types.
#pragma once

#include <kernels/ops.hpp>
#include <support/random_tensors.hpp>

#include <gtest/gtest.h>

#include <cmath>
#include <ostream>
#include <string>
#include <vector>

namespace maniple::testing {

// A whole matrix of codes in host memory. group -1: one scale for each row.
struct CodeMatrix {
  WeightFormat format;
  int64_t rows, columns, group;
  bool zeros;
  DType scale_type;
  bool power_scales = false;  // of inputs
  std::vector<uint8_t> codes, zero_points;
  std::vector<float> scales;

  CodeMatrix(WeightFormat of, int64_t n, int64_t k, int64_t columns_of_group, bool with_zeros, DType scale,
             uint64_t seed)
      : format(of), rows(n), columns(k), group(columns_of_group), zeros(with_zeros), scale_type(scale) {
    for (int64_t i = 0; i < n * k; ++i) codes.push_back(code(seed, static_cast<uint64_t>(i)));
    for (int64_t i = 0; i < n * groups(); ++i) {
      const float magnitude = std::exp2(3 * uniform(seed + 1, static_cast<uint64_t>(i)) - 6);
      if (scale == DType::e8m0) {
        scales.push_back(std::exp2(std::floor(std::log2(magnitude))));
        continue;
      }
      scales.push_back(rounded(scale, hashed(seed + static_cast<uint64_t>(i)) % 64 == 0 ? 0 : magnitude));
      if (zeros)
        zero_points.push_back(static_cast<uint8_t>(hashed(seed + 2 + static_cast<uint64_t>(i)) %
                                                   (format == WeightFormat::int4 ? 16 : 256)));
    }
  }

  int64_t groups() const { return group < 0 ? 1 : (columns + group - 1) / group; }
  size_t scale_index(int64_t row, int64_t column) const {
    return static_cast<size_t>(row * groups() + (group < 0 ? 0 : column / group));
  }
  // code - zero, or a floating-point value
  double value(int64_t row, int64_t column) const {
    const int c = codes[static_cast<size_t>(row * columns + column)];
    if (format == WeightFormat::fp8) {
      const int exponent = c >> 3 & 15, mantissa = c & 7;
      const double magnitude = exponent ? std::ldexp(8 + mantissa, exponent - 10) : std::ldexp(mantissa, -9);
      return c & 0x80 ? -magnitude : magnitude;
    }
    if (format == WeightFormat::mxfp4) {
      const int exponent = c >> 1 & 3, mantissa = c & 1;
      const double magnitude = exponent ? std::ldexp(2 + mantissa, exponent - 2) : std::ldexp(mantissa, -1);
      return c & 8 ? -magnitude : magnitude;
    }
    return c - (zeros ? zero_points[scale_index(row, column)] : format == WeightFormat::int4 ? 8 : 128);
  }
  float weight(int64_t row, int64_t column) const {
    return static_cast<float>(value(row, column)) * scales[scale_index(row, column)];
  }

 private:
  uint8_t code(uint64_t seed, uint64_t i) const {
    const auto bits = static_cast<uint8_t>(hashed(hashed(seed) + i));
    if (bits_of(format) == 4) return bits & 15;
    return format == WeightFormat::fp8 && (bits & 0x7f) == 0x7f ? uint8_t{0} : bits;
  }
};

// Columns of the matrix as a weight, packed in two pieces.
inline Weight packed_columns(Ops& ops, const CodeMatrix& matrix, DType dtype, IndexRange columns, int slices,
                             ActivationRule rule = ActivationRule::none, float input_scale = 1) {
  const WeightShape shape{dtype,
                          matrix.rows,
                          columns.size(),
                          slices,
                          matrix.format,
                          matrix.group,
                          matrix.group < 0 ? 0 : columns.begin,
                          rule,
                          matrix.zeros,
                          false,
                          matrix.scale_type,
                          matrix.power_scales};
  Weight weight = ops.make_weight(shape);
  weight.input_scale = input_scale;
  const int64_t first_group = matrix.group < 0 ? 0 : columns.begin / matrix.group;
  Tensor codes(ops.device(), DType::uint8, {matrix.rows, columns.size()}),
      scales(ops.device(), matrix.scale_type, {matrix.rows, shape.groups()}),
      zeros(ops.device(), DType::uint8, {matrix.rows, shape.groups()});
  for (int64_t row = 0; row < matrix.rows; ++row) {
    for (int64_t c = 0; c < columns.size(); ++c)
      codes.view().as<uint8_t>()[row * columns.size() + c] =
          matrix.codes[static_cast<size_t>(row * matrix.columns + columns.begin + c)];
    for (int64_t g = 0; g < shape.groups(); ++g) {
      const auto from = static_cast<size_t>(row * matrix.groups() + first_group + g);
      set(scales, row * shape.groups() + g, matrix.scales[from]);
      if (matrix.zeros) zeros.view().as<uint8_t>()[row * shape.groups() + g] = matrix.zero_points[from];
    }
  }
  const int64_t middle = matrix.rows * 2 / 5;
  for (const IndexRange rows : {IndexRange{middle, matrix.rows}, IndexRange{0, middle}})
    ops.pack(
        weight, rows.begin,
        {codes.view().rows(rows.begin, rows.size()), scales.view().rows(rows.begin, rows.size()),
         matrix.zeros ? ConstTensorView(zeros.view().rows(rows.begin, rows.size())) : ConstTensorView()});
  return weight;
}

// The nearest e4m3 value, ties to the even code, found among all of them.
inline double nearest_e4m3(double value) {
  static const std::vector<double> values = [] {
    std::vector<double> all;
    for (int c = 0; c < 0x7f; ++c)
      all.push_back(c >> 3 ? std::ldexp(8 + (c & 7), (c >> 3) - 10) : std::ldexp(c & 7, -9));
    return all;
  }();
  const double magnitude = std::min(std::abs(value), 448.0);
  const auto above = std::lower_bound(values.begin(), values.end(), magnitude);
  if (above == values.begin() || *above == magnitude) return std::copysign(*above, value);
  const double low = *(above - 1), high = *above;
  const bool up = magnitude - low != high - magnitude ? magnitude - low > high - magnitude
                                                      : (above - values.begin()) % 2 == 0;
  return std::copysign(up ? high : low, value);
}

// x [rows, k] as the rule rounds it: values, and the scale of each row and group of 1, or `group` columns.
struct RoundedInputs {
  std::vector<double> values;
  std::vector<float> scales;
  int64_t scales_of_row;

  RoundedInputs(ConstTensorView x, const CodeMatrix& matrix, ActivationRule rule, float input_scale) {
    const int64_t rows = x.shape[0], k = x.shape[1],
                  width = rule == ActivationRule::per_group ? matrix.group : k;
    scales_of_row = (k + width - 1) / width;
    const bool integers = matrix.format == WeightFormat::int8;
    for (int64_t row = 0; row < rows; ++row)
      for (int64_t first = 0; first < k; first += width) {
        const int64_t end = std::min(k, first + width);
        float largest = 0, scale = 1;
        for (int64_t c = first; c < end; ++c) largest = std::max(largest, std::abs(get(x, row * k + c)));
        if (rule == ActivationRule::fixed)
          scale = input_scale;
        else if (rule == ActivationRule::per_token && !integers)
          scale = std::max(largest / 448, 1.0f / (448 * 512));
        else if (rule != ActivationRule::none && largest > 0)
          scale = matrix.power_scales ? std::exp2f(std::ceil(std::log2(largest / 448)))
                                      : largest / (integers ? 127.0f : 448.0f);
        scales.push_back(scale);
        for (int64_t c = first; c < end; ++c) {
          const float value = get(x, row * k + c), divided = value / scale;
          values.push_back(rule == ActivationRule::none ? value
                           : integers                   ? std::clamp(std::nearbyint(divided), -127.0f, 127.0f)
                                                        : nearest_e4m3(divided));
        }
      }
  }
};

// Checks out = x * matrix^T + bias. k roundings of the sum of magnitudes, as for dense weights. A GPU also rounds to `elements`, where
// a row has several scales: (code - zero) * scale, and inputs that are rounded by groups.
inline void expect_product(ConstTensorView x, const CodeMatrix& matrix, ActivationRule rule,
                           float input_scale, ConstTensorView bias, ConstTensorView out,
                           double rounding_of_out, DType elements = DType::fp32) {
  const RoundedInputs inputs(x, matrix, rule, input_scale);
  const int64_t k = matrix.columns, width = inputs.scales_of_row > 1 ? matrix.group : k;
  for (int64_t row = 0; row < x.shape[0]; ++row)
    for (int64_t n = 0; n < matrix.rows; ++n) {
      double exact = bias.empty() ? 0 : get(bias, n), magnitude = std::abs(exact);
      for (int64_t c = 0; c < k; ++c) {
        const float scale = inputs.scales[static_cast<size_t>(row * inputs.scales_of_row + c / width)];
        const double term =
            inputs.values[static_cast<size_t>(row * k + c)] *
            (rule == ActivationRule::none
                 ? double{matrix.weight(n, c)}
                 : matrix.value(n, c) * double{scale * matrix.scales[matrix.scale_index(n, c)]});
        exact += term;
        magnitude += std::abs(term);
      }
      const double rounded_elements =
          elements == DType::fp32 ? 0
                                  : (rule == ActivationRule::per_group ? 2.01 : 1.01) * magnitude *
                                            (elements == DType::bf16 ? 0x1p-8 : 0x1p-11) +
                                        (elements == DType::fp16 ? static_cast<double>(k) * 0x1p-24 : 0);
      const double bound = static_cast<double>(k + 10) * 0x1p-24 * magnitude + rounded_elements +
                           1.01 * rounding_of_out * std::abs(exact) + 1e-37;
      ASSERT_NEAR(get(out, row * matrix.rows + n), exact, bound) << "row " << row << ", column " << n;
    }
}

struct CodeCase {
  WeightFormat format;
  ActivationRule rule;
  bool zeros;

  DType scale(DType of_others) const { return format == WeightFormat::mxfp4 ? DType::e8m0 : of_others; }
};

inline const std::vector<CodeCase>& code_cases() {
  using enum WeightFormat;
  using enum ActivationRule;
  static const std::vector<CodeCase> cases{
      {int4, none, false}, {int4, none, true},      {mxfp4, none, false},     {int8, none, false},
      {int8, none, true},  {int8, fixed, false},    {int8, per_token, false}, {fp8, none, false},
      {fp8, fixed, false}, {fp8, per_token, false}, {fp8, per_group, false}};
  return cases;
}

inline std::string to_string(const CodeCase& c) {
  constexpr std::string_view rules[] = {"", " per token", " per group", " fixed"};
  return fmt::format("{}{}{}", name_of(c.format), c.zeros ? " zeros" : "",
                     rules[static_cast<size_t>(c.rule)]);
}

}  // namespace maniple::testing
