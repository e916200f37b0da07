#include <kernels/cuda/attention.hpp>
#include <kernels/cuda/attention_places.hpp>
#include <kernels/cuda/chunks.hpp>
#include <kernels/cuda/instances.hpp>
#include <kernels/cuda/reductions.hpp>

#include <cmath>

namespace maniple::cuda {

using namespace device;

namespace {

constexpr int warps = 4;

// Shared memory of one warp.
template <int max_dims>
struct Scratch {
  float query[max_dims];
  float weights[32];
};

// The sequence that a token belongs to: the last one that starts at or before it.
__device__ int sequence_of(const int32_t* starts, int sequences, int token) {
  return first_where(0, sequences, [&](int s) { return starts[s] > token; }) - 1;
}

// One warp per (token, query head). It takes the context 32 positions at a time:
// each lane scores one position, then adds up the values of its dimensions
// (Milakov, Gimelshein: Online normalizer calculation for softmax, 2018).
template <typename T, typename Kept, int max_dims>
__global__ void __launch_bounds__(32 * warps, 4) attend(AttentionArguments a, UntunedArguments more) {
  const int64_t item = warp_item(warps);
  const int token = static_cast<int>(item / a.query_heads), head = static_cast<int>(item % a.query_heads);
  if (token >= a.tokens) return;
  const int lane = lane_index(), sequence = sequence_of(a.query_starts, a.sequences, token);
  const int length = a.past_lengths[sequence] + token - a.query_starts[sequence] + 1;
  const int64_t row = query_row(a, token, head);
  const int left = more.window > 0 && length > more.window ? length - more.window : 0;
  const int32_t* const table = block_table(a, sequence);
  const int kv_head = head / (a.query_heads / a.kv_heads);
  const auto cache_row = [&](int position) {
    const int64_t block = table[position / a.block_size];
    return (block * a.kv_heads + kv_head) * a.block_size + position % a.block_size;
  };
  auto& scratch = reinterpret_cast<Scratch<max_dims>*>(shared_memory())[warp_index()];
  for (int i = lane; i < a.head_dim; i += 32)
    scratch.query[i] = static_cast<float>(static_cast<const T*>(a.queries)[row * a.head_dim + i]) * a.scale;

  float maximum = -INFINITY, total = 0, sums[max_dims / 32] = {};
  for (int begin = left / 32 * 32; begin < length; begin += 32) {
    if (begin / split_size % a.owners != a.owner) continue;
    synchronize_warp();  // the query is written, the weights of the last round are read
    float score = -INFINITY;
    if (left <= begin + lane && begin + lane < length) {
      const Kept* const key = static_cast<const Kept*>(a.keys) + cache_row(begin + lane) * a.head_dim;
      score = 0;
      for (int i = 0; i < a.head_dim; ++i) score += scratch.query[i] * static_cast<float>(key[i]);
    }
    const float larger = fmaxf(maximum, warp_maximum(score)), shrink = expf(maximum - larger);
    const float weight = expf(score - larger);
    maximum = larger;
    total = total * shrink + weight;
    scratch.weights[lane] = weight;
    synchronize_warp();
    for (float& sum : sums) sum *= shrink;
    for (int p = begin < left ? left : begin; p < begin + 32 && p < length; ++p) {
      const Kept* const value = static_cast<const Kept*>(a.values) + cache_row(p) * more.value_stride;
      for (int d = 0; d < max_dims / 32; ++d)
        if (lane + 32 * d < more.value_dim)
          sums[d] += scratch.weights[p - begin] * static_cast<float>(value[lane + 32 * d]);
    }
  }
  total = warp_sum(total);
  if (more.sinks && a.owners == 1) {  // a score without a value
    const float larger = fmaxf(maximum, more.sinks[head]), shrink = expf(maximum - larger);
    total = total * shrink + expf(more.sinks[head] - larger);
    for (float& sum : sums) sum *= shrink;
  }
  float* const partial = a.owners > 1 ? static_cast<float*>(a.out) + row * (more.value_dim + 2) : nullptr;
  for (int d = 0; d < max_dims / 32; ++d) {
    const int place = lane + 32 * d;
    if (place >= more.value_dim) continue;
    const float sum = sums[d] * a.value_scale;
    if (partial)
      partial[place] = sum;
    else
      static_cast<T*>(a.out)[row * more.value_dim + place] = static_cast<T>(sum / total);
  }
  if (!partial || lane > 0) return;
  partial[more.value_dim] = maximum;
  partial[more.value_dim + 1] = total;
}

// One warp per row. A partial without weight saw nothing: its maximum may be -inf.
template <typename T>
__global__ void __launch_bounds__(32 * warps) merge_row(const float* partials, int owners, int rows,
                                                        int head_dim, const float* sinks, int heads, T* out) {
  const int64_t row = warp_item(warps), width = head_dim + 2;
  if (row >= rows) return;
  const auto of = [&](int owner) { return partials + (owner * static_cast<int64_t>(rows) + row) * width; };
  float maximum = -INFINITY, total = 0;
  for (int owner = 0; owner < owners; ++owner)
    if (of(owner)[head_dim + 1] != 0) maximum = fmaxf(maximum, of(owner)[head_dim]);
  if (sinks) {
    maximum = fmaxf(maximum, sinks[row % heads]);
    total = expf(sinks[row % heads] - maximum);
  }
  const auto factor = [&](int owner) {
    return of(owner)[head_dim + 1] != 0 ? expf(of(owner)[head_dim] - maximum) : 0.0f;
  };
  for (int owner = 0; owner < owners; ++owner) total += factor(owner) * of(owner)[head_dim + 1];
  for (int place = lane_index(); place < head_dim; place += 32) {
    float sum = 0;
    for (int owner = 0; owner < owners; ++owner) sum += factor(owner) * of(owner)[place];
    out[row * head_dim + place] = static_cast<T>(sum / total);
  }
}

}  // namespace

void attention_untuned(Stream stream, const AttentionArguments& a, UntunedArguments more) {
  const Grid grid = blocks_of(static_cast<int64_t>(a.tokens) * a.query_heads, warps);
  with_constant<256, max_head_dim>(a.head_dim <= 256 ? 256 : max_head_dim, [&](auto dims) {
    with_element_type(a.dtype, [&]<typename T>(T) {
      launch(a.codes ? attend<T, Float8, dims()> : attend<T, T, dims()>, grid, 32 * warps,
             warps * sizeof(Scratch<dims()>), stream, a, more);
    });
  });
}

void merge_partials(Stream stream, DType dtype, const float* partials, int owners, int rows, int head_dim,
                    const float* sinks, int heads, void* out) {
  with_element_type(dtype, [&]<typename T>(T) {
    launch(merge_row<T>, blocks_of(rows, warps), 32 * warps, 0, stream, partials, owners, rows, head_dim,
           sinks, heads, static_cast<T*>(out));
  });
}

}  // namespace maniple::cuda
