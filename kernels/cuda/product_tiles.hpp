// A tile of a product on tensor cores that reads a weight as a stream: out^T = weight * x^T for up to 64 rows of x and a few
// columns of out, bf16 and fp16. A weight of codes streams as codes; each warp widens them, a step at a time.
//
// The warps of a block take turns along k, each with a ring of its own, so no barrier stops the stream of copies. 96 KiB
// at most: this fits every architecture, and twice an SM of sm_90. The order in which k is summed does not depend on the size
// of the tile.
#pragma once

#include <kernels/cuda/code_elements.hpp>
#include <kernels/cuda/gate.hpp>
#include <kernels/cuda/instances.hpp>
#include <kernels/cuda/shared_tiles.hpp>
#include <kernels/tensor/dtype.hpp>

#include <algorithm>
#include <bit>

namespace maniple::cuda {

constexpr int product_warps = 4;
constexpr int turn_k = 64;  // of a warp at a time

// Few rows of x have smaller tiles, which leave more blocks.
constexpr int columns_for(int rows) { return rows <= 32 ? 32 : 64; }

// Sizes of a block's shared memory. Columns are neighbours. If the product is gated, half of them are neighbours that gate, the
// others are the columns that they gate. bits: of an element of the weight; fewer than 16 are a code.
template <int rows, int bits>
struct ProductTile {
  static constexpr int columns = columns_for(rows);
  static constexpr int step_k = rows <= 32 ? turn_k : turn_k / 2;
  static constexpr int weight_bytes = columns * step_k * bits / 8;
  static constexpr int stage_bytes = weight_bytes + rows * step_k * 2;         // weight, then x
  static constexpr int widened_bytes = bits == 16 ? 0 : columns * step_k * 2;  // of a step's codes
  // Smaller stages leave room for more of them.
  static constexpr int depth =
      bits == 16 ? 3 : std::min(6, ((rows <= 16 ? 18 << 10 : 24 << 10) - widened_bytes) / stage_bytes);
  static constexpr int warp_bytes = depth * stage_bytes + widened_bytes;  // stages, then this
  static constexpr int pitch = columns + 4;  // of the warps' sums, against bank conflicts
  static constexpr size_t ring_bytes = size_t{product_warps} * warp_bytes;
  static constexpr size_t sum_bytes = size_t{product_warps} * rows * pitch * 4;
  static constexpr size_t bytes = ring_bytes > sum_bytes ? ring_bytes : sum_bytes;
};

// Calls f(Constant<rows>{}) for the smallest tile that holds so many rows, or for the largest that there is.
template <typename F>
void with_tile_rows(int64_t rows, F f) {
  const auto fitting = std::bit_ceil(static_cast<unsigned>(std::clamp<int64_t>(rows, 8, 64)));
  with_constant<8, 16, 32, 64>(static_cast<int>(fitting), f);
}

// Operands says what is multiplied. It has
//   type Element (bf16 or fp16);
//   bits: 16, and const Element* weight() [n, k]; or those of a code, and CodeMatrix codes(), whose rows begin at sixteen bytes;
//   const Element* x(int row); bool gathers(): whether rows of x are not neighbours; int rows() of x;
//   int width(): columns of out; where gated, columns gate those n / 2 after them;
//   a: arguments of the kernel where they lie, so that no register holds them, with n, k, out, out_type, gated and gate.
template <typename Operands, int rows, bool aligned>
class TileProduct {
 public:
  using T = typename Operands::Element;
  static constexpr int bits = Operands::bits;
  using Sizes = ProductTile<rows, bits>;
  static constexpr int columns = Sizes::columns, step_k = Sizes::step_k;
  using Sums = float[columns / 16][rows / 8][4];

  // first: the tile's first column of out.
  __device__ TileProduct(const Operands& operands, int tile)
      : o_(operands),
        side_(operands.a.gated ? columns / 2 : columns),
        first_(tile * side_),
        ring_(device::shared_memory() + device::warp_index() * Sizes::warp_bytes) {}

  // Row of the weight for a column of the tile; n past the end.
  __device__ int column_of(int column) const {
    const int place = first_ + (column < side_ ? column : column - side_);
    return place >= o_.width() ? o_.a.n : column < side_ ? place : place + o_.a.n / 2;
  }

  // Slice `slice` of `slices` equal parts of k, in whole turns. Afterwards sum_of_warps() is the block's sum. before_x(): called by all
  // threads when the first copies of the weight travel, and before x is read.
  template <typename F>
  __device__ void multiply(int slice, int slices, F before_x) {
    Sums sums = {};
    multiply(sums, slice, slices, before_x);
    exchange(sums);
  }
  // column: of the tile.
  __device__ static float sum_of_warps(int row, int column) {
    float sum = 0;
    for (int w = 0; w < product_warps; ++w) sum += warp_sums(w)[row * Sizes::pitch + column];
    return sum;
  }

  // value_of(row, column of the tile) before gating. Into rows of out from the first on: of width(), of type T or fp32.
  template <typename F>
  __device__ void write(int64_t first_row, F value_of) const {
    const int written = o_.a.gated ? columns / 2 : columns;
    for (int i = device::thread_index(); i < o_.rows() * written; i += device::block_threads()) {
      const int row = i / written, column = i % written;
      if (column_of(column) == o_.a.n) continue;
      float value = value_of(row, column);
      if (o_.a.gated) value = cuda::gated(o_.a.gate, value, value_of(row, column + written));
      const int64_t place = (first_row + row) * o_.width() + column_of(column);
      if (o_.a.out_type == DType::fp32)
        static_cast<float*>(o_.a.out)[place] = value;
      else
        static_cast<T*>(o_.a.out)[place] = static_cast<T>(value);
    }
  }

 private:
  // Sixteen rows of the weight, eight of x at a time.
  template <typename F>
  __device__ void multiply(Sums& sums, int slice, int slices, F before_x) {
    constexpr int steps_a_turn = turn_k / step_k;
    const int all = (o_.a.k + turn_k - 1) / turn_k;
    const int begin = all * slice / slices + device::warp_index(), end = all * (slice + 1) / slices;
    const int steps =
        (end - begin + product_warps - 1) / product_warps * steps_a_turn;  // none where negative
    const auto k_of = [&](int step) {
      return (begin + step / steps_a_turn * product_warps) * turn_k + step % steps_a_turn * step_k;
    };
    const auto fetch_weights = [&](int step, std::byte* stage) {
      if (step < steps) fetch_weight(k_of(step), stage);
    };
    const auto fetch_inputs = [&](int step, std::byte* stage) {
      if (step < steps) fetch_x(k_of(step), stage + Sizes::weight_bytes);
      device::commit_copies();
    };
    constexpr int ahead = Sizes::depth - 1, stages_bytes = Sizes::depth * Sizes::stage_bytes;
    for (int step = 0; step < ahead; ++step) fetch_weights(step, ring_ + step * Sizes::stage_bytes);
    before_x();
    for (int step = 0; step < ahead; ++step) fetch_inputs(step, ring_ + step * Sizes::stage_bytes);
    const ColumnGroups groups = groups_of_codes();
    for (int step = 0, at = 0, before = ahead * Sizes::stage_bytes; step < steps; ++step) {
      device::wait_copies<Sizes::depth - 2>();
      device::synchronize_warp();  // and all lanes have read the stage before, which the next copy overwrites
      fetch_weights(step + ahead, ring_ + before);
      fetch_inputs(step + ahead, ring_ + before);
      const std::byte* const stage = ring_ + at;
      const T* const weight = elements_of(stage, k_of(step), groups);
      const T* const x = reinterpret_cast<const T*>(stage + Sizes::weight_bytes);
      for (int k = 0; k < step_k / 32; ++k) multiply_stage(sums, weight, x, k);
      before = at;
      at = at + Sizes::stage_bytes < stages_bytes ? at + Sizes::stage_bytes : 0;
    }
  }

  // Columns 32 k .. 32 k + 31 of the stage.
  __device__ static void multiply_stage(Sums& sums, const T* weight, const T* x, int k) {
    const int lane = device::lane_index();
    uint32_t left[columns / 16][2][4];
    for (int c = 0; c < columns / 16; ++c)
      for (int half = 0; half < 2; ++half)
        device::load_matrices(left[c][half],
                              weight + swizzled<step_k>(16 * c + lane % 16, (4 * k + 2 * half) | lane / 16));
    for (int r = 0; r < rows / 8; ++r) {
      uint32_t right[4];
      device::load_matrices(right, x + swizzled<step_k>(8 * r + lane % 8, (4 * k) | lane / 8));
      for (int c = 0; c < columns / 16; ++c) {
        device::multiply_add<T>(sums[c][r], left[c][0], right[0], right[1]);
        device::multiply_add<T>(sums[c][r], left[c][1], right[2], right[3]);
      }
    }
  }

  static constexpr int chunks_of_step = step_k / 8, together = 32 / chunks_of_step;  // rows of a warp's copy

  // Uses few instructions, as fetch_x: they, not memory, would be the limit.
  __device__ void fetch_weight(int k, std::byte* stage) const {
    if constexpr (bits < 16) {
      fetch_codes(k, stage);
    } else {
      const int row = device::lane_index() / chunks_of_step, chunk = device::lane_index() % chunks_of_step;
      const int64_t begin = k + 8 * chunk, step = static_cast<int64_t>(together) * o_.a.k;
      for (int half = 0; half < columns; half += columns / 2) {
        int place = first_ + row + (o_.a.gated ? 0 : half);
        const int64_t weight_row = place + (o_.a.gated && half > 0 ? o_.a.n / 2 : 0);
        const T* from = o_.weight() + weight_row * o_.a.k + begin;
        for (int i = 0; i < columns / 2; i += together, from += step, place += together)
          fetch_chunk(reinterpret_cast<T*>(stage) + swizzled<step_k>(row + half + i, chunk), from, begin,
                      place < o_.width());
      }
    }
  }
  __device__ void fetch_x(int k, std::byte* stage) const {
    const int row = device::lane_index() / chunks_of_step, chunk = device::lane_index() % chunks_of_step;
    const int64_t begin = k + 8 * chunk;
    const int64_t step = static_cast<int64_t>(together) * o_.a.k;
    const T* from = o_.x(Operands::gathers() ? 0 : row) + begin;
    for (int i = 0; i < rows / together; ++i, from += step) {
      const int to_row = row + i * together;
      const bool valid = to_row < o_.rows();
      if (Operands::gathers()) from = o_.x(valid ? to_row : 0) + begin;
      fetch_chunk(reinterpret_cast<T*>(stage) + swizzled<step_k>(to_row, chunk), from, begin, valid);
    }
  }

  __device__ void fetch_codes(int k, std::byte* stage) const {
    const CodeMatrix m = o_.codes();
    constexpr int codes = 128 / bits, chunks = step_k / codes;
    for (int turn = 0; turn < columns * chunks / 32; ++turn) {
      const int i = 32 * turn + device::lane_index(), row = column_of(i / chunks),
                column = k + i % chunks * codes;
      const uint8_t* const from = m.codes + static_cast<int64_t>(row) * m.row_bytes + column * bits / 8;
      device::copy_async(stage + 16 * i, from, row < o_.a.n && column < m.columns);
    }
  }
  __device__ ColumnGroups groups_of_codes() const {
    if constexpr (bits == 16)
      return {};
    else
      return ColumnGroups(o_.codes());
  }
  // The stage's columns of the weight as elements. Each lane widens what it copied, where all have read the last step's.
  __device__ const T* elements_of(const std::byte* stage, int k, const ColumnGroups& groups) const {
    if constexpr (bits == 16) {
      return reinterpret_cast<const T*>(stage);
    } else {
      const CodeMatrix m = o_.codes();
      T* const widened = reinterpret_cast<T*>(ring_ + Sizes::depth * Sizes::stage_bytes);
      constexpr int codes = 128 / bits, chunks = step_k / codes;
      const int lane = device::lane_index(), place = lane % chunks;
      with_widening<bits, T>(m, groups, k + place * codes, [&](auto widen) {
        for (int i = lane; i < columns * chunks; i += 32) {
          const int tile_row = i / chunks, row = column_of(tile_row);
          widen(row < o_.a.n ? row : 0,
                device::load_vector(reinterpret_cast<const uint32_t*>(stage + 16 * i)),
                [&](int eight, const Eight& elements) {
                  T* const to = widened + swizzled<step_k>(tile_row, place * codes / 8 + eight);
                  device::store_vector(reinterpret_cast<uint32_t*>(to), elements);
                });
        }
      });
      device::synchronize_warp();
      return widened;
    }
  }

  // Eight elements of a row, from its k-th on; zeros where there is no row and behind its end.
  __device__ void fetch_chunk(T* to, const T* from, int64_t k, bool is_row) const {
    const bool valid = is_row && k < o_.a.k;
    if constexpr (aligned) {
      device::copy_async(to, from, valid);
    } else {
      device::Vector<T> vector{};
      for (int i = 0; i < 8; ++i)
        if (valid && k + i < o_.a.k) vector.values[i] = from[i];
      device::store_vector(to, vector);
    }
  }

  __device__ void exchange(const Sums& sums) const {
    device::synchronize_block();  // all warps have read the rings
    float* const mine = warp_sums(device::warp_index());
    for (int c = 0; c < columns / 16; ++c)
      for (int r = 0; r < rows / 8; ++r)
        for (int i = 0; i < 4; ++i)
          mine[(8 * r + 2 * (device::lane_index() % 4) + i % 2) * Sizes::pitch + 16 * c +
               device::lane_index() / 4 + i / 2 * 8] = sums[c][r][i];
    device::synchronize_block();
  }
  __device__ static float* warp_sums(int warp) {
    return reinterpret_cast<float*>(device::shared_memory()) + warp * rows * Sizes::pitch;
  }

  const Operands& o_;
  const int side_;   // columns that are neighbours
  const int first_;  // the first of them
  std::byte* ring_;
};

}  // namespace maniple::cuda
