// A layer of experts against plain loops in double precision, on every split of a tensor group.
#include <gtest/gtest.h>
#include <emulation/emulated_backend.hpp>
#include <layers/feed_forward.hpp>
#include <layers/layer_testing.hpp>
#include <layers/sparse_moe.hpp>
#include <parallel/shard.hpp>
#include <support/random_tensors.hpp>

#include <fmt/format.h>

#include <cmath>
#include <mutex>

namespace maniple {
namespace {

using namespace testing;

struct Case {
  int64_t hidden, experts, per_token, width;
  bool normalise;
  ExpertNames names = ExpertNames::qwen;
};

constexpr GateActivation clamped{.limit = 1.5F, .alpha = 1.702F};  // clamps every tenth number or so

ModelConfig config_of(const Case& shape) {
  ModelConfig config;
  config.hidden_size = shape.hidden;
  config.layers.resize(1);
  config.experts = {.count = shape.experts,
                    .width = shape.width,
                    .router = {.per_token = shape.per_token, .normalise = shape.normalise},
                    .names = shape.names,
                    .transposed = shape.names.interleaved};
  if (shape.names.biased) config.gate = clamped;
  return config;
}

// Values as a checkpoint in bf16 holds them. part: 0 gate, 1 up, 2 down.
float stored(int64_t expert, int part, int64_t row, int64_t column) {
  const auto seed = static_cast<uint64_t>(10 * expert + part),
             index = static_cast<uint64_t>(1000 * row + column);
  return rounded(DType::bf16, 0.3F * uniform(seed, index));
}
float stored_router(int64_t row, int64_t column) { return stored(1000, 0, row, column); }
float stored_bias(int64_t expert, int part, int64_t row) { return 2 * stored(expert, 3 + part, row, 0); }
float stored_router_bias(int64_t row) { return stored(1000, 1, row, 0); }

// Of experts whose rows of gate and up take turns, as matrices [outputs, inputs] or the other way round.
Sources interleaved_sources(const Case& shape, const std::string& layer, bool transposed) {
  const std::string block = layer + ".mlp", experts = block + ".experts.";
  const int64_t inner = shape.width, hidden = shape.hidden;
  const auto stacked = [transposed](int64_t outputs, int64_t inputs, auto value) {
    return [=](int64_t row, int64_t column) {
      const int64_t height = transposed ? inputs : outputs, e = row / height, down = row % height;
      return transposed ? value(e, column, down) : value(e, down, column);
    };
  };
  return {
      {block + ".router.weight", stored_router},
      {block + ".router.bias", [](int64_t row, int64_t) { return stored_router_bias(row); }},
      {experts + "gate_up_proj", stacked(2 * inner, hidden,
                                         [](int64_t e, int64_t output, int64_t input) {
                                           return stored(e, static_cast<int>(output % 2), output / 2, input);
                                         })},
      {experts + "down_proj",
       stacked(hidden, inner,
               [](int64_t e, int64_t output, int64_t input) { return stored(e, 2, output, input); })},
      {experts + "gate_up_proj_bias",
       [](int64_t e, int64_t output) { return stored_bias(e, static_cast<int>(output % 2), output / 2); }},
      {experts + "down_proj_bias", [](int64_t e, int64_t output) { return stored_bias(e, 2, output); }}};
}

// fused: interleaved experts as published codes lie, [outputs, inputs].
Sources sources_of(const Case& shape, const std::string& layer, bool fused) {
  if (shape.names.interleaved) return interleaved_sources(shape, layer, !fused);
  Sources sources;
  const bool mixtral = shape.names == ExpertNames::mixtral;
  const std::string block = layer + (mixtral && !fused ? ".block_sparse_moe" : ".mlp");
  sources[block + ".gate.weight"] = stored_router;
  if (fused) {
    const int64_t inner = shape.width, hidden = shape.hidden;
    sources[block + ".experts.gate_up_proj"] = [inner](int64_t row, int64_t column) {
      return stored(row / (2 * inner), static_cast<int>(row / inner % 2), row % inner, column);
    };
    sources[block + ".experts.down_proj"] = [hidden](int64_t row, int64_t column) {
      return stored(row / hidden, 2, row % hidden, column);
    };
    return sources;
  }
  for (int64_t e = 0; e < shape.experts; ++e)
    for (const int part : {0, 1, 2}) {
      const char* const qwen[] = {"gate_proj", "up_proj", "down_proj"};
      const char* const names[] = {"w1", "w3", "w2"};
      sources[fmt::format("{}.experts.{}.{}.weight", block, e, (mixtral ? names : qwen)[part])] =
          [e, part](int64_t row, int64_t column) { return stored(e, part, row, column); };
    }
  return sources;
}

float activation(int64_t token, int64_t column, DType dtype) {
  return rounded(dtype, 2 * uniform(77, static_cast<uint64_t>(token * 1000 + column)));
}

struct Outcome {
  std::vector<float> sum;  // [tokens, hidden], of rank 0
  std::vector<int32_t> counts;
  bool equal_on_all_ranks = true;
};

Outcome run(const Case& shape, int tensor, int expert, BackendKind kind, DType dtype, int64_t tokens,
            bool fused = false) {
  ModelConfig config = config_of(shape);
  config.experts.transposed &= !fused;
  std::vector<Outcome> outcomes(static_cast<size_t>(tensor));
  run_ranks(tensor, [&](World& world) {
    RankPlan plan;
    plan.grid = {.tensor = tensor, .expert = expert};
    plan.position.tensor = world.rank();
    plan.groups = groups_of(plan.grid, world.rank());
    const Backend backend = make_backend({.kind = kind, .threads = 2});
    std::atomic<bool> waits = false;
    const Groups groups = make_groups(world, plan, *backend.ops, AllReduce::messages, waits, {});
    SparseMoe layer("model.layers.0", config, plan);
    Parameters parameters;
    layer.append_parameters(parameters);
    testing::fill(parameters, sources_of(shape, "model.layers.0", fused), *backend.ops, dtype);
    layer.prepare(*backend.device);
    Tensor x(*backend.device, dtype, {tokens, shape.hidden});
    for (int64_t t = 0; t < tokens; ++t)
      for (int64_t i = 0; i < shape.hidden; ++i) set(x, t * shape.hidden + i, activation(t, i, dtype));
    Workspace workspace(*backend.device, {16 << 20, 4 << 20});
    std::atomic<uint32_t> number = 0;
    ForwardContext context{*backend.ops, workspace, groups, dtype, number};
    const TensorView sum = layer.forward(x, context);
    Outcome& mine = outcomes[static_cast<size_t>(world.rank())];
    mine.sum.assign(sum.as<float>(), sum.as<float>() + sum.shape.elements());
    mine.counts.assign(layer.counts().as<int32_t>(), layer.counts().as<int32_t>() + shape.experts);
  });
  for (const Outcome& other : outcomes)
    outcomes[0].equal_on_all_ranks &= other.sum == outcomes[0].sum && other.counts == outcomes[0].counts;
  return outcomes[0];
}

struct Choice {
  int64_t expert;
  double weight;
};

// By ascending expert. margin: between the logits of the last expert that is chosen and the first that is not.
std::vector<Choice> choose(const Case& shape, const std::vector<double>& x, double& margin) {
  std::vector<std::pair<double, int64_t>> logits;  // negative
  double largest = -INFINITY, total = 0, sum = 0;
  for (int64_t e = 0; e < shape.experts; ++e) {
    double logit = shape.names.biased ? stored_router_bias(e) : 0;
    for (int64_t i = 0; i < shape.hidden; ++i) logit += x[static_cast<size_t>(i)] * stored_router(e, i);
    logits.emplace_back(-logit, e);
    largest = std::max(largest, logit);
  }
  for (const auto& [negative, e] : logits) total += std::exp(-negative - largest);
  std::ranges::sort(logits);
  const auto chosen = static_cast<size_t>(shape.per_token);
  margin = chosen < logits.size() ? logits[chosen].first - logits[chosen - 1].first : 1;
  std::vector<Choice> choices;
  for (size_t i = 0; i < chosen; ++i) {
    choices.push_back({logits[i].second, std::exp(-logits[i].first - largest) / total});
    sum += choices.back().weight;
  }
  if (shape.normalise)
    for (Choice& choice : choices) choice.weight /= sum;
  std::ranges::sort(choices, {}, &Choice::expert);
  return choices;
}

// y of one expert; round: applied to every tensor that transformers keeps in the activation type.
template <typename Round>
std::vector<double> expert_output(const Case& shape, int64_t expert, const std::vector<double>& x,
                                  Round round) {
  std::vector<double> inner, y;
  const auto product = [&](int part, int64_t row, const std::vector<double>& by) {
    double sum = shape.names.biased ? stored_bias(expert, part, row) : 0;
    for (size_t i = 0; i < by.size(); ++i) sum += by[i] * stored(expert, part, row, static_cast<int64_t>(i));
    return round(sum);
  };
  for (int64_t row = 0; row < shape.width; ++row) {
    const double limit = shape.names.biased ? double{clamped.limit} : INFINITY,
                 alpha = shape.names.biased ? double{clamped.alpha} : 1,
                 g = std::min(product(0, row, x), limit), u = std::clamp(product(1, row, x), -limit, limit);
    inner.push_back(round(round(g / (1 + std::exp(-alpha * g))) * (shape.names.biased ? round(u + 1) : u)));
  }
  for (int64_t row = 0; row < shape.hidden; ++row) y.push_back(product(2, row, inner));
  return y;
}

// The block of a token as transformers computes it.
template <typename Round>
std::vector<double> block(const Case& shape, const std::vector<Choice>& choices, const std::vector<double>& x,
                          Round round) {
  std::vector<double> sum(x.size());
  for (const auto& [expert, weight] : choices) {
    const std::vector<double> y = expert_output(shape, expert, x, round);
    for (size_t i = 0; i < y.size(); ++i) sum[i] = round(sum[i] + round(y[i] * round(weight)));
  }
  return sum;
}

std::vector<double> row_of(const Case& shape, int64_t token, DType dtype) {
  std::vector<double> x;
  for (int64_t i = 0; i < shape.hidden; ++i) x.push_back(activation(token, i, dtype));
  return x;
}

const auto exactly = [](double value) { return value; };
constexpr double clear_margin = 1e-4;  // no rounding of fp32 chooses another expert

const Case cases[] = {{64, 8, 2, 48, true},
                      {40, 12, 5, 24, false},
                      {64, 32, 4, 72, true},
                      {33, 5, 5, 40, false},
                      {48, 8, 2, 112, true, ExpertNames::mixtral},
                      {40, 8, 3, 56, true, ExpertNames::gpt_oss},
                      {33, 12, 4, 20, true, ExpertNames::gpt_oss}};

TEST(SparseMoe, AgreesWithDoublePrecisionOnEverySplit) {
  constexpr int64_t tokens = 19;
  for (const Case& shape : cases)
    for (const BackendKind kind : {BackendKind::reference, BackendKind::cpu})
      for (const int tensor : {1, 2, 3, 4, 8})
        for (int expert = 1; expert <= tensor; ++expert) {
          if (tensor % expert != 0 || shape.experts % expert != 0) continue;
          if (kind == BackendKind::reference && tensor > 4) continue;
          SCOPED_TRACE(fmt::format("{} experts, tp {} ep {}", shape.experts, tensor, expert));
          const Outcome found = run(shape, tensor, expert, kind, DType::fp32, tokens);
          EXPECT_TRUE(found.equal_on_all_ranks);
          int64_t chosen = 0, clear = 0;
          for (const int32_t count : found.counts) chosen += count;
          EXPECT_EQ(chosen, tokens * shape.per_token);
          for (int64_t t = 0; t < tokens; ++t) {
            double margin = 0;
            const std::vector<double> x = row_of(shape, t, DType::fp32);
            const std::vector<double> exact = block(shape, choose(shape, x, margin), x, exactly);
            if (margin < clear_margin) continue;
            ++clear;
            for (size_t i = 0; i < exact.size(); ++i)
              EXPECT_NEAR(found.sum[static_cast<size_t>(t) * exact.size() + i], exact[i], 1e-4);
          }
          EXPECT_GT(clear, tokens / 2);
          const bool whole_subtrees = expert_slices(shape.experts) % expert == 0 &&
                                      reduction_slices(shape.width, tensor / expert).independent_of_parts;
          if (whole_subtrees) {
            EXPECT_EQ(found.sum, run(shape, 1, 1, kind, DType::fp32, tokens).sum);
          }
        }
}

TEST(SparseMoe, HasTheSameBitsInBf16FromBothFormsOfACheckpoint) {
  for (const Case& shape : cases) {
    const Outcome one = run(shape, 1, 1, BackendKind::cpu, DType::bf16, 37);
    for (const auto& [tensor, expert] : {std::pair{1, 1}, {2, 1}, {4, 1}, {4, 2}, {4, 4}, {8, 2}}) {
      if (expert_slices(shape.experts) % expert != 0) continue;
      const Outcome split = run(shape, tensor, expert, BackendKind::cpu, DType::bf16, 37, true);
      EXPECT_EQ(split.sum, one.sum) << shape.experts << " experts, tp " << tensor << " ep " << expert;
      EXPECT_EQ(split.counts, one.counts);
    }
  }
}

// The yardstick: transformers' own block in bf16, for the same routing.
TEST(SparseMoe, IsAtLeastAsGoodInBf16AsABlockThatRoundsEveryTensor) {
  constexpr int64_t tokens = 41;
  const auto to_bf16 = [](double value) { return double{rounded(DType::bf16, static_cast<float>(value))}; };
  for (const Case& shape : cases) {
    const Outcome found = run(shape, 1, 1, BackendKind::cpu, DType::bf16, tokens);
    double ours = 0, theirs = 0;
    for (int64_t t = 0; t < tokens; ++t) {
      double margin = 0;
      const std::vector<double> x = row_of(shape, t, DType::bf16);
      const std::vector<Choice> choices = choose(shape, x, margin);
      if (margin < clear_margin) continue;
      const std::vector<double> exact = block(shape, choices, x, exactly),
                                coarse = block(shape, choices, x, to_bf16);
      for (size_t i = 0; i < exact.size(); ++i) {
        ours += std::pow(found.sum[static_cast<size_t>(t) * exact.size() + i] - exact[i], 2);
        theirs += std::pow(coarse[i] - exact[i], 2);
      }
    }
    EXPECT_GT(theirs, 0);
    EXPECT_LE(std::sqrt(ours), 1.5 * std::sqrt(theirs)) << shape.experts << " experts";
  }
}

// width: of the shared expert; its ranks may not cut blocks of so many inputs.
std::vector<float> run_shared(int64_t width, int64_t block, bool gated, int tensor, DType dtype,
                              int64_t tokens, CollectiveCounts* calls = nullptr) {
  constexpr int64_t hidden = 64;
  const Case shape{hidden, 8, 2, 48, true};
  ModelConfig config = config_of(shape);
  config.experts.names.shared = "shared";
  if (gated) config.experts.names.shared_gate = "shared_gate";
  config.experts.shared_width = width;
  Sources sources = sources_of(shape, "l", false);
  for (const auto& [part, name] : {std::pair{0, "gate_proj"}, {1, "up_proj"}, {2, "down_proj"}})
    sources[fmt::format("l.mlp.shared.{}.weight", name)] = [part = part](int64_t row, int64_t column) {
      return stored(500, part, row, column);
    };
  sources["l.mlp.shared_gate.weight"] = [](int64_t row, int64_t column) {
    return stored(501, 0, row, column);
  };
  std::vector<float> sums;
  run_ranks(tensor, [&](World& world) {
    ModelConfig mine = config;
    mine.activation_group = block;
    RankPlan plan;
    plan.grid = {.tensor = tensor, .expert = tensor};  // whole experts
    plan.position.tensor = world.rank();
    plan.groups = groups_of(plan.grid, world.rank());
    const Backend backend = make_backend({.kind = BackendKind::cpu, .threads = 1});
    std::atomic<bool> waits = false;
    const Groups groups = make_groups(world, plan, *backend.ops, AllReduce::messages, waits, {});
    FeedForward layer("l", {}, mine, plan);
    Parameters parameters;
    layer.append_parameters(parameters);
    testing::fill(parameters, sources, *backend.ops, dtype);
    layer.prepare(*backend.device);
    Tensor x(*backend.device, dtype, {tokens, hidden});
    for (int64_t t = 0; t < tokens; ++t)
      for (int64_t i = 0; i < hidden; ++i) set(x, t * hidden + i, activation(t, i, dtype));
    Workspace workspace(*backend.device, {16 << 20, 4 << 20});
    std::atomic<uint32_t> number = 0;
    ForwardContext context{*backend.ops, workspace, groups, dtype, number};
    const TensorView sum = layer.forward(x, context);
    if (world.rank() != 0) return;
    sums.assign(sum.as<float>(), sum.as<float>() + sum.shape.elements());
    if (calls) *calls = groups.tensor->counts();
  });
  return sums;
}

TEST(SharedExpert, IsAddedToTheRoutedSumBehindItsGate) {
  constexpr int64_t tokens = 5, hidden = 64, width = 40;
  const std::vector<float> routed =
      run({hidden, 8, 2, 48, true}, 1, 1, BackendKind::cpu, DType::fp32, tokens).sum;
  for (const bool gated : {false, true}) {
    const std::vector<float> found = run_shared(width, 1, gated, 1, DType::fp32, tokens);
    for (int64_t t = 0; t < tokens; ++t) {
      const std::vector<double> x = row_of({hidden, 8, 2, 48, true}, t, DType::fp32),
                                y = expert_output({hidden, 8, 2, width, true}, 500, x, exactly);
      double gate = 0;
      for (int64_t i = 0; i < hidden; ++i) gate += x[static_cast<size_t>(i)] * stored(501, 0, 0, i);
      const double factor = gated ? 1 / (1 + std::exp(-gate)) : 1;
      for (size_t i = 0; i < y.size(); ++i) {
        const size_t at = static_cast<size_t>(t) * y.size() + i;
        EXPECT_NEAR(found[at], routed[at] + factor * y[i], 1e-4);
      }
    }
  }
}

// 3 blocks on 2 and 4 ranks lie whole on each of them.
TEST(SharedExpert, HasTheBitsOfOneRankCutOrWhole) {
  for (const auto& [width, block] : {std::pair{96, 32}, {96, 1}, {72, 1}})
    for (const bool gated : {false, true}) {
      const std::vector<float> one = run_shared(width, block, gated, 1, DType::bf16, 37);
      for (const int tensor : {2, 4, 8})
        EXPECT_EQ(run_shared(width, block, gated, tensor, DType::bf16, 37), one)
            << width << " in blocks of " << block << ", tp " << tensor;
    }
}

TEST(SharedExpert, IsAddedUpTogetherWithTheRoutedSum) {
  constexpr int64_t tokens = 5, hidden = 64;
  for (const auto& [block, sums] : {std::pair{1, 2}, {32, 1}}) {  // whole on each rank, it is no sum
    CollectiveCounts calls, expected;
    run_shared(96, block, false, 2, DType::bf16, tokens, &calls);
    expected.add(CollectiveOp::all_reduce, static_cast<size_t>(sums * tokens * hidden) * sizeof(float), 0);
    for (size_t op = 0; op < calls.by_op.size(); ++op)
      for (size_t size = 0; size < CollectiveCounts::num_sizes; ++size) {
        EXPECT_EQ(calls.by_op[op][size].calls, expected.by_op[op][size].calls)
            << collective_op_names[op] << " of 2^" << size << " bytes";
        EXPECT_EQ(calls.by_op[op][size].bytes, expected.by_op[op][size].bytes);
      }
  }
}

TEST(SparseMoe, TakesNoTokens) {
  EXPECT_TRUE(run(cases[0], 4, 2, BackendKind::cpu, DType::bf16, 0).sum.empty());
}

// Of a layer with weights that are zeros, for some tokens.
uint64_t kernels_of(const WeightShape& format, int64_t tokens) {
  const Case shape{64, 8, 2, 48, true};
  uint64_t kernels = 0;
  run_ranks(1, [&](World& world) {
    RankPlan plan;
    plan.groups = groups_of(plan.grid, 0);
    const Backend backend = emulation::emulated_cuda_backend(1);
    std::atomic<bool> waits = false;
    const Groups groups = make_groups(world, plan, *backend.ops, AllReduce::messages, waits, {});
    SparseMoe layer("model.layers.0", config_of(shape), plan);
    Parameters parameters;
    layer.append_parameters(parameters);
    for (Parameter* parameter : parameters) {
      WeightShape weight = parameter->spec.fp32 ? WeightShape{} : format;
      weight.dtype = parameter->spec.type(DType::bf16);
      weight.rows = parameter->spec.rows;
      weight.columns = parameter->spec.columns;
      parameter->matrix = backend.ops->make_weight(weight);
    }
    layer.prepare(*backend.device);
    const Tensor x(*backend.device, DType::bf16, {tokens, shape.hidden});
    Workspace workspace(*backend.device, {16 << 20, 4 << 20});
    std::atomic<uint32_t> number = 0;
    ForwardContext context{*backend.ops, workspace, groups, DType::bf16, number};
    const uint64_t& launches = static_cast<emulation::EmulatedDevice&>(*backend.device).stream().launches;
    const uint64_t before = launches;
    layer.forward(x, context);
    kernels = launches - before;
  });
  return kernels;
}

// With few tokens its time is the number of its kernels: route and order, two products, their sum; roundings before products.
TEST(SparseMoe, OfFewTokensIsFewKernelsOfAGpu) {
  for (const int64_t tokens : {1, 5, 64}) {
    EXPECT_LE(kernels_of({}, tokens), 5);
    EXPECT_LE(kernels_of({.format = WeightFormat::int4, .group = 16, .zeros = true}, tokens), 5);
    for (const WeightFormat format : {WeightFormat::int8, WeightFormat::fp8})
      EXPECT_LE(kernels_of({.format = format, .activation = ActivationRule::per_token}, tokens), 7);
  }
  EXPECT_GT(kernels_of({}, 65), 5);  // the library multiplies
}

}  // namespace
}  // namespace maniple
