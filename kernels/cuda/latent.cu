#include <kernels/cuda/attention.hpp>
#include <kernels/cuda/chunks.hpp>
#include <kernels/cuda/instances.hpp>
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
  const int64_t item = warp_item(warps), token = item / a.heads;
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
  const int64_t item = warp_item(warps), row = item / a.rows;
  const int column = static_cast<int>(item % a.rows), head = static_cast<int>(row % a.heads);
  if (row >= static_cast<int64_t>(a.tokens) * a.heads) return;
  const T* const x = static_cast<const T*>(a.x) + row * a.x_lanes;
  const T* const weight = static_cast<const T*>(a.weights[head]) + static_cast<int64_t>(column) * a.columns;
  float sum = 0;
  for_lanes(a.columns, [&](int i) { sum += static_cast<float>(x[i]) * static_cast<float>(weight[i]); });
  sum = warp_sum(sum);
  if (lane_index() == 0) static_cast<Out*>(a.out)[row * a.out_lanes + column] = static_cast<Out>(sum);
}

}  // namespace

void latent_rows(Stream stream, const LatentArguments& a) {
  with_element_type(a.dtype, [&]<typename T>(T) {
    launch(latent_row<T>, blocks_of(int64_t{a.tokens} * a.heads, warps), threads, 0, stream, a);
  });
}

void multiply_heads(Stream stream, const HeadsArguments& a) {
  const Grid grid = blocks_of(int64_t{a.tokens} * a.heads * a.rows, warps);
  with_element_types(a.x_dtype, a.out_dtype, [&]<typename T, typename Out>(T, Out) {
    launch(multiply_head<T, Out>, grid, threads, 0, stream, a);
  });
}

}  // namespace maniple::cuda
