// Transposes `lanes` vectors of `lanes` words in registers: first 4 x 4 words in every 128-bit lane, then the
// lanes. Unpacking inside lanes costs less than half of a permutation across the whole vector. The patterns
// are those of unpack and lane shuffle instructions.
#include <kernels/cpu/vector_lanes.hpp>

namespace maniple::cpu {
namespace {

#if defined(__AVX512F__)
inline Words low_words(Words a, Words b) {
  return __builtin_shufflevector(a, b, 0, 16, 1, 17, 4, 20, 5, 21, 8, 24, 9, 25, 12, 28, 13, 29);
}
inline Words high_words(Words a, Words b) {
  return __builtin_shufflevector(a, b, 2, 18, 3, 19, 6, 22, 7, 23, 10, 26, 11, 27, 14, 30, 15, 31);
}
inline Words low_pairs(Words a, Words b) {
  return __builtin_shufflevector(a, b, 0, 1, 16, 17, 4, 5, 20, 21, 8, 9, 24, 25, 12, 13, 28, 29);
}
inline Words high_pairs(Words a, Words b) {
  return __builtin_shufflevector(a, b, 2, 3, 18, 19, 6, 7, 22, 23, 10, 11, 26, 27, 14, 15, 30, 31);
}
inline Words even_lanes(Words a, Words b) {
  return __builtin_shufflevector(a, b, 0, 1, 2, 3, 8, 9, 10, 11, 16, 17, 18, 19, 24, 25, 26, 27);
}
inline Words odd_lanes(Words a, Words b) {
  return __builtin_shufflevector(a, b, 4, 5, 6, 7, 12, 13, 14, 15, 20, 21, 22, 23, 28, 29, 30, 31);
}
#elif defined(__AVX2__)
inline Words low_words(Words a, Words b) { return __builtin_shufflevector(a, b, 0, 8, 1, 9, 4, 12, 5, 13); }
inline Words high_words(Words a, Words b) {
  return __builtin_shufflevector(a, b, 2, 10, 3, 11, 6, 14, 7, 15);
}
inline Words low_pairs(Words a, Words b) { return __builtin_shufflevector(a, b, 0, 1, 8, 9, 4, 5, 12, 13); }
inline Words high_pairs(Words a, Words b) {
  return __builtin_shufflevector(a, b, 2, 3, 10, 11, 6, 7, 14, 15);
}
inline Words even_lanes(Words a, Words b) { return __builtin_shufflevector(a, b, 0, 1, 2, 3, 8, 9, 10, 11); }
inline Words odd_lanes(Words a, Words b) { return __builtin_shufflevector(a, b, 4, 5, 6, 7, 12, 13, 14, 15); }
#else
inline Words low_words(Words a, Words b) { return __builtin_shufflevector(a, b, 0, 4, 1, 5); }
inline Words high_words(Words a, Words b) { return __builtin_shufflevector(a, b, 2, 6, 3, 7); }
inline Words low_pairs(Words a, Words b) { return __builtin_shufflevector(a, b, 0, 1, 4, 5); }
inline Words high_pairs(Words a, Words b) { return __builtin_shufflevector(a, b, 2, 3, 6, 7); }
#endif

// a[i] = row i becomes a[i] = column i.
inline void transpose_words(Words (&a)[lanes]) {
#pragma GCC unroll 4
  for (int i = 0; i < lanes; i += 4) {
    const Words low01 = low_words(a[i], a[i + 1]), high01 = high_words(a[i], a[i + 1]);
    const Words low23 = low_words(a[i + 2], a[i + 3]), high23 = high_words(a[i + 2], a[i + 3]);
    a[i] = low_pairs(low01, low23);
    a[i + 1] = high_pairs(low01, low23);
    a[i + 2] = low_pairs(high01, high23);
    a[i + 3] = high_pairs(high01, high23);
  }
  // Now lane l of a[4 g + j] is word 4 l + j of rows 4 g .. 4 g + 3.
#pragma GCC unroll 4
  for (int j = 0; j < 4; ++j) {
#if defined(__AVX512F__)
    const Words even01 = even_lanes(a[j], a[4 + j]), odd01 = odd_lanes(a[j], a[4 + j]);
    const Words even23 = even_lanes(a[8 + j], a[12 + j]), odd23 = odd_lanes(a[8 + j], a[12 + j]);
    a[j] = even_lanes(even01, even23);
    a[4 + j] = even_lanes(odd01, odd23);
    a[8 + j] = odd_lanes(even01, even23);
    a[12 + j] = odd_lanes(odd01, odd23);
#elif defined(__AVX2__)
    const Words even = even_lanes(a[j], a[4 + j]), odd = odd_lanes(a[j], a[4 + j]);
    a[j] = even;
    a[4 + j] = odd;
#endif
  }
}

}  // namespace
}  // namespace maniple::cpu
