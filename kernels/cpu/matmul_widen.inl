// Sources of fp32 lanes: bf16 and codes become fp32 in the vectors of any instruction set. A Vector of fp32 elements takes code after
// code, tiles of bf16 pairs take {even, odd}.

#include <kernels/cpu/e4m3_lanes.inl>
#include <kernels/cpu/matmul_codes.inl>

namespace maniple::cpu {
namespace {

// The upper half takes two shifts, which gcc must not make a mask of: a tile of AVX2 leaves no register for one.
struct Bf16ToFloats {
  static constexpr int units = 2;
  using Words = cpu::Words;
  struct Zeros {};

  static Zeros zeros(const uint8_t*, int64_t) { return {}; }
  static Words load(const uint32_t* words) { return cpu::load<Words>(words); }
  template <int half>
  static Floats weight(Words words, Zeros, Unit<half>) {
    if constexpr (half == 1) {
      words >>= 16;
#if defined(__AVX2__) && !defined(__AVX512F__)
      asm("" : "+x"(words));
#endif
    }
    return (Floats)(words << 16);
  }
};

// A float of 2^(23 - n) counts ones from bit n on: an OR of a code at that bit adds it, and a subtraction takes the power off with the
// zero. Both are exact, and the code needs no shift. halves: codes count halves, and so do their zeros.
template <int bits, bool halves = false>
struct IntegerLanes {
  static constexpr int width = bits, in_half = 16 / bits;
  struct Zeros {
    Floats value[in_half];  // the power of a place + zero
  };
  using Words = cpu::Words;

  static Zeros zeros(const uint8_t* from, int64_t column) {
    return zeros(__builtin_convertvector(load_bytes(from + column), Floats));
  }
  static Zeros zeros(Floats zero) {
    Zeros zeros;
#pragma GCC unroll 4
    for (int place = 0; place < in_half; ++place)
      zeros.value[place] = zero + (Floats)(Words{} + power(place));
    return zeros;
  }
  static Words load(const uint32_t* words) { return cpu::load<Words>(words); }
  // Of the code of each lane at `place` of the lower or upper half.
  template <int place, bool upper>
  static Floats value(Words words, const Zeros& zeros) {
    constexpr uint32_t mask = ((1u << bits) - 1) << bits * place;
    return (Floats)(((upper ? words >> 16 : words) & mask) | power(place)) - zeros.value[place];
  }

 private:
  static constexpr uint32_t power(int place) {
    return (150u - halves - static_cast<uint32_t>(bits * place)) << 23;
  }
};

#ifdef __AVX512F__
// e2m1 codes: the last four bits of a lane choose one of sixteen floats.
struct E2m1Lanes {
  static constexpr int width = 4;
  using Words = cpu::Words;
  struct Zeros {};

  static Zeros zeros(const uint8_t*, int64_t) { return {}; }
  static Words load(const uint32_t* words) { return cpu::load<Words>(words); }
  template <int place, bool upper>
  static Floats value(Words words, Zeros) {
    alignas(64) static constexpr float values[16] = {0,    0.5f,  1,  1.5f,  2,  3,  4,  6,
                                                     -0.f, -0.5f, -1, -1.5f, -2, -3, -4, -6};
    return (Floats)_mm512_maskz_permutexvar_ps(0xffff, (__m512i)(words >> (4 * place + 16 * upper)),
                                               _mm512_load_ps(values));
  }
};
#else
// 12 + 2 * the value of an e2m1 code, in each byte.
inline Words e2m1_halves(Words codes) {
#ifdef __AVX2__
  alignas(16) static constexpr uint8_t table[16] = {12, 13, 14, 15, 16, 18, 20, 24,
                                                    12, 11, 10, 9,  8,  6,  4,  0};
  return (Words)_mm256_shuffle_epi8(_mm256_broadcastsi128_si256(load<__m128i>(table)), (__m256i)codes);
#else
  using Bytes [[gnu::vector_size(4 * lanes)]] = int8_t;  // a comparison that holds is -1
  const Bytes code = (Bytes)codes, magnitude = code & 7, negative = code > 7;
  const Bytes doubled =
      magnitude - (Bytes)(magnitude > 4) - (Bytes)(magnitude > 5) + ((Bytes)(magnitude > 6) & 3);
  return (Words)(((doubled ^ negative) - negative) + 12);
#endif
}

// e2m1 codes: two look-ups give the bytes of a word.
struct E2m1Lanes {
  static constexpr int width = 4;
  using InBytes = IntegerLanes<8, true>;
  using Zeros = InBytes::Zeros;
  struct Words {
    cpu::Words halves[2];  // of the codes at even places, at odd ones
  };

  static Zeros zeros(const uint8_t*, int64_t) { return InBytes::zeros(broadcast(6)); }
  static Words load(const uint32_t* words) {
    const auto codes = cpu::load<cpu::Words>(words);
    return {{e2m1_halves(codes & 0x0f0f0f0fu), e2m1_halves(codes >> 4 & 0x0f0f0f0fu)}};
  }
  template <int place, bool upper>
  static Floats value(const Words& words, const Zeros& zeros) {
    return InBytes::value<place / 2, upper>(words.halves[place % 2], zeros);
  }
};
#endif

// Words without subnormal codes or zeros, which are rare, take a short way.
struct Float8Lanes {
  static constexpr int width = 8;
  struct Zeros {};
  struct Words {
    Floats value[2][2];  // [place][half]
  };

  static Zeros zeros(const uint8_t*, int64_t) { return {}; }
  static Words load(const uint32_t* words) {
    const auto codes = cpu::load<cpu::Words>(words);
    Words values;
    if (__builtin_expect(any_e4m3_subnormal(codes), 0))
      for (int i = 0; i < 4; ++i) values.value[i / 2][i % 2] = e4m3_values(codes, 8 * (i / 2) + 16 * (i % 2));
    else
      for (int i = 0; i < 4; ++i)
        values.value[i / 2][i % 2] = e4m3_normal_values(codes, 8 * (i / 2) + 16 * (i % 2));
    return values;
  }
  template <int place, bool upper>
  static Floats value(const Words& words, Zeros) {
    return words.value[place][upper];
  }
};

template <typename Lanes>
struct CodesToFloats {
  static constexpr int units = 32 / Lanes::width;
  using Words = typename Lanes::Words;
  using Zeros = typename Lanes::Zeros;

  static Zeros zeros(const uint8_t* zeros, int64_t column) { return Lanes::zeros(zeros, column); }
  static Words load(const uint32_t* words) { return Lanes::load(words); }
  template <int k>
  static Floats weight(const Words& words, const Zeros& zeros, Unit<k>) {
    return Lanes::template value<k / 2, k % 2>(words, zeros);
  }
};

// Weight is {even, odd}.
template <typename Lanes, typename Weight>
struct CodesToPairs : CodesToFloats<Lanes> {
  static constexpr int units = 16 / Lanes::width;
  using typename CodesToFloats<Lanes>::Words;
  using typename CodesToFloats<Lanes>::Zeros;

  template <int pair>
  static Weight weight(const Words& words, const Zeros& zeros, Unit<pair>) {
    using Lane = decltype(Weight::even);
    return {(Lane)Lanes::template value<pair, false>(words, zeros),
            (Lane)Lanes::template value<pair, true>(words, zeros)};
  }
};

template <typename Vector, int rows_in_tile>
CodeKernels code_kernels() {
  return {multiply_codes<WidenedProducts<Vector, rows_in_tile, CodesToFloats<IntegerLanes<8>>>>,
          multiply_codes<WidenedProducts<Vector, rows_in_tile, CodesToFloats<Float8Lanes>>>,
          multiply_codes<WidenedProducts<Vector, rows_in_tile, CodesToFloats<IntegerLanes<4>>>>,
          multiply_codes<WidenedProducts<Vector, rows_in_tile, CodesToFloats<E2m1Lanes>>>};
}

}  // namespace
}  // namespace maniple::cpu
