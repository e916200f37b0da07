// Element types and the conversions between them (round to nearest, ties to even).
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <string_view>

namespace maniple {

enum class DType : uint8_t { fp32, bf16, fp16, int32, uint8, fp8, e8m0 };  // fp8: e4m3; e8m0: scales

constexpr size_t size_of(DType dtype) {
  switch (dtype) {
    case DType::fp32:
    case DType::int32:
      return 4;
    case DType::bf16:
    case DType::fp16:
      return 2;
    case DType::uint8:
    case DType::fp8:
    case DType::e8m0:
      return 1;
  }
  return 0;
}

constexpr std::string_view name_of(DType dtype) {
  constexpr std::string_view names[] = {"fp32", "bf16", "fp16", "int32", "uint8", "fp8", "e8m0"};
  return names[static_cast<size_t>(dtype)];
}

// The upper half of an fp32.
struct BFloat16 {
  uint16_t bits = 0;

  BFloat16() = default;
  explicit BFloat16(float value) {
    const uint32_t wide = std::bit_cast<uint32_t>(value);
    const bool nan = (wide & 0x7fffffffu) > 0x7f800000u;
    bits = nan ? static_cast<uint16_t>((wide >> 16) | 0x40u)
               : static_cast<uint16_t>((wide + 0x7fffu + ((wide >> 16) & 1u)) >> 16);
  }
  explicit operator float() const { return std::bit_cast<float>(static_cast<uint32_t>(bits) << 16); }
};

// IEEE binary16.
struct Float16 {
  uint16_t bits = 0;

  Float16() = default;
  explicit Float16(float value) {
    const uint32_t wide = std::bit_cast<uint32_t>(value), magnitude = wide & 0x7fffffffu;
    if (magnitude > 0x7f800000u) {
      bits = 0x7e00u;
    } else if (magnitude >= 0x477ff000u) {  // from 65520 on
      bits = 0x7c00u;
    } else if (magnitude < 0x38800000u) {  // subnormal: adding 0.5 rounds to multiples of 2^-24
      bits = static_cast<uint16_t>(std::bit_cast<uint32_t>(std::bit_cast<float>(magnitude) + 0.5f) -
                                   0x3f000000u);
    } else {
      bits = static_cast<uint16_t>((magnitude - 0x38000000u + 0xfffu + ((magnitude >> 13) & 1u)) >> 13);
    }
    bits = static_cast<uint16_t>(bits | (wide >> 16 & 0x8000u));
  }
  explicit operator float() const {
    const uint32_t sign = (bits & 0x8000u) << 16, exponent = (bits >> 10) & 0x1fu, mantissa = bits & 0x3ffu;
    if (exponent == 0) {  // zero or subnormal: mantissa * 2^-24
      const float magnitude = static_cast<float>(mantissa) * 0x1p-24f;
      return sign ? -magnitude : magnitude;
    }
    const uint32_t wide_exponent = exponent == 31 ? 255u : exponent + 112u;
    return std::bit_cast<float>(sign | (wide_exponent << 23) | (mantissa << 13));
  }
};

// e4m3: 1 sign, 4 exponent (bias 7) and 3 mantissa bits, no infinities, NaN 0x7f and 0xff.
struct Float8 {
  static constexpr float largest = 448;
  uint8_t bits = 0;

  Float8() = default;
  // Saturates.
  constexpr explicit Float8(float value) {
    const uint32_t wide = std::bit_cast<uint32_t>(value), magnitude = wide & 0x7fffffffu;
    if (magnitude > 0x7f800000u)
      bits = 0x7f;
    else if (magnitude >= 0x43e00000u)  // from 448 on
      bits = 0x7e;
    else if (magnitude < 0x3c800000u)  // subnormal: adding 2^14 rounds to multiples of 2^-9
      bits = static_cast<uint8_t>(std::bit_cast<uint32_t>(std::bit_cast<float>(magnitude) + 0x1p14f) -
                                  0x46800000u);
    else
      bits = static_cast<uint8_t>((magnitude - 0x3c000000u + 0x7ffffu + ((magnitude >> 20) & 1u)) >> 20);
    bits = static_cast<uint8_t>(bits | (wide >> 24 & 0x80u));
  }
  constexpr explicit operator float() const {
    const uint32_t sign = uint32_t{bits & 0x80u} << 24, magnitude = bits & 0x7fu;
    if (magnitude == 0x7f) return std::bit_cast<float>(sign | 0x7fc00000u);
    return std::bit_cast<float>(sign | magnitude << 20) * 0x1p120f;
  }
};

// The least power of two, from 2^-126 on, that is no less than a positive number; infinity stays.
constexpr float power_from(float value) {
  constexpr uint32_t mantissa = 0x7fffffu;
  return std::bit_cast<float>((std::bit_cast<uint32_t>(value) + mantissa) & ~mantissa);
}

// e8m0: 2^(bits - 127) from 2^-127 on, NaN 0xff.
struct PowerScale {
  static constexpr uint8_t nan = 0xff;
  uint8_t bits = 0;

  PowerScale() = default;
  // Of a positive number, or zero: the least power that is no less.
  constexpr explicit PowerScale(float value)
      : bits(value <= 0x1p-127f ? uint8_t{0}
                                : static_cast<uint8_t>(std::bit_cast<uint32_t>(power_from(value)) >> 23)) {}
  constexpr explicit operator float() const {
    return std::bit_cast<float>(bits == nan ? 0x7fc00000u : bits == 0 ? 0x00400000u : uint32_t{bits} << 23);
  }
};

}  // namespace maniple
