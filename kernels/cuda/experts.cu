#include <kernels/cuda/experts.hpp>
#include <kernels/cuda/reductions.hpp>

#include <bit>
#include <climits>
#include <cmath>

namespace maniple::cuda {

using namespace device;

namespace {

constexpr int warps = 8;  // of a block that chooses, one for each of its tokens
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
constexpr Scored before_all{INFINITY, -1};

// The best of `count` scores after `last`, of which none is NaN. All lanes of a warp call it.
__device__ Scored best_after(const Scored& last, const float* scores, int count) {
  Scored best{-INFINITY, INT_MAX};
  for (int i = lane_index(); i < count; i += 32) {
    const Scored found{scores[i], i};
    if (precedes(last, found) && precedes(found, best)) best = found;
  }
  return warp_reduce(best, [](const Scored& x, const Scored& y) { return precedes(x, y) ? x : y; });
}

// What the lanes of a warp know of their token, in shared memory.
struct Scratch {
  float* ranks;   // the c of each expert
  float* groups;  // their scores
  float* weights;
  int* experts;  // the choices, best first

  __device__ Scratch(const RoutingArguments& a, float* memory)
      : ranks(memory + warp_index() * floats(a)),
        groups(ranks + a.all_experts),
        weights(groups + a.groups),
        experts(reinterpret_cast<int*>(weights + a.per_token)) {}
  static constexpr int floats(const RoutingArguments& a) {
    return a.all_experts + a.groups + 2 * a.per_token;
  }
};

__device__ void keep_best_groups(const RoutingArguments& a, const Scratch& token) {
  const int size = a.all_experts / a.groups;
  synchronize_warp();
  for (int g = lane_index(); g < a.groups; g += 32) {
    float first = -INFINITY, second = -INFINITY;
    for (int e = g * size; e < (g + 1) * size; ++e) {
      second = fmaxf(second, fminf(first, token.ranks[e]));
      first = fmaxf(first, token.ranks[e]);
    }
    token.groups[g] = or_lowest(a.top_two ? first + second : first);
  }
  synchronize_warp();
  Scored last = before_all;
  for (int kept = 0; kept < a.kept_groups; ++kept) last = best_after(last, token.groups, a.groups);
  for (int e = lane_index(); e < a.all_experts; e += 32)
    if (precedes(last, {token.groups[e / size], e / size})) token.ranks[e] = -INFINITY;
}

// One warp per token: in each round it finds the best expert after the one before. Returns what divides the weights.
__device__ float choose(const RoutingArguments& a, const float* logits, const Scratch& token) {
  const int lane = lane_index();
  const auto logit_of = [&](int e) { return logits[e] + (a.logit_bias ? a.logit_bias[e] : 0.0f); };
  float largest = -INFINITY, total = 0;
  for (int e = lane; e < a.all_experts; e += 32) largest = fmaxf(largest, or_lowest(logit_of(e)));
  largest = warp_maximum(largest);
  const auto share = [&](float logit) { return logit == largest ? 1.0f : expf(logit - largest); };
  for (int e = lane; e < a.all_experts; e += 32)
    total += std::isnan(logit_of(e)) || std::isinf(largest) ? NAN : share(logit_of(e));
  total = warp_sum(total);
  const auto score_of = [&](float logit) {
    return a.sigmoid ? 1.0f / (1.0f + expf(-logit)) : share(logit) / total;
  };
  for (int e = lane; e < a.all_experts; e += 32) {
    const float logit = logit_of(e);
    token.ranks[e] =
        or_lowest(a.by_logits || std::isnan(logit) ? logit : score_of(logit) + (a.bias ? a.bias[e] : 0.0f));
  }
  if (a.groups > 1) keep_best_groups(a, token);

  float sum = 0;
  Scored last = before_all;
  for (int pick = 0; pick < a.per_token; ++pick) {
    last = best_after(last, token.ranks, a.all_experts);
    const float weight = score_of(or_lowest(logit_of(last.place)));
    sum += weight;
    if (lane == 0) {
      token.experts[pick] = last.place;
      token.weights[pick] = weight;
    }
  }
  return a.normalise ? sum + a.epsilon : 1.0f;
}

// Writes the choices that this rank has, by ascending expert; the weight of each lies in `places` until its row is known.
// A warp for a token. memory: shared, of all warps.
__device__ void choose_for(const RoutingArguments& a, int64_t number, float* memory) {
  int32_t* const chosen = a.chosen + number * a.most;
  int32_t* const places = a.places + number * a.most;
  for (int i = lane_index(); i < a.most; i += 32) chosen[i] = places[i] = -1;
  if (a.past_lengths && a.past_lengths[number] < 0) return;  // a padding row

  const Scratch token(a, memory);
  const float divisor = choose(a, a.logits + number * a.all_experts, token);
  synchronize_warp();
  const auto is_local = [&](int expert) { return a.first <= expert && expert < a.first + a.experts; };
  for (int pick = lane_index(); pick < a.per_token; pick += 32) {
    const int expert = token.experts[pick];
    atomic_add(a.counts + expert, 1);
    if (!is_local(expert)) continue;
    int place = 0;
    for (int i = 0; i < a.per_token; ++i) place += is_local(token.experts[i]) && token.experts[i] < expert;
    const float weight = divisor == 0 ? 0.0f : token.weights[pick] / divisor * a.scale;
    chosen[place] = expert - a.first;
    places[place] = __builtin_bit_cast(int32_t, weight);
  }
}

__global__ void __launch_bounds__(32 * warps) choose_experts(RoutingArguments a) {
  const int token = block_index().x * warps + warp_index();
  if (token < a.tokens) choose_for(a, token, reinterpret_cast<float*>(shared_memory()));
}

// One block per expert of this rank: it counts the choices of smaller ones, then numbers its own in the order of tokens.
__global__ void __launch_bounds__(order_threads) order_rows(RoutingArguments a) {
  int* const scratch = reinterpret_cast<int*>(shared_memory());
  const int expert = block_index().x;
  const int64_t all = static_cast<int64_t>(a.tokens) * a.most;
  int smaller = 0;
  for (int64_t i = thread_index(); i < all; i += block_threads())
    smaller += 0 <= a.chosen[i] && a.chosen[i] < expert;
  int next = block_reduce(smaller, scratch, [](int x, int y) { return x + y; });
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
    // Rounded, and never -0.
    sums.add(a.chosen[first + i] / slice_experts, a.weights[row] * a.rows[row * a.width + column] + 0.0f);
  }
  a.out[token * a.width + column] = sums.total();
}

}  // namespace

void route_tokens(Stream stream, const RoutingArguments& a) {
  const size_t scratch = sizeof(float) * warps * static_cast<size_t>(Scratch::floats(a));
  launch(choose_experts, {(a.tokens + warps - 1) / warps}, 32 * warps, scratch, stream, a);
  launch(order_rows, {a.experts}, order_threads, order_threads / 32 * sizeof(int), stream, a);
}

void combine_rows(Stream stream, const CombineArguments& a) {
  launch(combine_column, {a.tokens, (a.width + combine_threads - 1) / combine_threads}, combine_threads,
         WaitingSums::bytes(a.slices), stream, a);
}

}  // namespace maniple::cuda
