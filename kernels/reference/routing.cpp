#include <kernels/reference/routing.hpp>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <numeric>

namespace maniple::reference {

float router_logit(float logit) { return logit == logit ? logit : -std::numeric_limits<float>::infinity(); }

void choose_experts(const float* logits, const float* shares, int64_t experts, bool normalise,
                    std::span<Choice> choices) {
  size_t kept = 0;  // of choices, in order
  for (int64_t expert = 0; expert < experts; ++expert) {
    const auto better = [&](const Choice& other) {
      return router_logit(logits[expert]) > router_logit(logits[other.expert]);
    };
    if (kept == choices.size() && !better(choices.back())) continue;
    kept = std::min(kept + 1, choices.size());
    size_t at = kept - 1;
    for (; at > 0 && better(choices[at - 1]); --at) choices[at] = choices[at - 1];
    choices[at].expert = static_cast<int32_t>(expert);
  }
  const bool lost = std::isinf(logits[choices[0].expert]) ||
                    std::any_of(logits, logits + experts, [](float logit) { return std::isnan(logit); });
  const float total =
      lost ? std::numeric_limits<float>::quiet_NaN() : std::accumulate(shares, shares + experts, 0.0f);
  float sum = 0;
  for (Choice& choice : choices) sum += choice.weight = shares[choice.expert] / total;
  if (normalise)
    for (Choice& choice : choices) choice.weight /= sum;
}

void choose_nobody(std::span<Choice> choices) { std::ranges::fill(choices, Choice{.expert = -1}); }

int64_t order_by_expert(std::span<Choice> choices, int64_t tokens, Routing& routing) {
  const auto per_token = static_cast<int64_t>(choices.size()) / std::max<int64_t>(tokens, 1);
  const int64_t width = routing.chosen.shape[1];
  int32_t *chosen = routing.chosen.as<int32_t>(), *places = routing.places.as<int32_t>();
  const std::span offsets(routing.offsets.as<int32_t>(), static_cast<size_t>(routing.experts.size()) + 1);
  std::ranges::fill(offsets, 0);
  std::fill_n(chosen, tokens * width, -1);
  std::fill_n(places, tokens * width, -1);
  for (const Choice& choice : choices) {
    if (choice.expert < 0) continue;
    ++routing.counts.as<int32_t>()[choice.expert];
    if (routing.experts.contains(choice.expert))
      ++offsets[static_cast<size_t>(choice.expert - routing.experts.begin) + 1];
  }
  std::partial_sum(offsets.begin(), offsets.end(), offsets.begin());
  std::vector<int32_t> next(offsets.begin(), offsets.end());
  for (int64_t token = 0; token < tokens; ++token, chosen += width, places += width) {
    const std::span mine =
        choices.subspan(static_cast<size_t>(token * per_token), static_cast<size_t>(per_token));
    std::ranges::sort(mine, {}, &Choice::expert);
    int64_t place = 0;
    for (const Choice& choice : mine) {
      if (!routing.experts.contains(choice.expert)) continue;
      const auto expert = static_cast<int32_t>(choice.expert - routing.experts.begin);
      const int32_t row = next[static_cast<size_t>(expert)]++;
      routing.tokens.as<int32_t>()[row] = static_cast<int32_t>(token);
      routing.weights.as<float>()[row] = choice.weight;
      chosen[place] = expert;
      places[place++] = row;
    }
  }
  return routing.rows();
}

namespace {

constexpr int64_t columns_at_once = 256;
constexpr size_t levels = 33;  // of a tree over slices, and one

// The sums of slices that wait for their neighbours in the tree, as a stack.
class WaitingSums {
 public:
  void add(int64_t slice, float weight, const float* row, int64_t count) {
    if (depth_ > 0 && slices_[depth_ - 1] == slice) {
      float* const sum = sums_[depth_ - 1];
      for (int64_t i = 0; i < count; ++i) sum[i] += weight * row[i] + 0.0f;
      return;
    }
    // Neighbours that are nearer to each other than to the new slice: their paths part at a lower bit.
    while (depth_ > 1 && (slices_[depth_ - 2] ^ slices_[depth_ - 1]) < (slices_[depth_ - 1] ^ slice))
      merge(count);
    slices_[depth_] = slice;
    float* const sum = sums_[depth_++];
    for (int64_t i = 0; i < count; ++i) sum[i] = weight * row[i] + 0.0f;
  }
  void finish(int64_t count, float* out) {
    while (depth_ > 1) merge(count);
    if (depth_ == 0) return std::fill_n(out, count, 0.0f), void();
    std::copy_n(sums_[0], count, out);
    depth_ = 0;
  }

 private:
  void merge(int64_t count) {
    --depth_;
    for (int64_t i = 0; i < count; ++i) sums_[depth_ - 1][i] += sums_[depth_][i];
  }

  size_t depth_ = 0;
  std::array<int64_t, levels> slices_;
  float sums_[levels][columns_at_once];
};

}  // namespace

void combine(ConstTensorView rows, const Routing& routing, int64_t slices, IndexRange tokens,
             TensorView out) {
  const int64_t width = rows.shape[1], most = routing.chosen.shape[1];
  const int64_t slice_experts = routing.experts.size() / slices;
  WaitingSums sums;
  for (int64_t token = tokens.begin; token < tokens.end; ++token) {
    const int32_t* const chosen = routing.chosen.as<int32_t>() + token * most;
    const int32_t* const places = routing.places.as<int32_t>() + token * most;
    for (int64_t column = 0; column < width; column += columns_at_once) {
      const int64_t count = std::min(columns_at_once, width - column);
      for (int64_t i = 0; i < most && chosen[i] >= 0; ++i)
        sums.add(chosen[i] / slice_experts, routing.weights.as<float>()[places[i]],
                 rows.as<float>() + places[i] * width + column, count);
      sums.finish(count, out.as<float>() + token * width + column);
    }
  }
}

}  // namespace maniple::reference
