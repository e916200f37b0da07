// Routing, grouped products and their sum against plain loops and double precision.
#include <kernels/subjects.hpp>
#include <support/cover.hpp>

#include <array>
#include <functional>
#include <map>
#include <numeric>

namespace maniple {
namespace {

using namespace testing;

constexpr float infinity = std::numeric_limits<float>::infinity();

// A routing and its memory.
struct Routed {
  Tensor tokens, weights, offsets, chosen, places, counts;
  Routing routing;
  int64_t rows = 0;
  int64_t most_rows = 0;

  Routed(Ops& ops, ConstTensorView logits, const Router& router, IndexRange experts,
         ConstTensorView past_lengths = {})
      : Routed(ops.device(), logits.shape[0], logits.shape[1], router, experts, past_lengths) {
    finish(ops.route(logits, router, routing));
  }
  // By Ops::matmul_route: of backends that have it.
  Routed(Ops& ops, ConstTensorView x, const Weight& gate, const Router& router)
      : Routed(ops.device(), x.shape[0], gate.rows, router, {0, gate.rows}, {}) {
    const auto found = ops.matmul_route(x, gate, router, routing);
    is_routed = found.has_value();
    finish(found.value_or(0));
  }

  bool is_routed = true;

 private:
  Routed(Device& device, int64_t rows_of_x, int64_t all, const Router& router, IndexRange experts,
         ConstTensorView past_lengths) {
    const int64_t a_token = Routing::experts_a_token(router, experts), most = rows_of_x * a_token;
    tokens = Tensor(device, DType::int32, {most});
    weights = Tensor(device, DType::fp32, {most});
    offsets = Tensor(device, DType::int32, {experts.size() + 1});
    chosen = Tensor(device, DType::int32, {rows_of_x, a_token});
    places = Tensor(device, DType::int32, {rows_of_x, a_token});
    counts = int_tensor(device, std::vector<int32_t>(static_cast<size_t>(all)));
    std::ranges::fill(std::span(offsets.view().as<int32_t>(), offsets.shape()[0]), 0);
    routing = {experts, tokens, weights, offsets, chosen, places, counts, past_lengths};
  }
  void finish(int64_t bound) {
    most_rows = bound;
    rows = routing.rows();
    EXPECT_LE(rows, most_rows);
    EXPECT_LE(most_rows, tokens.shape()[0]);
  }
};

struct Pick {
  int64_t expert;
  double weight;
};

// Places of scores, best first.
std::vector<int64_t> order_of(const std::vector<double>& scores) {
  std::vector<int64_t> places(scores.size());
  std::iota(places.begin(), places.end(), 0);
  std::ranges::stable_sort(places, [&](int64_t a, int64_t b) { return scores[a] > scores[b]; });
  return places;
}
// By how much the last of `count` is better than the next: infinite where they are equal for certain, or where there is no next.
double margin_of(const std::vector<double>& scores, int64_t count) {
  const std::vector<int64_t> order = order_of(scores);
  if (count == static_cast<int64_t>(order.size())) return infinity;
  const double last = scores[order[count - 1]], next = scores[order[count]];
  return last == next ? infinity : last - next;
}

// The contract in plain loops and double precision: a token's choices, best first. margin: of the choice.
std::vector<Pick> picks_of(ConstTensorView logits, int64_t token, const Router& router,
                           double* margin = nullptr) {
  const int64_t experts = logits.shape[1];
  const bool sigmoid = router.scoring == RouterScoring::sigmoid;
  const auto of = [](ConstTensorView view, int64_t e) { return view.empty() ? 0.0 : double{get(view, e)}; };
  std::vector<double> row, scores, ranks;
  bool lost = false;
  for (int64_t e = 0; e < experts; ++e) {
    const double logit = logits.as<float>()[token * experts + e] + of(router.logit_bias, e);
    row.push_back(std::isnan(logit) ? -infinity : logit);
    lost |= std::isnan(logit);
  }
  const double largest = std::ranges::max(row);
  const auto share = [&](double logit) { return logit == largest ? 1.0 : std::exp(logit - largest); };
  double total = 0, sum = 0;
  for (const double logit : row) total += share(logit);
  if (lost || std::isinf(largest)) total = std::nan("");
  const bool by_logits =
      !sigmoid && router.bias.empty() && (router.groups == 1 || router.group_score == GroupScore::max);
  for (int64_t e = 0; e < experts; ++e) {
    scores.push_back(sigmoid ? 1 / (1 + std::exp(-row[e])) : share(row[e]) / total);
    const double rank = by_logits ? row[e] : scores[e] + of(router.bias, e);
    const bool nan = std::isnan(logits.as<float>()[token * experts + e]) || std::isnan(rank);
    ranks.push_back(nan ? -infinity : rank);
  }
  double clear = infinity;
  if (router.groups > 1) {
    const int64_t size = experts / router.groups;
    std::vector<double> groups;
    for (int64_t g = 0; g < router.groups; ++g) {
      std::vector<double> group(ranks.begin() + g * size, ranks.begin() + (g + 1) * size);
      std::ranges::sort(group, std::greater());
      groups.push_back(router.group_score == GroupScore::max ? group[0] : group[0] + group[1]);
    }
    clear = margin_of(groups, router.kept_groups);
    const std::vector<int64_t> order = order_of(groups);
    for (int64_t i = router.kept_groups; i < router.groups; ++i)
      std::fill_n(ranks.begin() + order[i] * size, size, -infinity);
  }
  if (margin) *margin = std::min(clear, margin_of(ranks, router.per_token));
  const std::vector<int64_t> order = order_of(ranks);
  std::vector<Pick> picks;
  for (int64_t i = 0; i < router.per_token; ++i) {
    picks.push_back({order[i], scores[order[i]]});
    sum += picks.back().weight;
  }
  const double divisor = router.normalise ? sum + router.epsilon : 1;
  for (Pick& pick : picks) pick.weight = divisor == 0 ? 0 : pick.weight / divisor * router.scale;
  return picks;
}

void expect_contract(const Routed& routed, ConstTensorView logits, const Router& router, IndexRange local) {
  std::map<std::pair<int64_t, int64_t>, double> expected;  // by expert, token
  std::vector<int32_t> counts(static_cast<size_t>(logits.shape[1]));
  for (int64_t t = 0; t < logits.shape[0]; ++t)
    for (const Pick& pick : picks_of(logits, t, router)) {
      ++counts[static_cast<size_t>(pick.expert)];
      if (local.contains(pick.expert)) expected[{pick.expert - local.begin, t}] = pick.weight;
    }
  ASSERT_EQ(routed.rows, static_cast<int64_t>(expected.size()));
  int64_t row = 0;
  for (const auto& [key, weight] : expected) {
    const auto [expert, token] = key;
    ASSERT_TRUE(routed.routing.rows_of(expert).contains(row));
    ASSERT_EQ(routed.routing.tokens.as<int32_t>()[row], token);
    const float given = routed.routing.weights.as<float>()[row];
    if (std::isnan(weight))
      ASSERT_TRUE(std::isnan(given));
    else
      ASSERT_NEAR(given, weight, 1e-6 * weight + 1e-37);
    bool found = false;
    const int64_t width = routed.routing.chosen.shape[1];
    for (int64_t i = 0; i < width; ++i)
      found |= routed.routing.chosen.as<int32_t>()[token * width + i] == expert &&
               routed.routing.places.as<int32_t>()[token * width + i] == row;
    ASSERT_TRUE(found);
    ++row;
  }
  for (size_t e = 0; e < counts.size(); ++e) ASSERT_EQ(routed.routing.counts.as<int32_t>()[e], counts[e]);
}

using Experts = Conformance;
INSTANTIATE_TEST_SUITE_P(Every, Experts, ::testing::ValuesIn(all_subjects()), name_of_subject);

TEST_P(Experts, AreChosenBySoftmaxOverAllWhateverTheLogitsAre) {
  for (const auto& [shape, tokens, normalise, kind] :
       each_pair(std::vector<std::pair<int64_t, int64_t>>{{8, 2}, {12, 5}, {5, 5}, {7, 1}, {64, 8}, {1, 1}},
                 std::vector<int64_t>{0, 1, 37}, std::vector{false, true}, std::vector{0, 1, 2, 3, 4, 5})) {
    const auto& [experts, per_token] = shape;
    SCOPED_TRACE(fmt::format("{} of {}, {} tokens, kind {}", per_token, experts, tokens, kind));
    Tensor logits = random_tensor(device(), DType::fp32, {tokens, experts}, 5, 4);
    for (int64_t i = 0; i < tokens * experts; ++i) {
      float& logit = logits.view().as<float>()[i];
      if (kind == 1) logit = std::round(logit);  // ties
      if (kind == 2) logit = 0;                  // all equal
      if (kind == 3 && i % 3 == 0) logit = std::nanf("");
      if (kind == 4 && i % 5 < 4) logit = -infinity;
      if (kind == 5 && i % 7 == 3) logit = infinity;
    }
    const Router router{per_token, normalise};
    for (const IndexRange local : {IndexRange{0, experts}, {0, experts / 2 + 1}, {experts - 1, experts}})
      ASSERT_NO_FATAL_FAILURE(expect_contract(Routed(ops(), logits, router, local), logits, router, local));
  }
}

double dot(ConstTensorView a, int64_t row, ConstTensorView b, int64_t other) {
  const int64_t width = a.shape[1];
  double sum = 0;
  for (int64_t i = 0; i < width; ++i) sum += double{get(a, row * width + i)} * get(b, other * width + i);
  return sum;
}

// A token's choices by ascending expert, where all experts are of this rank.
std::vector<Pick> found_picks(const Routed& routed, int64_t token) {
  const int64_t width = routed.routing.chosen.shape[1];
  std::vector<Pick> picks;
  for (int64_t i = token * width; i < (token + 1) * width; ++i)
    picks.push_back({routed.routing.chosen.as<int32_t>()[i],
                     routed.routing.weights.as<float>()[routed.routing.places.as<int32_t>()[i]]});
  return picks;
}

// Returns how many tokens have a choice that no rounding changes; these agree. error: relative, of a weight.
int64_t expect_agreement(const Routed& routed, ConstTensorView logits, const Router& router,
                         double clear_margin = 4e-6, double error = 1e-5) {
  int64_t clear = 0;
  for (int64_t t = 0; t < logits.shape[0]; ++t) {
    double margin = 0;
    std::vector<Pick> exact = picks_of(logits, t, router, &margin);
    if (margin < clear_margin) continue;
    ++clear;
    std::ranges::sort(exact, {}, &Pick::expert);
    const std::vector<Pick> found = found_picks(routed, t);
    for (size_t i = 0; i < exact.size(); ++i) {
      EXPECT_EQ(found[i].expert, exact[i].expert) << "token " << t;
      if (std::isnan(exact[i].weight))
        EXPECT_TRUE(std::isnan(found[i].weight)) << "token " << t;
      else
        EXPECT_NEAR(found[i].weight, exact[i].weight, error * exact[i].weight + 1e-37) << "token " << t;
    }
    if (::testing::Test::HasFailure()) return 0;
  }
  return clear;
}

struct NamedRouter {
  std::string name;
  int64_t experts;
  Router router;
  float bias = 0, logit_bias = 0;  // their largest values; 0: none
};
// Of published models, and odd ones.
const std::vector<NamedRouter> routers{
    {"softmax", 128, {.per_token = 8, .normalise = true}},
    {"softmax with a bias", 64, {.per_token = 6, .normalise = true, .epsilon = 1e-12F}, 0.05F},
    {"softmax, groups by the largest", 160, {.per_token = 6, .groups = 8, .kept_groups = 3, .scale = 16}},
    {"softmax, groups by the two largest",
     6,
     {.per_token = 3, .groups = 3, .kept_groups = 2, .group_score = GroupScore::top2}},
    {"softmax over the chosen, biased logits", 32, {.per_token = 4, .normalise = true}, 0, 2},
    {"sigmoid", 7, {.per_token = 3, .scoring = RouterScoring::sigmoid}},
    {"sigmoid with a bias",
     128,
     {.per_token = 8, .normalise = true, .scoring = RouterScoring::sigmoid, .scale = 2.5F},
     0.4F},
    {"sigmoid with a bias, groups by the two largest",
     256,
     {.per_token = 8,
      .normalise = true,
      .scoring = RouterScoring::sigmoid,
      .groups = 8,
      .kept_groups = 4,
      .group_score = GroupScore::top2,
      .epsilon = 1e-20F,
      .scale = 2.5F},
     0.4F},
    {"sigmoid, many groups",
     66,
     {.per_token = 5,
      .normalise = true,
      .scoring = RouterScoring::sigmoid,
      .groups = 33,
      .kept_groups = 7,
      .epsilon = 0.1F},
     2,
     1},
};

TEST_P(Experts, AreChosenAsTheRouterSays) {
  constexpr int64_t tokens = 400;
  const bool is_slow = GetParam().kind == BackendKind::cuda && GetParam().emulated;
  const int64_t rows = is_slow ? 20000 : 100000;
  const int64_t rounds = rows / tokens / static_cast<int64_t>(routers.size()) + 1;
  for (const NamedRouter& named : routers) {
    SCOPED_TRACE(named.name);
    const auto biases = [&](float largest, uint64_t seed) {
      return random_tensor(device(), DType::fp32, {largest == 0 ? 0 : named.experts}, seed, largest);
    };
    const Tensor bias = biases(named.bias, 1), logit_bias = biases(named.logit_bias, 2);
    Router router = named.router;
    if (named.bias != 0) router.bias = bias.view();
    if (named.logit_bias != 0) router.logit_bias = logit_bias.view();
    int64_t clear = 0;
    for (int64_t round = 0; round < rounds; ++round) {
      Tensor logits = random_tensor(device(), DType::fp32, {tokens, named.experts},
                                    static_cast<uint64_t>(10 + round), round % 3 == 0 ? 20 : 4);
      if (round % 5 == 4)
        for (int64_t i = 0; i < tokens * named.experts; i += 97) logits.view().as<float>()[i] = std::nanf("");
      clear += expect_agreement(Routed(ops(), logits, router, {0, named.experts}), logits, router);
      if (HasFailure()) return;
    }
    EXPECT_GT(clear, rounds * tokens / 2);
  }
}

// Rounded scores are often equal: in fp32 sigmoid is 1 from about 17.3 on.
TEST_P(Experts, ThatAreEquallyGoodAreChosenByTheirNumber) {
  constexpr int64_t experts = 40;
  Tensor logits(device(), DType::fp32, {5, experts});
  const auto set_row = [&](int64_t row, auto logit_of) {
    for (int64_t e = 0; e < experts; ++e) set(logits, row * experts + e, logit_of(e));
  };
  set_row(0, [](int64_t e) { return 20.0F + static_cast<float>(e); });
  set_row(1, [](int64_t e) { return e % 2 == 0 ? std::nanf("") : 30.0F; });
  set_row(2, [](int64_t) { return std::nanf(""); });
  set_row(3, [](int64_t) { return -200.0F; });
  set_row(4, [](int64_t e) { return e == 39 ? infinity : e == 38 ? 0.0F : -infinity; });
  const Router plain{.per_token = 3, .normalise = true, .scoring = RouterScoring::sigmoid};
  Router grouped = plain;
  grouped.groups = 20;
  grouped.kept_groups = 2;
  grouped.group_score = GroupScore::top2;
  using Rows = std::vector<std::vector<int64_t>>;
  for (const auto& [router, expected] :
       {std::pair{plain, Rows{{0, 1, 2}, {1, 3, 5}, {0, 1, 2}, {0, 1, 2}, {0, 38, 39}}},
        std::pair{grouped, Rows{{0, 1, 2}, {0, 1, 3}, {0, 1, 2}, {0, 1, 2}, {0, 38, 39}}}}) {
    const Routed routed(ops(), logits, router, {0, experts});
    for (int64_t t = 0; t < 5; ++t) {
      const std::vector<Pick> found = found_picks(routed, t);
      for (size_t i = 0; i < 3; ++i) {
        EXPECT_EQ(found[i].expert, expected[t][i]) << router.groups << " groups, token " << t;
        const float logit = get(logits, t * experts + found[i].expert);
        const bool none = std::isnan(logit) || logit < -100;
        const double sum = t == 4 ? 1.5 : t == 1 && router.groups > 1 ? 2 : 3;
        EXPECT_NEAR(found[i].weight, none ? 0 : logit == 0 ? 0.5 / sum : 1 / sum, 1e-6) << "token " << t;
      }
    }
  }
}

TEST_P(Experts, OfNegativeBiasAreChosenByItAndWeighedWithoutIt) {
  Tensor bias(device(), DType::fp32, {4}), logits(device(), DType::fp32, {1, 4});
  for (int e = 0; e < 4; ++e) {
    set(bias, e, std::array{-3.0F, -1.0F, -2.0F, -4.0F}[static_cast<size_t>(e)]);
    set(logits, e, static_cast<float>(e + 1));
  }
  const Router router{.per_token = 2, .scoring = RouterScoring::sigmoid, .bias = bias, .scale = 2};
  const std::vector<Pick> found = found_picks(Routed(ops(), logits, router, {0, 4}), 0);
  EXPECT_EQ(found[0].expert, 1);
  EXPECT_EQ(found[1].expert, 2);
  EXPECT_NEAR(found[0].weight, 2 / (1 + std::exp(-2.0)), 1e-6);
  EXPECT_NEAR(found[1].weight, 2 / (1 + std::exp(-3.0)), 1e-6);
}

// Few tokens of a GPU: the product and the choice are one kernel.
TEST_P(Experts, OfFewTokensAreChosenByTheirProductWithTheGate) {
  for (const auto& [dtype, size, tokens] :
       each_pair(activation_types(), std::vector<std::pair<int64_t, int64_t>>{{8, 64}, {5, 33}, {40, 2568}},
                 std::vector<int64_t>{1, 7, 8, 9, 64, 65})) {
    const auto [experts, width] = size;
    SCOPED_TRACE(fmt::format("{} {} x {}, {} tokens", name_of(dtype), experts, width, tokens));
    const Tensor x = random_tensor(device(), dtype, {tokens, width}, 1),
                 values = random_tensor(device(), DType::fp32, {experts, width}, 2, 0.2F),
                 bias = random_tensor(device(), DType::fp32, {experts}, 3, 0.2F);
    Weight gate = ops().make_weight({DType::fp32, experts, width});
    ops().pack(gate, 0, {values.view()});
    const Router router{.per_token = 3, .normalise = true, .scoring = RouterScoring::sigmoid, .bias = bias};
    const Routed routed(ops(), x, gate, router);
    EXPECT_EQ(routed.is_routed, GetParam().kind == BackendKind::cuda && tokens <= 64 && width % 8 == 0);
    if (!routed.is_routed) continue;
    Tensor logits(device(), DType::fp32, {tokens, experts});
    for (int64_t t = 0; t < tokens; ++t)
      for (int64_t e = 0; e < experts; ++e)
        set(logits, t * experts + e, static_cast<float>(dot(x, t, values, e)));
    EXPECT_GE(expect_agreement(routed, logits, router, 1e-4, 1e-4), (tokens + 1) / 2);
    // Whatever the other tokens are.
    for (const int64_t token : {int64_t{0}, tokens / 2, tokens - 1}) {
      const Routed alone(ops(), x.view().rows(token, 1), gate, router);
      const std::vector<Pick> one = found_picks(alone, 0), same = found_picks(routed, token);
      for (size_t i = 0; i < one.size(); ++i) {
        EXPECT_EQ(one[i].expert, same[i].expert);
        EXPECT_EQ(one[i].weight, same[i].weight);
      }
    }
  }
}

// The rows of experts in these tests: all numbers, some of them 0.
Tensor logits_for(Device& device, const std::vector<int64_t>& rows_of_expert) {
  int64_t tokens = 0;
  for (const int64_t rows : rows_of_expert) tokens += rows;
  Tensor logits(device, DType::fp32, {tokens, static_cast<int64_t>(rows_of_expert.size())});
  fill(logits, 0);
  // Tokens of an expert are not side by side.
  std::vector<int64_t> left = rows_of_expert;
  for (int64_t token = 0, expert = 0; token < tokens; ++expert) {
    const size_t e = static_cast<size_t>(expert) % left.size();
    if (left[e] == 0) continue;
    --left[e];
    set(logits, token++ * static_cast<int64_t>(left.size()) + static_cast<int64_t>(e), 3);
  }
  return logits;
}

struct Shapes {
  int64_t hidden, width;
  int slices;
};

class Layer {
 public:
  Layer(Ops& ops, DType dtype, int64_t experts, const Shapes& shapes) : half_((shapes.width + 31) / 32 * 32) {
    for (int64_t e = 0; e < experts; ++e) {
      const auto seed = static_cast<uint64_t>(10 * e);
      gate.push_back(random_tensor(ops.device(), dtype, {shapes.width, shapes.hidden}, seed + 1));
      up.push_back(random_tensor(ops.device(), dtype, {shapes.width, shapes.hidden}, seed + 2));
      down.push_back(random_tensor(ops.device(), dtype, {shapes.hidden, shapes.width}, seed + 3));
      gate_up_.push_back(ops.make_weight({dtype, 2 * half_, shapes.hidden, 1}));
      ops.pack(gate_up_.back(), 0, {gate.back()});
      ops.pack(gate_up_.back(), half_, {up.back()});
      down_.push_back(ops.make_weight({dtype, shapes.hidden, shapes.width, shapes.slices}));
      ops.pack(down_.back(), 0, {down.back()});
    }
  }
  int64_t half() const { return half_; }  // rows of gate, with their padding
  std::vector<const Weight*> gate_up_weights() const { return pointers(gate_up_); }
  std::vector<const Weight*> down_weights() const { return pointers(down_); }
  std::vector<Tensor> gate, up, down;

 private:
  static std::vector<const Weight*> pointers(const std::vector<Weight>& weights) {
    std::vector<const Weight*> all;
    for (const Weight& weight : weights) all.push_back(&weight);
    return all;
  }
  int64_t half_;
  std::vector<Weight> gate_up_, down_;
};

// A captured decode step is as large as its bucket: rows of no sequence follow its own.
TEST_P(Experts, AreNotChosenByPaddingRowsWhichBecomeZero) {
  constexpr int64_t tokens = 9, experts = 8, hidden = 40, width = 24;
  const Tensor logits = random_tensor(device(), DType::fp32, {tokens, experts}, 5, 4);
  const Tensor past = int_tensor(device(), {3, -1, 0, 300, -1, 7, 8, -1, -1});
  const IndexRange local{2, 7};
  const Routed routed(ops(), logits, {3, true}, local, past);
  std::vector<int32_t> counts(experts);
  int64_t rows = 0;
  for (int64_t t = 0; t < tokens; ++t) {
    if (past.view().as<int32_t>()[t] < 0) continue;
    for (const Pick& pick : picks_of(logits, t, {3, true})) {
      ++counts[static_cast<size_t>(pick.expert)];
      rows += local.contains(pick.expert);
    }
  }
  EXPECT_EQ(routed.rows, rows);
  for (size_t e = 0; e < counts.size(); ++e) EXPECT_EQ(routed.routing.counts.as<int32_t>()[e], counts[e]);

  const Layer layer(ops(), DType::fp32, local.size(), {hidden, width, 8});
  const Tensor x = random_tensor(device(), DType::fp32, {tokens, hidden}, 7);
  Tensor inner(device(), DType::fp32, {routed.most_rows, width}),
      outputs(device(), DType::fp32, {routed.most_rows, hidden}),
      out(device(), DType::fp32, {tokens, hidden});
  fill(out, 12345);
  ops().grouped_matmul_gate_mul(GateActivation::silu, x, routed.routing, layer.gate_up_weights(), {}, inner);
  ops().grouped_matmul(inner, routed.routing, layer.down_weights(), outputs);
  ops().combine(outputs, routed.routing, {}, 1, out);
  for (int64_t t = 0; t < tokens; ++t) {
    const bool padding = past.view().as<int32_t>()[t] < 0;
    for (int64_t i = 0; i < hidden; ++i)
      if (padding)
        EXPECT_EQ(get(out, t * hidden + i), 0);
      else
        EXPECT_NE(get(out, t * hidden + i), 12345);
  }
}

TEST_P(Experts, ProductsAgreeWithDoublePrecisionForAnyNumberOfRows) {
  for (const auto& [dtype, shapes, rows, biased] :
       each_pair(activation_types(), std::vector<Shapes>{{64, 48, 8}, {40, 112, 8}, {33, 31, 1}, {96, 24, 4}},
                 std::vector<std::vector<int64_t>>{{1, 0, 2}, {31, 33, 0}, {0, 0, 1}, {0, 700, 1}},
                 std::vector{false, true})) {
    SCOPED_TRACE(fmt::format("{} {} x {}, biased: {}", name_of(dtype), shapes.hidden, shapes.width, biased));
    const Layer layer(ops(), dtype, 3, shapes);
    const GateActivation activation = biased ? small_clamp : GateActivation::silu;
    const int64_t half = layer.half();
    const Tensor biases = random_tensor(device(), DType::fp32, {biased ? 3 : 0, 2 * half}, 9);
    const auto bias_of = [&](size_t expert, int64_t row) {
      return biased ? double{get(biases, static_cast<int64_t>(expert) * 2 * half + row)} : 0.0;
    };
    const Tensor logits = logits_for(device(), rows);
    const Routed routed(ops(), logits, {1, false}, {0, 3});
    const Tensor x = random_tensor(device(), dtype, {logits.shape()[0], shapes.hidden}, 7);
    GuardedTensor inner(device(), dtype, {routed.most_rows, shapes.width});
    GuardedTensor out(device(), DType::fp32, {routed.most_rows, shapes.hidden});
    ops().grouped_matmul_gate_mul(activation, PoisonedRows(device(), x).view(), routed.routing,
                                  layer.gate_up_weights(), biases, inner.view());
    ops().grouped_matmul(inner.view(), routed.routing, layer.down_weights(), out.view());
    ASSERT_TRUE(inner.intact() && out.intact());
    for (size_t e = 0; e < 3; ++e) {
      const IndexRange of_expert = routed.routing.rows_of(static_cast<int64_t>(e));
      ASSERT_EQ(of_expert.size(), rows[e]);
      const int64_t step = std::max<int64_t>(1, of_expert.size() / 40);
      for (int64_t row = of_expert.begin; row < of_expert.end; row += step) {
        const int64_t token = routed.routing.tokens.as<int32_t>()[row];
        for (int64_t i = 0; i < shapes.width; ++i) {
          const double g = dot(x, token, layer.gate[e], i) + bias_of(e, i),
                       u = dot(x, token, layer.up[e], i) + bias_of(e, half + i),
                       exact = exact_gated(activation, g, u);
          ASSERT_NEAR(get(inner.view(), row * shapes.width + i), exact,
                      rounding(dtype) * std::abs(exact) + 3e-5 * (1 + std::abs(u)));
        }
        for (int64_t i = 0; i < shapes.hidden; ++i)
          ASSERT_NEAR(get(out.view(), row * shapes.hidden + i), dot(inner.view(), row, layer.down[e], i),
                      2e-4);
      }
    }
  }
}

// All bits of a token's sum, alone and in company of others that are routed otherwise.
TEST_P(Experts, OfATokenDoNotDependOnTheOtherTokensNorOnThreads) {
  const Shapes shapes{64, 48, 8};
  const int64_t experts = 8, tokens = 61;
  for (const DType dtype : activation_types()) {
    const Tensor x = random_tensor(device(), dtype, {tokens, shapes.hidden}, 7);
    const Tensor logits = random_tensor(device(), DType::fp32, {tokens, experts}, 8, 3);
    const auto run = [&](Ops& some, int64_t first, int64_t count) {
      const Layer layer(some, dtype, experts, shapes);
      const Routed routed(some, logits.view().rows(first, count), {3, true}, {0, experts});
      Tensor inner(some.device(), dtype, {routed.most_rows, shapes.width}),
          rows(some.device(), DType::fp32, {routed.most_rows, shapes.hidden}),
          out(some.device(), DType::fp32, {count, shapes.hidden});
      some.grouped_matmul_gate_mul(GateActivation::silu, x.view().rows(first, count), routed.routing,
                                   layer.gate_up_weights(), {}, inner);
      some.grouped_matmul(inner, routed.routing, layer.down_weights(), rows);
      some.combine(rows, routed.routing, {}, 8, out);
      return floats_of(out);
    };
    const std::vector<float> whole = run(ops(), 0, tokens);
    const Backend other = with_threads(3);
    EXPECT_EQ(run(*other.ops, 0, tokens), whole);
    for (const auto& [first, count] : {std::pair<int64_t, int64_t>{0, 1}, {17, 1}, {5, 40}, {60, 1}}) {
      const auto begin = whole.begin() + first * shapes.hidden;
      EXPECT_EQ(run(ops(), first, count), std::vector<float>(begin, begin + count * shapes.hidden));
    }
  }
}

// Steps 2 to 4 of the order of the sum, in plain loops.
std::vector<float> combined(const Routed& routed, ConstTensorView rows, ConstTensorView biases,
                            int64_t slices, int64_t token) {
  const int64_t width = rows.shape[1], experts = routed.routing.experts.size();
  std::vector<float> sums;
  for (int64_t i = 0; i < width; ++i) {
    std::vector<std::pair<bool, float>> slice(static_cast<size_t>(slices));
    for (int64_t e = 0; e < experts; ++e)
      for (int64_t row = routed.routing.rows_of(e).begin; row < routed.routing.rows_of(e).end; ++row) {
        if (routed.routing.tokens.as<int32_t>()[row] != token) continue;
        const float bias = biases.empty() ? 0 : biases.as<float>()[e * width + i],
                    product =
                        routed.routing.weights.as<float>()[row] * (rows.as<float>()[row * width + i] + bias);
        auto& [is_there, sum] = slice[static_cast<size_t>(e / (experts / slices))];
        sum = is_there ? sum + (product + 0.0f) : product + 0.0f;
        is_there = true;
      }
    for (size_t distance = 1; distance < slice.size(); distance *= 2)
      for (size_t s = 0; s + distance < slice.size(); s += 2 * distance) {
        auto& [here, sum] = slice[s];
        const auto& [there, other] = slice[s + distance];
        sum = here && there ? sum + other : there ? other : sum;
        here = here || there;
      }
    sums.push_back(slice[0].first ? slice[0].second : 0.0f);
  }
  return sums;
}

TEST_P(Experts, AreAddedInTheOrderOfTheContract) {
  constexpr int64_t width = 300, tokens = 23;
  for (const auto& [experts, per_token, slices] :
       {std::tuple{8, 2, 8}, {12, 5, 4}, {5, 5, 1}, {32, 8, 32}, {32, 8, 1}, {60, 7, 4}})
    for (const IndexRange local : {IndexRange{0, experts}, {experts / 2 / slices * slices, experts}}) {
      const int64_t of_local = local.size() == experts ? slices : std::gcd<int64_t>(local.size(), slices);
      const Tensor logits = random_tensor(device(), DType::fp32, {tokens, experts}, 3, 2);
      const Routed routed(ops(), logits, {per_token, false}, local);
      Tensor rows = random_tensor(device(), DType::fp32, {std::max<int64_t>(routed.rows, 1), width}, 4);
      for (int64_t i = 0; i < routed.rows * width; i += 7) rows.view().as<float>()[i] = -0.0f;
      const Tensor biases =
          random_tensor(device(), DType::fp32, {experts % 8 == 0 ? 0 : local.size(), width}, 5);
      GuardedTensor out(device(), DType::fp32, {tokens, width});
      ops().combine(rows, routed.routing, biases, of_local, out.view());
      EXPECT_TRUE(out.intact());
      for (int64_t t = 0; t < tokens; ++t) {
        const std::vector<float> expected = combined(routed, rows, biases, of_local, t);
        for (int64_t i = 0; i < width; ++i) {
          const float found = get(out.view(), t * width + i);
          ASSERT_EQ(found, expected[static_cast<size_t>(i)]) << experts << " experts, token " << t;
          ASSERT_FALSE(found == 0 && std::signbit(found));
        }
      }
    }
}

// A broken expert reaches only the tokens that picked it.
TEST_P(Experts, OfNaNReachOnlyTheTokensThatPickedThem) {
  const Tensor logits = random_tensor(device(), DType::fp32, {40, 8}, 3, 2);
  const Routed routed(ops(), logits, {2, true}, {0, 8});
  Tensor rows = random_tensor(device(), DType::fp32, {routed.rows, 16}, 4),
         out(device(), DType::fp32, {40, 16});
  const IndexRange broken = routed.routing.rows_of(3);
  fill(rows.view().rows(broken.begin, broken.size()), std::nanf(""));
  ops().combine(rows, routed.routing, {}, 8, out);
  for (int64_t t = 0; t < 40; ++t) {
    const std::vector<Pick> picks = picks_of(logits, t, {2, true});
    const bool picked = std::ranges::any_of(picks, [](const Pick& pick) { return pick.expert == 3; });
    EXPECT_EQ(std::isnan(get(out, t * 16)), picked);
  }
}

TEST_P(Experts, AreChosenByActivationsInFp32) {
  const Tensor x = random_tensor(device(), DType::bf16, {7, 33}, 1);
  GuardedTensor wide(device(), DType::fp32, {7, 33});
  ops().widen(x, wide.view());
  EXPECT_TRUE(wide.intact());
  EXPECT_EQ(floats_of(wide.view()), floats_of(x));
}

}  // namespace
}  // namespace maniple
