// The ceiling of a product of many rows: dot products of registers alone.
#pragma once

#include <bench/bandwidth.hpp>

#include <kernels/backend.hpp>

namespace maniple::bench {

// GFLOP/s of all threads with 512-bit dot products of bf16 pairs, or of four int8. The processor must have them.
inline double dot_peak(ThreadPool& pool, bool int8) {
  constexpr int64_t rounds = 1 << 20, chains = 12, lanes = 16;
  const int64_t items = 8 * pool.size();
  const auto start = Clock::now();
  pool.parallel_ranges(items, 1, [&]([[maybe_unused]] IndexRange range) {
#ifdef __x86_64__
    asm volatile("vpxord %zmm14, %zmm14, %zmm14\nvpxord %zmm15, %zmm15, %zmm15");
    for (int64_t round = 0; round < range.size() * rounds; ++round)
      if (int8)
        asm volatile(".irp sum,0,1,2,3,4,5,6,7,8,9,10,11\nvpdpbusd %zmm14, %zmm15, %zmm\\sum\n.endr");
      else
        asm volatile(".irp sum,0,1,2,3,4,5,6,7,8,9,10,11\nvdpbf16ps %zmm14, %zmm15, %zmm\\sum\n.endr");
    asm volatile("vzeroall" ::
                     : "xmm0", "xmm1", "xmm2", "xmm3", "xmm4", "xmm5", "xmm6", "xmm7", "xmm8", "xmm9",
                       "xmm10", "xmm11", "xmm12", "xmm13", "xmm14", "xmm15");
#endif
  });
  const int64_t operations = items * rounds * chains * lanes * (int8 ? 8 : 4);
  return static_cast<double>(operations) / seconds_since(start) * 1e-9;
}

// The same for the products of a path in bf16: fp32 FMA where it has no dot products.
inline double product_peak(ThreadPool& pool, CpuPath path) {
  if (path == CpuPath::amx || path == CpuPath::avx512_bf16) return dot_peak(pool, false);
  constexpr int64_t rounds = 1 << 20, chains = 12;
  const int64_t items = 8 * pool.size(), lanes = path == CpuPath::avx512 ? 16 : 8;
  const auto start = Clock::now();
  pool.parallel_ranges(items, 1, [&]([[maybe_unused]] IndexRange range) {
#ifdef __x86_64__
    asm volatile("vxorps %ymm14, %ymm14, %ymm14\nvxorps %ymm15, %ymm15, %ymm15");
    for (int64_t round = 0; round < range.size() * rounds; ++round)
      if (path == CpuPath::avx512)
        asm volatile(".irp sum,0,1,2,3,4,5,6,7,8,9,10,11\nvfmadd231ps %zmm14, %zmm15, %zmm\\sum\n.endr");
      else
        asm volatile(".irp sum,0,1,2,3,4,5,6,7,8,9,10,11\nvfmadd231ps %ymm14, %ymm15, %ymm\\sum\n.endr");
    asm volatile("vzeroall" ::
                     : "xmm0", "xmm1", "xmm2", "xmm3", "xmm4", "xmm5", "xmm6", "xmm7", "xmm8", "xmm9",
                       "xmm10", "xmm11", "xmm12", "xmm13", "xmm14", "xmm15");
#endif
  });
  return static_cast<double>(items * rounds * chains * lanes * 2) / seconds_since(start) * 1e-9;
}

}  // namespace maniple::bench
