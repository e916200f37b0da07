#include <kernels/cuda/attention.hpp>
#include <kernels/cuda/chunks.hpp>
#include <kernels/cuda/instances.hpp>
#include <kernels/cuda/reductions.hpp>

#include <functional>

namespace maniple::cuda {

using namespace device;

namespace {

constexpr int threads = 256, warps = threads / 32;
constexpr int few_steps = 2, most_steps = 5;  // of a warp through half a head, 64 pairs at a time
static_assert(64 * most_steps >= max_head_dim / 2);

template <typename T>
struct alignas(2 * sizeof(T)) Pair {
  T values[2];
};
template <typename T>
__device__ void load_two(const T* from, float (&values)[2]) {
  const auto two = *reinterpret_cast<const Pair<T>*>(from);
  for (int i = 0; i < 2; ++i) values[i] = static_cast<float>(two.values[i]);
}
template <typename T>
__device__ void store_two(T* to, const float (&values)[2]) {
  *reinterpret_cast<Pair<T>*>(to) = {{static_cast<T>(values[0]), static_cast<T>(values[1])}};
}

// A lane's share of a head: for each step two neighbours of the first half and their partners of the second.
template <int steps>
struct Head {
  float low[steps][2];
  float high[steps][2];
};

// Calls f(step, index of the first neighbour) for the first `pairs` pairs.
template <int steps, typename F>
__device__ void for_pairs(int pairs, F f) {
  for (int step = 0; step < steps; ++step)
    if (const int i = 64 * step + 2 * lane_index(); i < pairs) f(step, i);
}

template <typename T, int steps>
__device__ Head<steps> load_head(const T* from, int half) {
  Head<steps> head;
  for_pairs<steps>(half, [&](int step, int i) {
    load_two(from + i, head.low[step]);
    load_two(from + half + i, head.high[step]);
  });
  return head;
}

template <int steps>
__device__ float sum_of_squares(const Head<steps>& head, int half) {
  float squares = 0;
  for_pairs<steps>(half, [&](int step, int) {
    for (int j = 0; j < 2; ++j)
      squares += head.low[step][j] * head.low[step][j] + head.high[step][j] * head.high[step][j];
  });
  return warp_sum(squares);
}

// Of all query heads of the model, or of all its key heads.
__device__ float mean_of_all(const RotaryArguments& a, int64_t token, bool is_query) {
  const int begin = is_query ? 0 : a.model_query_heads, end = is_query ? a.model_query_heads : a.model_heads;
  float sum = 0;
  for (int head = begin; head < end; ++head) sum += a.squares[token * a.model_heads + head];
  return sum / static_cast<float>((end - begin) * a.norm_size);
}

template <int steps>
__device__ void normalise(Head<steps>& head, int half, const float* weight, float mean, float epsilon) {
  const float scale = 1.0f / sqrtf(mean + epsilon);
  for_pairs<steps>(half, [&](int step, int i) {
    for (int j = 0; j < 2; ++j) {
      head.low[step][j] *= scale * weight[i + j];
      head.high[step][j] *= scale * weight[half + i + j];
    }
  });
}

template <int steps>
__device__ void rotate(Head<steps>& head, int pairs, const float* cos_sin) {
  for_pairs<steps>(pairs, [&](int step, int i) {
    for (int j = 0; j < 2; ++j) {
      const float cosine = cos_sin[i + j], sine = cos_sin[pairs + i + j];
      const float low = head.low[step][j], high = head.high[step][j];
      head.low[step][j] = low * cosine - high * sine;
      head.high[step][j] = high * cosine + low * sine;
    }
  });
}

// Stores of(value) for each.
template <typename Stored, int steps, typename F>
__device__ void store_head(Stored* to, const Head<steps>& head, int half, F of) {
  for_pairs<steps>(half, [&](int step, int i) {
    store_two(to + i, {of(head.low[step][0]), of(head.low[step][1])});
    store_two(to + half + i, {of(head.high[step][0]), of(head.high[step][1])});
  });
}

template <typename T, int steps>
__global__ void __launch_bounds__(threads) rotary_store_head(PreviousKernel previous, RotaryArguments a) {
  wait_for(previous);
  const int heads = a.query_heads + 2 * a.kv_heads, half = a.head_dim / 2;
  const int64_t item = warp_item(warps);
  const int64_t token = item / heads;
  const int head_index = static_cast<int>(item % heads);
  if (token >= a.tokens) return;
  const bool is_query = head_index < a.query_heads, is_value = head_index >= a.query_heads + a.kv_heads;

  Head<steps> head = load_head<T, steps>(static_cast<const T*>(a.qkv) + item * a.head_dim, half);
  if (!is_value) {
    if (const float* norm = is_query ? a.query_norm : a.key_norm) {
      if (a.squares) norm += (is_query ? head_index : head_index - a.query_heads) * a.head_dim;
      const float mean = a.squares ? mean_of_all(a, token, is_query)
                                   : sum_of_squares(head, half) / static_cast<float>(a.norm_size);
      normalise(head, half, norm, mean, a.epsilon);
    }
    rotate(head, a.rotary_width / 2, a.cos_sin + static_cast<int64_t>(a.positions[token]) * a.rotary_width);
  }
  const int64_t slot = a.slots[token];
  if (!is_query && slot < 0) return;
  const int64_t kv_head = (head_index - a.query_heads) % a.kv_heads;
  const int64_t cell = (slot / a.block_size * a.kv_heads + kv_head) * a.block_size + slot % a.block_size;
  void* const cache = is_value ? a.values : a.keys;
  if (!is_query && a.codes) {
    // What is rounded to a code is what another cache would hold: an activation.
    const float scale = is_value ? a.value_scale : a.key_scale;
    const auto divided = [&](float value) { return static_cast<float>(static_cast<T>(value)) / scale; };
    return store_head(static_cast<Float8*>(cache) + cell * a.head_dim, head, half, divided);
  }
  T* const to = is_query ? static_cast<T*>(a.queries) + (token * a.query_heads + head_index) * a.head_dim
                         : static_cast<T*>(cache) + cell * a.head_dim;
  store_head(to, head, half, std::identity{});
}

template <typename T, int steps>
__global__ void __launch_bounds__(threads)
    head_squares_of(const T* qkv, float* out, int tokens, int query_heads, int kv_heads, int head_dim) {
  const int normed = query_heads + kv_heads;
  const int64_t item = warp_item(warps);
  const int64_t token = item / normed;
  if (token >= tokens) return;
  const int64_t head = token * (normed + kv_heads) + item % normed;
  const float sum = sum_of_squares(load_head<T, steps>(qkv + head * head_dim, head_dim / 2), head_dim / 2);
  if (lane_index() == 0) out[item] = sum;
}

}  // namespace

void head_squares(Stream stream, DType dtype, const void* qkv, float* out, int tokens, int query_heads,
                  int kv_heads, int head_dim) {
  const Grid grid = blocks_of(static_cast<int64_t>(tokens) * (query_heads + kv_heads), warps);
  with_element_type(dtype, [&]<typename T>(T) {
    launch(head_dim <= 128 * few_steps ? head_squares_of<T, few_steps> : head_squares_of<T, most_steps>, grid,
           threads, 0, stream, static_cast<const T*>(qkv), out, tokens, query_heads, kv_heads, head_dim);
  });
}

void rotary_store(Stream stream, const RotaryArguments& a) {
  const Grid grid = blocks_of(static_cast<int64_t>(a.tokens) * (a.query_heads + 2 * a.kv_heads), warps);
  with_element_type(a.dtype, [&]<typename T>(T) {
    launch_early(
        a.head_dim <= 128 * few_steps ? rotary_store_head<T, few_steps> : rotary_store_head<T, most_steps>,
        grid, threads, 0, stream, a);
  });
}

}  // namespace maniple::cuda
