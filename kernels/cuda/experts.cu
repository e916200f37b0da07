#include <kernels/cuda/experts.hpp>
#include <kernels/cuda/reductions.hpp>

#include <bit>
#include <climits>
#include <cmath>

namespace maniple::cuda {

using namespace device;

namespace {

constexpr int warps = 4;
constexpr int order_threads = 256;
constexpr int combine_threads = 128;

// NaN counts as -inf in the choice; the weights are then NaN, as for a largest logit that is infinite. -0 becomes +0, because equal logits are ordered by id.
__device__ float router_logit(float logit) { return std::isnan(logit) ? -INFINITY : logit + 0.0f; }

struct Scored {
  float logit;
  int expert;
};
__device__ bool precedes(const Scored& a, const Scored& b) {
  return a.logit > b.logit || (a.logit == b.logit && a.expert < b.expert);
}

// What the lanes of a warp know of a token's choices, best first, in shared memory.
struct Picks {
  int* experts;
  float* weights;
};

// One warp per token: in each round it finds the best expert after the one before. A round reads all logits again, from L1.
__device__ float choose(const RoutingArguments& a, const float* logits, const Picks& picks) {
  const int lane = lane_index();
  float largest = -INFINITY, total = 0;
  for (int e = lane; e < a.all_experts; e += 32) largest = fmaxf(largest, router_logit(logits[e]));
  largest = warp_maximum(largest);
  const auto share = [&](float logit) { return logit == largest ? 1.0f : expf(logit - largest); };
  for (int e = lane; e < a.all_experts; e += 32)
    total += std::isnan(logits[e]) || std::isinf(largest) ? NAN : share(router_logit(logits[e]));
  total = warp_sum(total);

  float sum = 0;
  Scored last{INFINITY, -1};
  for (int pick = 0; pick < a.per_token; ++pick) {
    Scored best{-INFINITY, INT_MAX};
    for (int e = lane; e < a.all_experts; e += 32) {
      const Scored found{router_logit(logits[e]), e};
      if (precedes(last, found) && precedes(found, best)) best = found;
    }
    last = warp_reduce(best, [](const Scored& x, const Scored& y) { return precedes(x, y) ? x : y; });
    const float weight = share(last.logit) / total;
    sum += weight;
    if (lane == 0) {
      picks.experts[pick] = last.expert;
      picks.weights[pick] = weight;
    }
  }
  return sum;
}

// Writes the choices that this rank has, by ascending expert; the weight of each lies in `places` until its row is known.
__global__ void __launch_bounds__(32 * warps) choose_experts(RoutingArguments a) {
  const int token = block_index().x * warps + warp_index(), lane = lane_index();
  if (token >= a.tokens) return;
  int32_t *const chosen = a.chosen + static_cast<int64_t>(token) * a.most, *const places =
                                                                               a.places +
                                                                               static_cast<int64_t>(token) *
                                                                                   a.most;
  for (int i = lane; i < a.most; i += 32) chosen[i] = places[i] = -1;
  if (a.past_lengths && a.past_lengths[token] < 0) return;  // a padding row

  int* const experts = reinterpret_cast<int*>(shared_memory()) + 2 * warp_index() * a.per_token;
  const Picks picks{experts, reinterpret_cast<float*>(experts + a.per_token)};
  const float sum = choose(a, a.logits + static_cast<int64_t>(token) * a.all_experts, picks);
  synchronize_warp();
  const auto is_local = [&](int expert) { return a.first <= expert && expert < a.first + a.experts; };
  for (int pick = lane; pick < a.per_token; pick += 32) {
    const int expert = picks.experts[pick];
    atomic_add(a.counts + expert, 1);
    if (!is_local(expert)) continue;
    int place = 0;
    for (int i = 0; i < a.per_token; ++i) place += is_local(picks.experts[i]) && picks.experts[i] < expert;
    const float weight = a.normalise ? picks.weights[pick] / sum : picks.weights[pick];
    chosen[place] = expert - a.first;
    places[place] = __builtin_bit_cast(int32_t, weight);
  }
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
  const size_t picks = 8 * static_cast<size_t>(a.per_token);
  launch(choose_experts, {(a.tokens + warps - 1) / warps}, 32 * warps, warps * picks, stream, a);
  launch(order_rows, {a.experts}, order_threads, order_threads / 32 * sizeof(int), stream, a);
}

void combine_rows(Stream stream, const CombineArguments& a) {
  launch(combine_column, {a.tokens, (a.width + combine_threads - 1) / combine_threads}, combine_threads,
         WaitingSums::bytes(a.slices), stream, a);
}

}  // namespace maniple::cuda
