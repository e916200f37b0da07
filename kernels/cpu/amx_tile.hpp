// The tile instructions of Intel AMX that the matmul uses, as a class that tests
// replace by plain C++. Tiles are 0..7, each of 16 rows of 64 bytes. Inline assembly,
// because the tile number is a template argument and gcc 12's _tile_loadconfig reads
// only 8 of the 64 bytes of the configuration (the compiler then drops the rest).
//
// Tile state belongs to a thread. An AmxTiles configures it for its lifetime. Before that the process must
// have requested AMX from the kernel (cpu_paths.cpp).
#pragma once

#include <cstdint>

namespace maniple::cpu {
namespace {

class AmxTiles {
 public:
  AmxTiles() {
    Configuration configuration;
    asm volatile("ldtilecfg %0" : : "m"(configuration) : "memory");
  }
  ~AmxTiles() { asm volatile("tilerelease" : : : "memory"); }
  AmxTiles(const AmxTiles&) = delete;
  AmxTiles& operator=(const AmxTiles&) = delete;

  template <int tile>
  void zero() {
    asm volatile("tilezero %%tmm%c0" : : "i"(tile));
  }
  // stride: bytes from row to row.
  template <int tile>
  void load(const void* from, int64_t stride) {
    asm volatile("tileloadd (%0,%1,1), %%tmm%c2" : : "r"(from), "r"(stride), "i"(tile) : "memory");
  }
  template <int tile>
  void store(void* to, int64_t stride) {
    asm volatile("tilestored %%tmm%c2, (%0,%1,1)" : : "r"(to), "r"(stride), "i"(tile) : "memory");
  }
  // sum[16][16] (fp32) += a[16][16 pairs] * b[16 pairs][16 columns], both of bf16 pairs: the chain of all products at even places, and that
  // of those at odd ones, each from zero, then sum + (even + odd). Subnormals are zero, in and out.
  template <int sum, int a, int b>
  void dot() {
    asm volatile("tdpbf16ps %%tmm%c2, %%tmm%c1, %%tmm%c0" : : "i"(sum), "i"(a), "i"(b));
  }
  // sum[16][16] (int32) += a[16][16 x 4] * b[16 x 4][16 columns], a signed and b unsigned bytes.
  template <int sum, int a, int b>
  void dot_codes() {
    asm volatile("tdpbsud %%tmm%c2, %%tmm%c1, %%tmm%c0" : : "i"(sum), "i"(a), "i"(b));
  }

 private:
  struct alignas(64) Configuration {
    uint8_t palette = 1, start_row = 0, reserved[14] = {};
    uint16_t row_bytes[16] = {64, 64, 64, 64, 64, 64, 64, 64};
    uint8_t rows[16] = {16, 16, 16, 16, 16, 16, 16, 16};
  };
};

}  // namespace
}  // namespace maniple::cpu
