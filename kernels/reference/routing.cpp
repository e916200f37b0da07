#include <kernels/reference/routing.hpp>

#include <algorithm>
#include <array>
#include <cmath>
#include <functional>
#include <limits>
#include <numeric>

namespace maniple::reference {

namespace {

constexpr float infinity = std::numeric_limits<float>::infinity();

float or_lowest(float score) { return score == score ? score : -infinity; }

// The best places of scores, by (score descending, place ascending). No score is NaN.
void best(std::span<const float> scores, std::span<Choice> choices) {
  size_t kept = 0;  // of choices, in order
  for (size_t place = 0; place < scores.size(); ++place) {
    const auto better = [&](const Choice& other) {
      return scores[place] > scores[static_cast<size_t>(other.expert)];
    };
    if (kept == choices.size() && !better(choices.back())) continue;
    kept = std::min(kept + 1, choices.size());
    size_t at = kept - 1;
    for (; at > 0 && better(choices[at - 1]); --at) choices[at] = choices[at - 1];
    choices[at].expert = static_cast<int32_t>(place);
  }
}

float group_score(GroupScore kind, std::span<const float> group) {
  float first = -infinity, second = -infinity;
  for (const float score : group) {
    second = std::max(second, std::min(first, score));
    first = std::max(first, score);
  }
  return kind == GroupScore::max ? first : or_lowest(first + second);
}

void keep_best_groups(const Router& router, std::span<float> scores) {
  const auto groups = static_cast<size_t>(router.groups), size = scores.size() / groups;
  std::vector<float> of_groups;
  for (size_t g = 0; g < groups; ++g)
    of_groups.push_back(group_score(router.group_score, scores.subspan(g * size, size)));
  std::vector<Choice> kept(static_cast<size_t>(router.kept_groups));
  best(of_groups, kept);
  for (size_t g = 0; g < groups; ++g)
    if (std::ranges::find(kept, static_cast<int32_t>(g), &Choice::expert) == kept.end())
      std::ranges::fill(scores.subspan(g * size, size), -infinity);
}

}  // namespace

void prepare_choice(const Router& router, const float* logits, RouterRow row) {
  std::copy_n(logits, row.logits.size(), row.logits.begin());
  if (!router.logit_bias.empty())
    std::ranges::transform(row.logits, std::span(router.logit_bias.as<float>(), row.logits.size()),
                           row.logits.begin(), std::plus());
  float largest = -infinity;
  for (const float logit : row.logits) largest = std::max(largest, or_lowest(logit));
  const bool sigmoid = router.scoring == RouterScoring::sigmoid;
  for (size_t e = 0; e < row.logits.size(); ++e) {
    const float logit = or_lowest(row.logits[e]);
    row.powers[e] = sigmoid ? -std::abs(logit) : logit == largest ? 0.0f : logit - largest;
  }
}

void choose_experts(const Router& router, RouterRow row, std::span<Choice> choices) {
  const auto [logits, scores] = row;
  if (router.scoring == RouterScoring::sigmoid) {
    for (size_t e = 0; e < scores.size(); ++e)
      scores[e] = (logits[e] >= 0 ? 1.0f : scores[e]) / (1.0f + scores[e]);
  } else {
    const bool lost = std::isinf(std::ranges::max(logits, {}, or_lowest)) ||
                      std::ranges::any_of(logits, [](float logit) { return std::isnan(logit); });
    const float total =
        lost ? std::numeric_limits<float>::quiet_NaN() : std::accumulate(scores.begin(), scores.end(), 0.0f);
    for (float& score : scores) score /= total;
  }
  if (!router.chooses_by_logits())
    for (size_t e = 0; e < logits.size(); ++e)
      if (!std::isnan(logits[e]))
        logits[e] = scores[e] + (router.bias.empty() ? 0.0f : router.bias.as<float>()[e]);
  std::ranges::transform(logits, logits.begin(), or_lowest);
  if (router.groups > 1) keep_best_groups(router, logits);
  best(logits, choices);

  float sum = 0;
  for (Choice& choice : choices) sum += choice.weight = scores[static_cast<size_t>(choice.expert)];
  const float divisor = router.normalise ? sum + router.epsilon : 1.0f;
  for (Choice& choice : choices) choice.weight = divisor == 0 ? 0.0f : choice.weight / divisor * router.scale;
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
  void add(int64_t slice, float weight, const float* row, const float* bias, int64_t count) {
    if (depth_ > 0 && slices_[depth_ - 1] == slice) {
      float* const sum = sums_[depth_ - 1];
      for (int64_t i = 0; i < count; ++i) sum[i] += weight * (row[i] + bias[i]) + 0.0f;
      return;
    }
    // Neighbours that are nearer to each other than to the new slice: their paths part at a lower bit.
    while (depth_ > 1 && (slices_[depth_ - 2] ^ slices_[depth_ - 1]) < (slices_[depth_ - 1] ^ slice))
      merge(count);
    slices_[depth_] = slice;
    float* const sum = sums_[depth_++];
    for (int64_t i = 0; i < count; ++i) sum[i] = weight * (row[i] + bias[i]) + 0.0f;
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

void combine(ConstTensorView rows, const Routing& routing, ConstTensorView biases, int64_t slices,
             IndexRange tokens, TensorView out) {
  const int64_t width = rows.shape[1], most = routing.chosen.shape[1];
  const int64_t slice_experts = routing.experts.size() / slices;
  static constexpr float no_bias[columns_at_once] = {};
  WaitingSums sums;
  for (int64_t token = tokens.begin; token < tokens.end; ++token) {
    const int32_t* const chosen = routing.chosen.as<int32_t>() + token * most;
    const int32_t* const places = routing.places.as<int32_t>() + token * most;
    for (int64_t column = 0; column < width; column += columns_at_once) {
      const int64_t count = std::min(columns_at_once, width - column);
      for (int64_t i = 0; i < most && chosen[i] >= 0; ++i)
        sums.add(chosen[i] / slice_experts, routing.weights.as<float>()[places[i]],
                 rows.as<float>() + places[i] * width + column,
                 biases.empty() ? no_bias : biases.as<float>() + chosen[i] * width + column, count);
      sums.finish(count, out.as<float>() + token * width + column);
    }
  }
}

}  // namespace maniple::reference
