// The tiles of amx_tile.hpp in plain C++, so the AMX kernel runs in the tests of any machine. Sums are in the order of the hardware, which
// also fuses a product with its addition and flushes subnormals: tests compare with other results within bounds, not bit for bit.
#pragma once

#include <kernels/tensor/dtype.hpp>

#include <cstdint>
#include <cstring>

namespace maniple {

class EmulatedTiles {
 public:
  template <int tile>
  void zero() {
    std::memset(tiles_[tile], 0, sizeof tiles_[tile]);
  }
  template <int tile>
  void load(const void* from, int64_t stride) {
    for (int r = 0; r < rows; ++r)
      std::memcpy(tiles_[tile][r], static_cast<const char*>(from) + r * stride, row_bytes);
  }
  template <int tile>
  void store(void* to, int64_t stride) {
    for (int r = 0; r < rows; ++r)
      std::memcpy(static_cast<char*>(to) + r * stride, tiles_[tile][r], row_bytes);
  }
  template <int sum, int a, int b>
  void dot() {
    for (int r = 0; r < rows; ++r)
      for (int c = 0; c < pairs; ++c) {
        float value, chains[2] = {};
        std::memcpy(&value, tiles_[sum][r] + c * 4, 4);
        for (int pair = 0; pair < pairs; ++pair)
          for (int k = 0; k < 2; ++k)
            chains[k] += bf16(tiles_[a][r] + pair * 4 + k * 2) * bf16(tiles_[b][pair] + c * 4 + k * 2);
        value += chains[0] + chains[1];
        std::memcpy(tiles_[sum][r] + c * 4, &value, 4);
      }
  }
  template <int sum, int a, int b>
  void dot_codes() {
    for (int r = 0; r < rows; ++r)
      for (int c = 0; c < pairs; ++c) {
        int32_t value;
        std::memcpy(&value, tiles_[sum][r] + c * 4, 4);
        for (int k = 0; k < row_bytes; ++k)
          value += static_cast<int8_t>(tiles_[a][r][k]) * int32_t{tiles_[b][k / 4][c * 4 + k % 4]};
        std::memcpy(tiles_[sum][r] + c * 4, &value, 4);
      }
  }

 private:
  static constexpr int rows = 16, row_bytes = 64, pairs = 16;

  static float bf16(const unsigned char* from) {
    BFloat16 value;
    std::memcpy(&value, from, 2);
    return static_cast<float>(value);
  }

  alignas(64) unsigned char tiles_[8][rows][row_bytes];
};

}  // namespace maniple
