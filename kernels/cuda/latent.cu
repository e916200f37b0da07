#include <kernels/cuda/element_types.hpp>
#include <kernels/cuda/latent.hpp>
#include <kernels/cuda/reductions.hpp>

namespace maniple::cuda {

using namespace device;

namespace {

constexpr int threads = 256, warps = threads / 32;

// Calls f(i) for the lane's share of `count` elements.
template <typename F>
__device__ void for_lanes(int count, F f) {
  for (int i = lane_index(); i < count; i += 32) f(i);
}

// One warp per (token, head).
template <typename T>
__global__ void __launch_bounds__(threads) latent_row(LatentArguments a) {
  const int64_t item = static_cast<int64_t>(block_index().x) * warps + warp_index(), token = item / a.heads;
  if (token >= a.tokens) return;
  const int64_t row = a.slots ? a.slots[token] : item;
  if (row < 0) return;
  const T* const from = static_cast<const T*>(a.from) + item * a.from_lanes;
  T* const to = static_cast<T*>(a.to) + row * a.key_dim;
  if (a.norm) {
    float squares = 0;
    for_lanes(a.value_dim, [&](int i) {
      const float x = static_cast<float>(from[i]);
      squares += x * x;
    });
    const float scale = 1.0f / sqrtf(warp_sum(squares) / static_cast<float>(a.norm_size) + a.epsilon);
    for_lanes(a.value_dim,
              [&](int i) { to[i] = static_cast<T>(static_cast<float>(from[i]) * (scale * a.norm[i])); });
  }
  const int rotary = a.key_dim - a.value_dim, half = rotary / 2, pairs = a.rotary_width / 2;
  const float* const angles = a.cos_sin + static_cast<int64_t>(a.positions[token]) * a.rotary_width;
  const T* const unrotated = from + a.from_lanes - rotary;
  T* const rotated = to + a.value_dim;
  for_lanes(half, [&](int i) {
    const float low = static_cast<float>(unrotated[i]), high = static_cast<float>(unrotated[half + i]);
    const float cosine = i < pairs ? angles[i] : 1.0f, sine = i < pairs ? angles[pairs + i] : 0.0f;
    rotated[i] = static_cast<T>(low * cosine - high * sine);
    rotated[half + i] = static_cast<T>(high * cosine + low * sine);
  });
}

// One warp per element of the result.
template <typename T, typename Out>
__global__ void __launch_bounds__(threads) multiply_head(HeadsArguments a) {
  const int64_t item = static_cast<int64_t>(block_index().x) * warps + warp_index(), row = item / a.rows;
  const int column = static_cast<int>(item % a.rows), head = static_cast<int>(row % a.heads);
  if (row >= static_cast<int64_t>(a.tokens) * a.heads) return;
  const T* const x = static_cast<const T*>(a.x) + row * a.x_lanes;
  const T* const weight = static_cast<const T*>(a.weights[head]) + static_cast<int64_t>(column) * a.columns;
  float sum = 0;
  for_lanes(a.columns, [&](int i) { sum += static_cast<float>(x[i]) * static_cast<float>(weight[i]); });
  sum = warp_sum(sum);
  if (lane_index() == 0) static_cast<Out*>(a.out)[row * a.out_lanes + column] = static_cast<Out>(sum);
}

// Blocks of one warp per item.
Grid blocks_of(int64_t items) { return {static_cast<int>((items + warps - 1) / warps)}; }

}  // namespace

void latent_rows(Stream stream, const LatentArguments& arguments) {
  with_element_type(arguments.dtype, [&](auto element) {
    launch(latent_row<decltype(element)>, blocks_of(int64_t{arguments.tokens} * arguments.heads), threads, 0,
           stream, arguments);
  });
}

void multiply_heads(Stream stream, const HeadsArguments& arguments) {
  const int64_t items = int64_t{arguments.tokens} * arguments.heads * arguments.rows;
  with_element_type(arguments.x_dtype, [&](auto element) {
    using T = decltype(element);
    launch(arguments.out_dtype == arguments.x_dtype ? multiply_head<T, T> : multiply_head<T, float>,
           blocks_of(items), threads, 0, stream, arguments);
  });
}

}  // namespace maniple::cuda
