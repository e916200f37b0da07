#include <kernels/cuda/chunks.hpp>
#include <kernels/cuda/experts.hpp>
#include <kernels/cuda/instances.hpp>
#include <kernels/cuda/reductions.hpp>

#include <bit>
#include <climits>
#include <cmath>

namespace maniple::cuda {

using namespace device;

namespace {

constexpr int warps = 8;  // of a block that chooses: one for each of its tokens
constexpr int order_threads = 256;
constexpr int combine_threads = 128;

__device__ float or_lowest(float score) { return std::isnan(score) ? -INFINITY : score; }

struct Scored {
  float score;
  int place;
};
__device__ bool precedes(const Scored& a, const Scored& b) {
  return a.score > b.score || (a.score == b.score && a.place < b.place);
}

// The last of the best `kept` of some scores, none of which is NaN. All lanes of a warp call it and learn the places, best first.
template <typename F>
__device__ Scored last_of_best(int kept, const float* scores, int count, F learn) {
  Scored last{INFINITY, -1};
  DEVICE_ROLLED for (int round = 0; round < kept; ++round) {
    Scored best{-INFINITY, INT_MAX};
    for (int i = lane_index(); i < count; i += 32) {
      const Scored found{scores[i], i};
      if (precedes(last, found) && precedes(found, best)) best = found;
    }
    last = warp_reduce(best, [](const Scored& x, const Scored& y) { return precedes(x, y) ? x : y; });
    learn(last.place);
  }
  return last;
}

// Of one token. All lanes of a warp make it.
class Scores {
 public:
  __device__ Scores(const RouterArguments& r, const float* logits, int experts)
      : router_(r), logits_(logits) {
    for (int e = lane_index(); e < experts; e += 32) largest_ = fmaxf(largest_, or_lowest(logit(e)));
    largest_ = warp_maximum(largest_);
    for (int e = lane_index(); e < experts; e += 32)
      total_ += std::isnan(logit(e)) || std::isinf(largest_) ? NAN : share(logit(e));
    total_ = warp_sum(total_);
  }
  __device__ float operator[](int expert) const {
    const float of = or_lowest(logit(expert));
    return router_.sigmoid ? 1.0f / (1.0f + expf(-of)) : share(of) / total_;
  }
  // What the choice is by.
  __device__ float rank(int expert) const {
    const bool in_order = !router_.sigmoid && !router_.bias && (router_.groups == 1 || !router_.top_two);
    if (in_order || std::isnan(logit(expert))) return or_lowest(logit(expert));
    return or_lowest((*this)[expert] + (router_.bias ? router_.bias[expert] : 0.0f));
  }

 private:
  __device__ float logit(int expert) const {
    return logits_[expert] + (router_.logit_bias ? router_.logit_bias[expert] : 0.0f);
  }
  __device__ float share(float of) const { return of == largest_ ? 1.0f : expf(of - largest_); }

  const RouterArguments& router_;
  const float* logits_;
  float largest_ = -INFINITY, total_ = 0;
};

__device__ void keep_best_groups(const RouterArguments& r, float* ranks, float* scores, int experts) {
  const int size = experts / r.groups;
  synchronize_warp();
  DEVICE_ROLLED for (int g = lane_index(); g < r.groups; g += 32) {
    float first = -INFINITY, second = -INFINITY;
    for (int e = g * size; e < (g + 1) * size; ++e) {
      second = fmaxf(second, fminf(first, ranks[e]));
      first = fmaxf(first, ranks[e]);
    }
    scores[g] = or_lowest(r.top_two ? first + second : first);
  }
  synchronize_warp();
  const Scored last = last_of_best(r.kept_groups, scores, r.groups, [](int) {});
  DEVICE_ROLLED for (int e = lane_index(); e < experts;
                     e += 32) if (precedes(last, {scores[e / size], e / size})) ranks[e] = -INFINITY;
}

// One warp per token writes the choices that this rank has, by ascending expert; the weight of each lies in `places` until its row is known.
// memory: shared, all_experts + groups for each warp.
__device__ void choose(const RouterArguments& r, const RoutingArguments& a, int64_t token, float* memory) {
  float* const ranks = memory + warp_index() * (a.all_experts + r.groups);
  int32_t* const chosen = a.chosen + token * a.most;
  int32_t* const places = a.places + token * a.most;
  int place = 0;
  if (!a.past_lengths || a.past_lengths[token] >= 0) {  // else a padding row
    const Scores scores(r, a.logits + token * a.all_experts, a.all_experts);
    DEVICE_ROLLED for (int e = lane_index(); e < a.all_experts; e += 32) ranks[e] = scores.rank(e);
    if (r.groups > 1) keep_best_groups(r, ranks, ranks + a.all_experts, a.all_experts);
    float sum = 0;
    const Scored last =
        last_of_best(r.per_token, ranks, a.all_experts, [&](int expert) { sum += scores[expert]; });
    const float divisor = r.normalise ? sum + r.epsilon : 1.0f;
    DEVICE_ROLLED for (int base = 0; base < a.all_experts; base += 32) {
      const int e = base + lane_index();
      const bool picked = e < a.all_experts && !precedes(last, {ranks[e], e});
      if (picked) atomic_add(a.counts + e, 1);
      const bool local = picked && a.first <= e && e < a.first + a.experts;
      const uint32_t locals = ballot(local);
      const int mine = place + std::popcount(locals & ((1u << lane_index()) - 1));
      place += std::popcount(locals);
      if (!local) continue;
      chosen[mine] = e - a.first;
      places[mine] = __builtin_bit_cast(int32_t, divisor == 0 ? 0.0f : scores[e] / divisor * r.scale);
    }
  }
  DEVICE_ROLLED for (int i = place + lane_index(); i < a.most; i += 32) chosen[i] = places[i] = -1;
}

// The logits of some tokens for one expert, in an order of sums that does not depend on their number.
template <typename T>
__device__ void multiply_gate(const RoutingArguments& a, int expert, int first, float* memory) {
  const T* const x = static_cast<const T*>(a.product.x) + static_cast<int64_t>(first) * a.product.k;
  const int tokens = a.tokens - first;
  float sums[warps] = {};
  for (int at = chunk_size * thread_index(); at < a.product.k; at += chunk_size * block_threads()) {
    const Chunk weights =
        load_chunk<true>(a.product.gate + static_cast<int64_t>(expert) * a.product.k, at, a.product.k);
    for (int t = 0; t < warps && t < tokens; ++t) {
      const Chunk inputs = load_chunk<true>(x + static_cast<int64_t>(t) * a.product.k, at, a.product.k);
      for (int i = 0; i < chunk_size; ++i) sums[t] += inputs.values[i] * weights.values[i];
    }
  }
  for (int t = 0; t < warps && t < tokens; ++t) {
    const float sum = block_sum(sums[t], memory);
    if (thread_index() == 0) a.logits[static_cast<int64_t>(first + t) * a.all_experts + expert] = sum;
  }
}

// Block (e, i) makes the logits of expert e for the i-th `warps` tokens, and the last block of these tokens chooses; where logits are
// there, they have one block.
template <typename T>
__global__ void __launch_bounds__(32 * warps, 5) choose_experts(RouterArguments r, RoutingArguments a) {
  const int first = block_index().y * warps;
  int& arrived = *reinterpret_cast<int*>(shared_memory());
  float* const memory = reinterpret_cast<float*>(shared_memory()) + 1;
  if (a.product.x) {
    multiply_gate<T>(a, block_index().x, first, memory);
    if (!is_last_to_arrive(a.product.arrivals + block_index().y, a.all_experts, arrived)) return;
    memory_fence();
  }
  if (first + warp_index() < a.tokens) choose(r, a, first + warp_index(), memory);
}

// One block per expert of this rank: it counts the choices of smaller ones, then numbers its own in the order of tokens.
__global__ void __launch_bounds__(order_threads) order_rows(RoutingArguments a) {
  int* const scratch = reinterpret_cast<int*>(shared_memory());
  const int expert = block_index().x;
  const int64_t all = static_cast<int64_t>(a.tokens) * a.most;
  int smaller = 0;
  for (int64_t i = thread_index(); i < all; i += block_threads())
    smaller += 0 <= a.chosen[i] && a.chosen[i] < expert;
  int next = block_sum(smaller, scratch);
  if (thread_index() == 0) a.offsets[expert] = next;
  for (int begin = 0; begin < a.tokens; begin += block_threads()) {
    const int token = begin + thread_index();
    const int64_t first = static_cast<int64_t>(token) * a.most;
    int found = -1, total;
    for (int i = 0; token < a.tokens && i < a.most; ++i)
      if (a.chosen[first + i] == expert) found = i;
    const int row = next + block_sum_before(found >= 0, scratch, total);
    next += total;
    if (found < 0) continue;
    a.row_tokens[row] = token;
    a.row_weights[row] = __builtin_bit_cast(float, a.places[first + found]);
    a.places[first + found] = row;
  }
  if (thread_index() == 0 && expert == a.experts - 1) a.offsets[a.experts] = next;
}

// The sums of slices that wait for their neighbours in the tree, as a stack of this thread in shared memory: at most one for
// each level of the tree.
class WaitingSums {
 public:
  __device__ void add(int slice, float product) {
    if (depth_ > 0 && slice_at(depth_ - 1) == slice) {
      sum_at(depth_ - 1) += product;
      return;
    }
    // Neighbours that are nearer to each other than to the new slice: their paths part at a lower bit.
    while (depth_ > 1 && (slice_at(depth_ - 2) ^ slice_at(depth_ - 1)) < (slice_at(depth_ - 1) ^ slice))
      merge();
    slice_at(depth_) = slice;
    sum_at(depth_++) = product;
  }
  __device__ float total() {
    while (depth_ > 1) merge();
    return depth_ == 0 ? 0.0f : sum_at(0);
  }
  static size_t bytes(int slices) {
    return static_cast<size_t>(std::bit_width(static_cast<unsigned>(slices))) * combine_threads * 8;
  }

 private:
  __device__ void merge() {
    --depth_;
    sum_at(depth_ - 1) += sum_at(depth_);
  }
  __device__ static float& sum_at(int place) {
    return reinterpret_cast<float*>(shared_memory())[2 * place * combine_threads + thread_index()];
  }
  __device__ static int& slice_at(int place) {
    return reinterpret_cast<int*>(shared_memory())[(2 * place + 1) * combine_threads + thread_index()];
  }

  int depth_ = 0;
};

// One thread per column of a token.
__global__ void __launch_bounds__(combine_threads) combine_column(CombineArguments a) {
  const int column = block_index().y * combine_threads + thread_index();
  const int64_t token = block_index().x, first = token * a.most;
  if (column >= a.width) return;
  const int slice_experts = a.experts / a.slices;
  WaitingSums sums;
  for (int i = 0; i < a.most && a.chosen[first + i] >= 0; ++i) {
    const int64_t row = a.places[first + i];
    const int expert = a.chosen[first + i];
    const float bias = a.biases ? a.biases[static_cast<int64_t>(expert) * a.width + column] : 0.0f;
    // Rounded, and never -0.
    sums.add(expert / slice_experts, a.weights[row] * (a.rows[row * a.width + column] + bias) + 0.0f);
  }
  a.out[token * a.width + column] = sums.total();
}

}  // namespace

void route_tokens(Stream stream, const RouterArguments& r, const RoutingArguments& a) {
  const int floats = 1 + warps * (a.all_experts + r.groups);
  with_element_type(a.product.dtype, [&]<typename T>(T) {
    launch(choose_experts<T>, {a.product.x ? a.all_experts : 1, (a.tokens + warps - 1) / warps}, 32 * warps,
           sizeof(float) * static_cast<size_t>(floats), stream, r, a);
  });
  launch(order_rows, {a.experts}, order_threads, order_threads / 32 * sizeof(int), stream, a);
}

void combine_rows(Stream stream, const CombineArguments& a) {
  launch(combine_column, {a.tokens, (a.width + combine_threads - 1) / combine_threads}, combine_threads,
         WaitingSums::bytes(a.slices), stream, a);
}

}  // namespace maniple::cuda
