#include <kernels/cuda/shared_tiles.hpp>
#include <kernels/cuda/skinny_gemm.hpp>

#include <algorithm>

namespace maniple::cuda {

using namespace device;

namespace {

constexpr int warps = 4;
constexpr int turn_k = 64;  // of a warp at a time
constexpr int depth = 3;
constexpr int least_columns = 32;  // of a block, for any m

// A block multiplies `columns` rows of the weight with all `rows` rows of x. These columns are neighbours. If
// the product is gated, half of them are neighbours that gate, the others are the columns that they gate. The
// warps take turns along k, each with a ring of its own, so no barrier stops the stream of copies. 96 KiB at
// most: this fits every architecture, and twice an SM of sm_90.
template <int rows, int columns>
struct Tile {
  static constexpr int step_k = rows <= 32 ? turn_k : turn_k / 2;
  static constexpr int stage = (rows + columns) * step_k;  // elements: weight, then x
  static constexpr int pitch = columns + 4;                // of the warps' sums, against bank conflicts
  static constexpr size_t ring_bytes = size_t{warps} * depth * stage * 2;
  static constexpr size_t sum_bytes = size_t{warps} * rows * pitch * 4;
  static constexpr size_t shared_bytes = std::max(ring_bytes, sum_bytes) + sizeof(int);
};

// Few columns leave multiprocessors idle: then k is cut into slices, each at least one turn of every warp.
int slices_of(int n, int k) {
  const int tiles = (n + least_columns - 1) / least_columns;
  return std::max(1, std::min(skinny_arrivals / tiles, k / (warps * turn_k)));
}

template <typename T, int rows, int columns, bool aligned>
class SkinnyGemm {
 public:
  using Sizes = Tile<rows, columns>;
  static constexpr int step_k = Sizes::step_k;

  __device__ SkinnyGemm(const SkinnyGemmArguments& a, const SkinnyGemmWorkspace& workspace)
      : a_(a),
        workspace_(workspace),
        side_(a.gated ? columns / 2 : columns),
        first_(block_index().x * side_),
        ring_(reinterpret_cast<T*>(shared_memory()) + warp_index() * depth * Sizes::stage) {}

  __device__ void run() {
    float sums[columns / 16][rows / 8][4] = {};
    multiply(sums);
    exchange(sums);
    const int slices = grid_size().y;
    if (slices == 1) return write_results(sum_of_warps);
    for (int i = thread_index(); i < a_.m * columns; i += block_threads()) {
      const int row = i / columns, column = i % columns;
      if (column_of(column) < a_.n) *partial(block_index().y, row, column) = sum_of_warps(row, column);
    }
    if (!is_last_to_arrive()) return;
    memory_fence();
    write_results([&](int row, int column) {
      float sum = 0;
      for (int slice = 0; slice < slices; ++slice) sum += *partial(slice, row, column);
      return sum;
    });
  }

 private:
  // The product's column for a column of the block; a_.n past the end.
  __device__ int column_of(int column) const {
    const int all = a_.gated ? a_.n / 2 : a_.n, place = first_ + (column < side_ ? column : column - side_);
    return place >= all ? a_.n : column < side_ ? place : place + all;
  }

  // out^T = weight * x^T: sixteen rows of the weight, eight of x at a time.
  __device__ void multiply(float (&sums)[columns / 16][rows / 8][4]) {
    constexpr int steps_a_turn = turn_k / step_k;
    const int all = (a_.k + turn_k - 1) / turn_k, slices = grid_size().y, slice = block_index().y;
    const int begin = all * slice / slices + warp_index(), end = all * (slice + 1) / slices;
    const int steps = (end - begin + warps - 1) / warps * steps_a_turn;  // none where negative
    const auto fetch = [&](int step) {
      const int turn = begin + step / steps_a_turn * warps;
      if (step < steps)
        fetch_stage(turn * turn_k + step % steps_a_turn * step_k, ring_ + step % depth * Sizes::stage);
      commit_copies();
    };
    for (int step = 0; step < depth - 1; ++step) fetch(step);
    for (int step = 0; step < steps; ++step) {
      wait_copies<depth - 2>();
      synchronize_warp();  // and all lanes have read the stage that the next copy overwrites
      fetch(step + depth - 1);
      const T* const weight = ring_ + step % depth * Sizes::stage;
      for (int k = 0; k < step_k / 32; ++k) multiply_stage(sums, weight, weight + columns * step_k, k);
    }
  }

  // Columns 32 k .. 32 k + 31 of the stage.
  __device__ static void multiply_stage(float (&sums)[columns / 16][rows / 8][4], const T* weight, const T* x,
                                        int k) {
    const int lane = lane_index();
    uint32_t left[columns / 16][2][4];
    for (int c = 0; c < columns / 16; ++c)
      for (int half = 0; half < 2; ++half)
        load_matrices(left[c][half],
                      weight + swizzled<step_k>(16 * c + lane % 16, (4 * k + 2 * half) | lane / 16));
    for (int r = 0; r < rows / 8; ++r) {
      uint32_t right[4];
      load_matrices(right, x + swizzled<step_k>(8 * r + lane % 8, (4 * k) | lane / 8));
      for (int c = 0; c < columns / 16; ++c) {
        multiply_add<T>(sums[c][r], left[c][0], right[0], right[1]);
        multiply_add<T>(sums[c][r], left[c][1], right[2], right[3]);
      }
    }
  }

  // Uses few instructions: they, not memory, would be the limit.
  __device__ void fetch_stage(int k, T* stage) const {
    constexpr int chunks = step_k / 8, together = 32 / chunks;  // rows of a warp's copy
    const int row = lane_index() / chunks, chunk = lane_index() % chunks;
    const int64_t begin = k + 8 * chunk, step = static_cast<int64_t>(together) * a_.k;
    const int all = a_.gated ? a_.n / 2 : a_.n;

    const T* from = static_cast<const T*>(a_.weight) + static_cast<int64_t>(first_ + row) * a_.k + begin;
    int place = first_ + row;
    for (int i = 0; i < columns / together; ++i, from += step, place += together) {
      if (a_.gated && i == columns / together / 2) {
        from += static_cast<int64_t>(all - side_) * a_.k;
        place -= side_;
      }
      fetch_chunk(stage + swizzled<step_k>(row + i * together, chunk), from, begin, place < all);
    }
    from = static_cast<const T*>(a_.x) + static_cast<int64_t>(row) * a_.k + begin;
    for (int i = 0; i < rows / together; ++i, from += step)
      fetch_chunk(stage + columns * step_k + swizzled<step_k>(row + i * together, chunk), from, begin,
                  row + i * together < a_.m);
  }
  // Eight elements of a row, from its k-th on; zeros where there is no row and from a_.k on.
  __device__ void fetch_chunk(T* to, const T* from, int64_t k, bool is_row) const {
    const bool valid = is_row && k < a_.k;
    if constexpr (aligned) {
      copy_async(to, from, valid);
    } else {
      Vector<T> vector{};
      for (int i = 0; i < 8; ++i)
        if (valid && k + i < a_.k) vector.values[i] = from[i];
      store_vector(to, vector);
    }
  }

  __device__ void exchange(const float (&sums)[columns / 16][rows / 8][4]) const {
    synchronize_block();  // all warps have read the rings
    float* const mine = warp_sums(warp_index());
    for (int c = 0; c < columns / 16; ++c)
      for (int r = 0; r < rows / 8; ++r)
        for (int i = 0; i < 4; ++i)
          mine[(8 * r + 2 * (lane_index() % 4) + i % 2) * Sizes::pitch + 16 * c + lane_index() / 4 +
               i / 2 * 8] = sums[c][r][i];
    synchronize_block();
  }
  __device__ static float* warp_sums(int warp) {
    return reinterpret_cast<float*>(shared_memory()) + warp * rows * Sizes::pitch;
  }
  // column: of the block.
  __device__ static float sum_of_warps(int row, int column) {
    float sum = 0;
    for (int w = 0; w < warps; ++w) sum += warp_sums(w)[row * Sizes::pitch + column];
    return sum;
  }
  __device__ float* partial(int slice, int row, int column) const {
    return workspace_.partials + (static_cast<int64_t>(slice) * a_.m + row) * a_.n + column_of(column);
  }

  // Calls sum_of(row, column of the block).
  template <typename F>
  __device__ void write_results(F sum_of) const {
    const int written = a_.gated ? columns / 2 : columns, width = a_.gated ? a_.n / 2 : a_.n;
    const auto value_of = [&](int row, int column) {
      return sum_of(row, column) + (a_.bias ? a_.bias[column_of(column)] : 0);
    };
    for (int i = thread_index(); i < a_.m * written; i += block_threads()) {
      const int row = i / written, column = i % written;
      if (column_of(column) == a_.n) continue;
      float value = value_of(row, column);
      if (a_.gated) value = value / (1.0f + expf(-value)) * value_of(row, column + written);
      const int64_t place = static_cast<int64_t>(row) * width + column_of(column);
      if (a_.out_type == DType::fp32)
        static_cast<float*>(a_.out)[place] = value;
      else
        static_cast<T*>(a_.out)[place] = static_cast<T>(value);
    }
  }

  // Whether this block is the last of the slices of these columns. The counter returns to zero.
  __device__ bool is_last_to_arrive() const {
    int& before = *reinterpret_cast<int*>(shared_memory() + Sizes::shared_bytes - sizeof(int));
    memory_fence();
    synchronize_block();
    if (thread_index() == 0) {
      int32_t* const arrivals = workspace_.arrivals + block_index().x;
      before = atomic_add(arrivals, 1);
      if (before == grid_size().y - 1) *arrivals = 0;
    }
    synchronize_block();
    return before == grid_size().y - 1;
  }

  const SkinnyGemmArguments& a_;
  const SkinnyGemmWorkspace& workspace_;
  const int side_;   // columns that are neighbours
  const int first_;  // the first of them, in the product or its half
  T* ring_;
};

template <typename T, int rows, int columns, bool aligned>
__global__ void __launch_bounds__(32 * warps)
    skinny_product(SkinnyGemmArguments arguments, SkinnyGemmWorkspace workspace) {
  SkinnyGemm<T, rows, columns, aligned>(arguments, workspace).run();
}

template <typename T, int rows>
void launch_skinny(Stream stream, const SkinnyGemmArguments& a, const SkinnyGemmWorkspace& workspace) {
  constexpr int columns = rows <= 32 ? least_columns : 2 * least_columns;
  const bool aligned =
      a.k % 8 == 0 && (reinterpret_cast<uintptr_t>(a.x) | reinterpret_cast<uintptr_t>(a.weight)) % 16 == 0;
  launch(aligned ? skinny_product<T, rows, columns, true> : skinny_product<T, rows, columns, false>,
         {(a.n + columns - 1) / columns, slices_of(a.n, a.k)}, 32 * warps, Tile<rows, columns>::shared_bytes,
         stream, a, workspace);
}

template <typename T>
void launch_skinny(Stream stream, const SkinnyGemmArguments& a, const SkinnyGemmWorkspace& workspace) {
  if (a.m <= 8) return launch_skinny<T, 8>(stream, a, workspace);
  if (a.m <= 16) return launch_skinny<T, 16>(stream, a, workspace);
  if (a.m <= 32) return launch_skinny<T, 32>(stream, a, workspace);
  launch_skinny<T, 64>(stream, a, workspace);
}

}  // namespace

bool skinny_gemm(Stream stream, const SkinnyGemmArguments& arguments, const SkinnyGemmWorkspace& workspace) {
  if (arguments.m > max_skinny_rows || (arguments.dtype != DType::bf16 && arguments.dtype != DType::fp16))
    return false;
  if (arguments.dtype == DType::bf16)
    launch_skinny<bf16>(stream, arguments, workspace);
  else
    launch_skinny<fp16>(stream, arguments, workspace);
  return true;
}

}  // namespace maniple::cuda
