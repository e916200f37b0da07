// The ceiling of a product of many rows: dot products of registers alone.
#pragma once

#include <bench/bandwidth.hpp>

#include <kernels/backend.hpp>

namespace maniple::bench {

// GFLOP/s of all threads with products of registers 14 and 15 alone. issue(): one instruction into each of the registers 0 to 11, of
// so many operations each.
template <typename Issue>
double register_peak(ThreadPool& pool, int64_t operations, [[maybe_unused]] Issue issue) {
  constexpr int64_t rounds = 1 << 20, chains = 12;
  const int64_t items = 8 * pool.size();
  const auto start = Clock::now();
  pool.parallel_ranges(items, 1, [&]([[maybe_unused]] IndexRange range) {
#ifdef __x86_64__
    asm volatile("vxorps %ymm14, %ymm14, %ymm14\nvxorps %ymm15, %ymm15, %ymm15");
    for (int64_t round = 0; round < range.size() * rounds; ++round) issue();
    asm volatile("vzeroall" ::
                     : "xmm0", "xmm1", "xmm2", "xmm3", "xmm4", "xmm5", "xmm6", "xmm7", "xmm8", "xmm9",
                       "xmm10", "xmm11", "xmm12", "xmm13", "xmm14", "xmm15");
#endif
  });
  return static_cast<double>(items * rounds * chains * operations) / seconds_since(start) * 1e-9;
}

#ifdef __x86_64__
#define MANIPLE_CHAINS(instruction, registers)                                                       \
  [] {                                                                                               \
    asm volatile(".irp sum,0,1,2,3,4,5,6,7,8,9,10,11\n" instruction " %" registers "14, %" registers \
                 "15, %" registers "\\sum\n.endr");                                                  \
  }
#else
#define MANIPLE_CHAINS(instruction, registers) [] {}
#endif

// With 512-bit dot products of bf16 pairs, or of four int8. The processor must have them.
inline double dot_peak(ThreadPool& pool, bool int8) {
  return int8 ? register_peak(pool, 128, MANIPLE_CHAINS("vpdpbusd", "zmm"))
              : register_peak(pool, 64, MANIPLE_CHAINS("vdpbf16ps", "zmm"));
}

// With the products of a path in bf16: fp32 FMA where it has no dot products.
inline double product_peak(ThreadPool& pool, CpuPath path) {
  if (path == CpuPath::amx || path == CpuPath::avx512_bf16) return dot_peak(pool, false);
  return path == CpuPath::avx512 ? register_peak(pool, 32, MANIPLE_CHAINS("vfmadd231ps", "zmm"))
                                 : register_peak(pool, 16, MANIPLE_CHAINS("vfmadd231ps", "ymm"));
}

#undef MANIPLE_CHAINS

}  // namespace maniple::bench
