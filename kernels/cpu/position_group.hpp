// The order of words in pages of the CPU backend, for kernels in plain pointers. CpuPages says where they begin.
#pragma once

namespace maniple::cpu {

// Positions whose keys, and whose values, are contiguous in a block. A word has 32 bits.
inline constexpr int position_group = 16;

}  // namespace maniple::cpu
