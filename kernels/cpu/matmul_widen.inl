// Sources of fp32 lanes: codes become fp32 in the vectors of any instruction set. A Vector of fp32 elements takes code after code, one of
// bf16 pairs widened to {even, odd} takes pairs.

#include <kernels/cpu/e4m3_lanes.inl>
#include <kernels/cpu/matmul_codes.inl>

namespace maniple::cpu {
namespace {

// value + 2^23 and its fp32 have the same low bits: integers become floats by an OR and a subtraction.
constexpr uint32_t shifter = 0x4b000000;

template <int bits>
struct IntegerLanes {
  static constexpr int width = bits;
  using Zeros = Floats;  // 2^23 + zero

  static Zeros zeros(const uint8_t* zeros, int64_t column) {
    Words wide;
    for (int c = 0; c < lanes; ++c) wide[c] = zeros[column + c];
    return (Floats)(wide | shifter);
  }
  // The code at bit `at` of each lane.
  static Floats value(Words words, Zeros zeros, int at) {
    return (Floats)(((words >> at) & ((1u << bits) - 1)) | shifter) - zeros;
  }
};

struct Float8Lanes {
  static constexpr int width = 8;
  struct Zeros {};

  static Zeros zeros(const uint8_t*, int64_t) { return {}; }
  static Floats value(Words words, Zeros, int at) { return e4m3_values(words, at); }
};

template <typename Lanes>
struct CodesToFloats {
  static constexpr int units = 32 / Lanes::width;
  using Words = cpu::Words;
  using Zeros = typename Lanes::Zeros;

  static Zeros zeros(const uint8_t* zeros, int64_t column) { return Lanes::zeros(zeros, column); }
  static Words load(const uint32_t* words) { return cpu::load<Words>(words); }
  template <int k>
  static Floats weight(Words words, const Zeros& zeros, Unit<k>) {
    return Lanes::value(words, zeros, Lanes::width * (k / 2) + 16 * (k % 2));
  }
};

// Weight is {even, odd}.
template <typename Lanes, typename Weight>
struct CodesToPairs : CodesToFloats<Lanes> {
  static constexpr int units = 16 / Lanes::width;
  using typename CodesToFloats<Lanes>::Words;
  using typename CodesToFloats<Lanes>::Zeros;

  template <int pair>
  static Weight weight(Words words, const Zeros& zeros, Unit<pair>) {
    using Lane = decltype(Weight::even);
    return {(Lane)Lanes::value(words, zeros, Lanes::width * pair),
            (Lane)Lanes::value(words, zeros, Lanes::width * pair + 16)};
  }
};

template <typename Vector, int rows_in_tile>
CodeKernels fp32_code_kernels() {
  return {multiply_codes<WidenedProducts<Vector, rows_in_tile, CodesToFloats<IntegerLanes<8>>>>,
          multiply_codes<WidenedProducts<Vector, rows_in_tile, CodesToFloats<Float8Lanes>>>,
          multiply_codes<WidenedProducts<Vector, rows_in_tile, CodesToFloats<IntegerLanes<4>>>>};
}

template <typename Vector, int rows_in_tile>
CodeKernels bf16_code_kernels() {
  using Weight = typename Vector::Weight;
  return {multiply_codes<WidenedProducts<Vector, rows_in_tile, CodesToPairs<IntegerLanes<8>, Weight>>>,
          multiply_codes<WidenedProducts<Vector, rows_in_tile, CodesToPairs<Float8Lanes, Weight>>>,
          multiply_codes<WidenedProducts<Vector, rows_in_tile, CodesToPairs<IntegerLanes<4>, Weight>>>};
}

}  // namespace
}  // namespace maniple::cpu
