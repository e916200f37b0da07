// Dot products of bf16 pairs, and Sources that widen codes to them in AVX-512 registers: 16 columns at a time.

#include <immintrin.h>

#include <kernels/cpu/matmul_codes.inl>

namespace maniple::cpu {
namespace {

struct Bf16Pairs {
  using Sum = __m512;
  using Weight = __m512i;
  using Activation = __m512i;
  static constexpr int lanes = 16, registers = 24;

  static Sum zero() { return _mm512_setzero_ps(); }
  static Weight weight(const uint32_t* units) { return _mm512_loadu_si512(units); }
  static void store_weight(uint32_t* units, Weight weight) { _mm512_storeu_si512(units, weight); }
  static Activation activation(const uint32_t* unit) { return _mm512_set1_epi32(static_cast<int>(*unit)); }
  static Sum dot(Sum sum, Weight w, Activation x) { return _mm512_dpbf16_ps(sum, (__m512bh)w, (__m512bh)x); }
};

// Shifts of lanes as operators, and zero-masked forms of all lanes elsewhere: gcc 12 warns of its plain intrinsics.
template <typename Lanes>
inline __m512i right(__m512i words, int bits) {
  return (__m512i)((Lanes)words >> bits);
}
template <typename Lanes>
inline __m512i left(__m512i words, int bits) {
  return (__m512i)((Lanes)words << bits);
}

struct PairWords {
  using Words = __m512i;
  static Words load(const uint32_t* words) { return _mm512_loadu_si512(words); }
};

// 2^23 + code by an OR, minus 2^23 + zero, both exact; the result has at most 8 significant bits.
struct Int8Pairs : PairWords {
  static constexpr int units = 2;
  using Zeros = __m512;  // 2^23 + zero

  static Zeros zeros(const uint8_t* zeros, int64_t column) {
    return _mm512_castsi512_ps(_mm512_or_si512((__m512i)load_bytes(zeros + column), shifter()));
  }
  template <int pair>
  static __m512i weight(Words words, Zeros zeros, Unit<pair>) {
    const __m512i even = code(pair ? right<__v16su>(words, 8) : words, zeros);
    const __m512i odd = code(right<__v16su>(words, 16 + 8 * pair), zeros);
    const __m512i upper = _mm512_set1_epi32(static_cast<int>(0xffff0000u));
    return _mm512_ternarylogic_epi32(right<__v16su>(even, 16), odd, upper, 0xf8);  // a | (b & c)
  }

 private:
  static __m512i shifter() { return _mm512_set1_epi32(0x4b000000); }
  static __m512i code(__m512i words, Zeros zeros) {
    const __m512i biased =
        _mm512_ternarylogic_epi32(words, _mm512_set1_epi32(0xff), shifter(), 0xea);  // (a & b) | c
    return _mm512_castps_si512(_mm512_sub_ps(_mm512_castsi512_ps(biased), zeros));
  }
};

// Sign, exponent and mantissa move to their places and exponents from bias 7 to 127. Words with subnormals, which are rare, look these
// up: bf16 dot products take subnormal bf16 for zero.
struct Float8Pairs : PairWords {
  static constexpr int units = 2;
  struct Words {
    __m512i pairs[2];
  };
  struct Zeros {};

  static Zeros zeros(const uint8_t*, int64_t) { return {}; }
  static Words load(const uint32_t* from) {
    const __m512i words = PairWords::load(from), even = left<__v32hu>(words, 8);
    const __mmask64 subnormal = _mm512_testn_epi8_mask(words, _mm512_set1_epi8(0x78));
    if (__builtin_expect(subnormal != 0, 0)) return {{with_subnormals(even), with_subnormals(words)}};
    return {{normal(even), normal(words)}};
  }
  template <int pair>
  static __m512i weight(const Words& words, Zeros, Unit<pair>) {
    return words.pairs[pair];
  }

 private:
  // Of codes in the upper byte of each half.
  static __m512i normal(__m512i codes) {
    const __m512i placed =
        _mm512_and_si512((__m512i)((__v32hi)codes >> 4), _mm512_set1_epi16(static_cast<short>(0x87f0)));
    return _mm512_add_epi16(placed, _mm512_set1_epi16(0x3c00));
  }
  static __m512i with_subnormals(__m512i codes) {
    const __mmask32 subnormal = _mm512_testn_epi16_mask(codes, _mm512_set1_epi16(0x7800));
    const __m512i value =
        _mm512_mask_permutexvar_epi16(normal(codes), subnormal, right<__v32hu>(codes, 8), subnormals());
    return _mm512_ternarylogic_epi32(value, codes, _mm512_set1_epi16(static_cast<short>(0x8000)),
                                     0xf8);  // a | (b & c)
  }
  // m * 2^-9 by the low five bits of a code whose exponent is zero.
  static __m512i subnormals() {
    constexpr int64_t low = 0x3bc03b803b000000, high = 0x3c603c403c203c00;
    return _mm512_set_epi64(high, low, high, low, high, low, high, low);
  }
};

// Looked up by 16 + code - zero.
struct Int4Pairs : PairWords {
  static constexpr int units = 4;
  using Zeros = __m512i;  // 16 - zero in both halves

  static Zeros zeros(const uint8_t* zeros, int64_t column) {
    const __m512i zero = (__m512i)load_bytes(zeros + column);
    return _mm512_sub_epi16(_mm512_set1_epi16(16), _mm512_or_si512(zero, left<__v16su>(zero, 16)));
  }
  template <int pair>
  static __m512i weight(Words words, Zeros zeros, Unit<pair>) {
    const __m512i codes =
        _mm512_and_si512(pair ? right<__v16su>(words, 4 * pair) : words, _mm512_set1_epi16(0xf));
    return _mm512_maskz_permutexvar_epi16(~0u, _mm512_add_epi16(codes, zeros), differences());
  }

 private:
  // bf16 of -16..15.
  static __m512i differences() {
    alignas(64) static constexpr uint16_t table[32] = {
        0xc180, 0xc170, 0xc160, 0xc150, 0xc140, 0xc130, 0xc120, 0xc110, 0xc100, 0xc0e0, 0xc0c0,
        0xc0a0, 0xc080, 0xc040, 0xc000, 0xbf80, 0x0000, 0x3f80, 0x4000, 0x4040, 0x4080, 0x40a0,
        0x40c0, 0x40e0, 0x4100, 0x4110, 0x4120, 0x4130, 0x4140, 0x4150, 0x4160, 0x4170};
    return _mm512_load_si512(table);
  }
};

// Looked up by the code alone. Of an index five bits count, and the fifth is the next code's: both halves of the table are the same.
template <typename Values>
struct FourBitPairs : PairWords {
  static constexpr int units = 4;
  struct Zeros {};

  static Zeros zeros(const uint8_t*, int64_t) { return {}; }
  template <int pair>
  static __m512i weight(Words words, Zeros, Unit<pair>) {
    return _mm512_maskz_permutexvar_epi16(~0u, pair ? right<__v16su>(words, 4 * pair) : words, table());
  }

 private:
  static __m512i table() {
    constexpr auto& v = Values::bf16;
    return _mm512_set_epi64(v[3], v[2], v[1], v[0], v[3], v[2], v[1], v[0]);
  }
};

// All zeros are 8: -8..7.
struct SymmetricInt4 {
  static constexpr int64_t bf16[] = {static_cast<int64_t>(0xc0a0c0c0c0e0c100u),
                                     static_cast<int64_t>(0xbf80c000c040c080u), 0x404040003f800000,
                                     0x40e040c040a04080};
};
struct E2m1 {
  static constexpr int64_t bf16[] = {0x3fc03f803f000000, 0x40c0408040404000,
                                     static_cast<int64_t>(0xbfc0bf80bf008000u),
                                     static_cast<int64_t>(0xc0c0c080c040c000u)};
};

}  // namespace
}  // namespace maniple::cpu
