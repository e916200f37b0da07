#include <gtest/gtest.h>
#include <layers/rotary.hpp>
#include <layers/sampler.hpp>
#include <layers/vocab_embedding.hpp>
#include <support/random_tensors.hpp>

#include <algorithm>
#include <array>
#include <cmath>
#include <functional>
#include <numeric>

#include "layer_testing.hpp"

namespace maniple {
namespace {

using testing::fill;
using testing::Rank;
using testing::uniform;

constexpr int64_t vocabulary = 515, width = 8;
const testing::Sources sources{{"embed.weight", [](int64_t row, int64_t column) {
                                  return uniform(3, static_cast<uint64_t>(row * 100 + column));
                                }}};

TEST(VocabParallelEmbedding, GivesEveryRankTheRowsOfAllShards) {
  for (const int ranks : {1, 2, 3, 4, 8})
    run_ranks(ranks, [&](World& world) {
      Rank rank(world);
      ForwardContext context = rank.context();
      VocabParallelEmbedding embedding("embed", vocabulary, width, rank.place());
      Parameters parameters;
      embedding.append_parameters(parameters);
      fill(parameters, sources, *rank.backend.ops);
      const std::vector<int32_t> ids{0, 514, 64, 255, 256, 300, 511, 512};
      const TensorView out = embedding.forward(view_of(ids.data(), DType::int32, {8}), context);
      for (size_t i = 0; i < ids.size(); ++i)
        for (int64_t column = 0; column < width; ++column)
          EXPECT_EQ(out.as<float>()[static_cast<int64_t>(i) * width + column],
                    sources.at("embed.weight")(ids[i], column))
              << ranks;
    });
}

// Row r sits on seat rows - r.
struct Seating {
  explicit Seating(const std::vector<SamplerRow>& wanted) : rows(wanted), last_tokens(rows.size() + 1, -1) {
    for (size_t row = 0; row < rows.size(); ++row) {
      draws.push_back(rows[row].draw);
      seats.push_back(static_cast<int32_t>(rows.size() - row));
      if (rows[row].draw.filtered_by_candidates()) listed.push_back(static_cast<int32_t>(row));
      if (rows[row].needs_full_logits()) full.push_back(static_cast<int32_t>(row));
      if (rows[row].logprobs < 0) continue;
      scored.push_back(static_cast<int32_t>(row));
      given.push_back(rows[row].given);
    }
  }
  SamplerBatch batch() {
    const auto ints = [](std::vector<int32_t>& v) {
      return view_of(v.data(), DType::int32, {static_cast<int64_t>(v.size())});
    };
    return {rows, draws, ints(seats), ints(listed), ints(full), ints(scored), ints(given), ints(last_tokens)};
  }

  const std::vector<SamplerRow>& rows;
  std::vector<SamplingRow> draws;
  std::vector<int32_t> seats, listed, full, scored, given, last_tokens;
};

// The same logits, sharded over any number of ranks, give the same draws and the same bits of
// log-probabilities.
TEST(Sampler, DrawsTheSameOverAnyNumberOfShards) {
  std::vector<SamplerRow> rows;
  for (uint32_t i = 0; i < 40; ++i) {
    SamplerRow& row = rows.emplace_back();
    row.draw = {i % 4 == 0 ? 0.0F : 0.5F + 0.05F * static_cast<float>(i),
                i % 3 == 1 ? 20 : 0,
                i % 5 == 2 ? 0.7F : 1.0F,
                0,
                i,
                i};
    row.logprobs =
        i % 10 == 9 ? 300 : static_cast<int32_t>(i % 4) - 1;  // 300: more than a shard of eight has
    if (row.logprobs >= 0 && i % 3 == 0) row.given = static_cast<int32_t>(13 * i);
  }
  // Some are equal.
  const auto logit = [](uint64_t row, int64_t id) {
    return std::round(256 * uniform(row, static_cast<uint64_t>(id))) / 64;
  };
  std::vector<SampledRow> expected;
  for (const int ranks : {1, 2, 4, 8})
    run_ranks(ranks, [&](World& world) {
      Rank rank(world);
      ForwardContext context = rank.context();
      const VocabularyShard shard = vocabulary_shard(vocabulary, ranks, world.rank());
      std::vector<float> logits;
      for (uint64_t row = 0; row < rows.size(); ++row)
        for (int64_t id = shard.padded.begin; id < shard.padded.end; ++id)
          logits.push_back(id < vocabulary ? logit(row, id) : 1e9F);
      const Shape shape{static_cast<int64_t>(rows.size()), shard.padded.size()};
      Seating seating(rows);
      PendingRows pending = Sampler(vocabulary, shard)
                                .launch(view_of(logits.data(), DType::fp32, shape), seating.batch(), context);
      std::fill(logits.begin(), logits.end(), NAN);  // the next step's
      const std::vector<SampledRow> sampled = pending.wait();
      for (size_t row = 0; row < rows.size(); ++row)
        EXPECT_EQ(seating.last_tokens.at(rows.size() - row), sampled[row].id) << "row " << row;
      if (ranks == 1) expected = sampled;
      for (size_t row = 0; row < rows.size(); ++row) {
        EXPECT_EQ(sampled[row].id, expected[row].id) << "row " << row << ", ranks " << ranks;
        EXPECT_EQ(sampled[row].logprob, expected[row].logprob) << "row " << row << ", ranks " << ranks;
        EXPECT_EQ(sampled[row].alternatives.size(), expected[row].alternatives.size());
        for (size_t i = 0; i < sampled[row].alternatives.size(); ++i) {
          EXPECT_EQ(sampled[row].alternatives[i].id, expected[row].alternatives[i].id);
          EXPECT_EQ(sampled[row].alternatives[i].logit, expected[row].alternatives[i].logit);
        }
      }
    });

  for (size_t row = 0; row < rows.size(); ++row) {  // and they match the definition
    double sum = 0;
    float largest = -INFINITY;
    for (int64_t id = 0; id < vocabulary; ++id) {
      sum += std::exp(double{logit(row, id)});
      largest = std::max(largest, logit(row, id));
    }
    if (rows[row].logprobs >= 0) {
      const int32_t token = rows[row].given >= 0 ? rows[row].given : expected[row].id;
      EXPECT_NEAR(expected[row].logprob, logit(row, token) - std::log(sum), 1e-5);
    }
    if (rows[row].draw.temperature == 0) {
      EXPECT_EQ(logit(row, expected[row].id), largest);
    }
    std::vector<int64_t> order(vocabulary);
    std::iota(order.begin(), order.end(), int64_t{0});
    std::ranges::stable_sort(order, std::greater(), [&](int64_t id) { return logit(row, id); });
    ASSERT_EQ(expected[row].alternatives.size(), static_cast<size_t>(std::max(rows[row].logprobs, 0)));
    for (size_t i = 0; i < expected[row].alternatives.size(); ++i)
      EXPECT_EQ(expected[row].alternatives[i].id, order[i]) << "row " << row << ", alternative " << i;
  }
}

// What a draw's filters leave of a distribution, by the definition.
std::vector<double> kept_probabilities(const std::vector<float>& logits, const SamplingRow& how) {
  std::vector<size_t> order(logits.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::ranges::stable_sort(order, [&](size_t a, size_t b) { return logits[a] > logits[b]; });
  std::vector<double> weights(logits.size());
  const auto share = [&](size_t token) {
    return std::exp(double{logits[token] - logits[order[0]]} / how.temperature);
  };
  double all = 0, sum = 0;
  std::vector<size_t> kept;
  for (const size_t token : order)
    if ((how.top_k == 0 || kept.size() < static_cast<size_t>(how.top_k)) && share(token) >= how.min_p)
      kept.push_back(token);
  for (const size_t token : kept) all += share(token);
  for (const size_t token : kept) {
    weights[token] = share(token);
    if ((sum += weights[token]) >= double{how.top_p} * all) break;
  }
  for (double& weight : weights) weight /= sum;
  return weights;
}

TEST(Sampler, CopiesNoLogitsWhereOneRankHasThemAll) {
  std::vector<SamplerRow> rows(64);
  for (uint32_t row = 0; row < rows.size(); ++row) rows[row].draw = {0.8F, 0, 0.9F, 0, row, row};
  for (const int ranks : {1, 2})
    run_ranks(ranks, [&](World& world) {
      Rank rank(world);
      ForwardContext context = rank.context();
      const VocabularyShard shard = vocabulary_shard(vocabulary, ranks, world.rank());
      std::vector<float> logits(rows.size() * static_cast<size_t>(shard.padded.size()), 1);
      const TensorView view = view_of(logits.data(), DType::fp32, {64, shard.padded.size()});
      Seating seating(rows);
      Sampler(vocabulary, shard).launch(view, seating.batch(), context).wait();
      EXPECT_EQ(context.workspace.peak().scratch >= view.bytes(), ranks > 1);
    });
}

// Pearson's chi-square of 10^5 draws; a right sampler fails once in 10^6 (the quantile is Wilson and Hilferty's). Two draws of a request, and
// one of two, share nothing.
TEST(Sampler, DrawsFromTheDistribution) {
  constexpr size_t tokens = 40, rows = 1000, rounds = 100;
  std::vector<float> logits;
  for (uint64_t id = 0; id < tokens; ++id) logits.push_back(2 * uniform(77, id));
  for (const SamplingRow& how :
       {SamplingRow{.temperature = 1}, SamplingRow{.temperature = 0.6F, .top_k = 12},
        SamplingRow{.temperature = 1.5F, .top_p = 0.8F}, SamplingRow{.temperature = 0.9F, .min_p = 0.1F},
        SamplingRow{.temperature = 1.2F, .top_k = 30, .top_p = 0.9F, .min_p = 0.02F}}) {
    const std::vector<double> expected = kept_probabilities(logits, how);
    std::vector<double> seen(tokens);
    run_ranks(2, [&](World& world) {
      Rank rank(world);
      ForwardContext context = rank.context();
      const VocabularyShard shard = vocabulary_shard(tokens, 2, world.rank());
      std::vector<float> all;
      for (size_t row = 0; row < rows; ++row)
        for (int64_t id = shard.padded.begin; id < shard.padded.end; ++id)
          all.push_back(id < static_cast<int64_t>(tokens) ? logits[static_cast<size_t>(id)] : 1e9F);
      const TensorView view = view_of(all.data(), DType::fp32, {rows, shard.padded.size()});
      for (uint32_t round = 0; round < rounds; ++round) {
        std::vector<SamplerRow> draws(rows, {how});
        for (uint32_t row = 0; row < rows; ++row) {
          draws[row].draw.seed = round % 2 == 0 ? row : 5;
          draws[row].draw.position = round % 2 == 0 ? round : 1000 * round + row;
        }
        Seating seating(draws);
        for (const SampledRow& drawn : Sampler(tokens, shard).launch(view, seating.batch(), context).wait())
          if (world.rank() == 0) ++seen[static_cast<size_t>(drawn.id)];
      }
    });
    double statistic = 0, freedom = -1;
    for (size_t id = 0; id < tokens; ++id) {
      const double mean = expected[id] * rows * rounds;
      if (mean == 0) {
        EXPECT_EQ(seen[id], 0) << "a token that the filters drop";
        continue;
      }
      statistic += (seen[id] - mean) * (seen[id] - mean) / mean;
      ++freedom;
    }
    const double spread = 2 / (9 * freedom);
    EXPECT_LT(statistic, freedom * std::pow(1 - spread + 4.753 * std::sqrt(spread), 3)) << freedom;
    EXPECT_GT(freedom, 3);
  }
}

// Adjusted rows: the same draws on any number of shards, of the adjusted logits; log-probabilities of the raw ones.
TEST(Sampler, AdjustsTheSameOverAnyNumberOfShards) {
  constexpr int32_t count = 24, length = 40, prompt_length = 15;
  std::vector<SamplerRow> rows;
  std::vector<AdjustedRow> adjusted;
  std::vector<int32_t> tokens, blocks, lists;
  for (int32_t i = 0; i < count; ++i) {
    rows.push_back(
        {{i % 4 == 0 ? 0.0F : 0.8F, i % 3 == 1 ? 20 : 0, i % 5 == 2 ? 0.7F : 1.0F, 0, 1, 40}, i % 4 - 1});
    if (i % 6 != 5) adjusted.push_back({i, i, length, prompt_length, 1.5F, 0.25F, 0.5F, 0});
    for (int32_t at = 0; at < length; ++at) tokens.push_back((i * 7 + at * at) % 150);
    blocks.push_back(i);
    std::vector<int32_t> words =
        words_of_lists({.logit_bias = {{9, 3}, {149, 4}}, .bad_word_ids = {{149}}}, vocabulary);
    words.resize(static_cast<size_t>(most_list_words(vocabulary)));
    lists.insert(lists.end(), words.begin(), words.end());
  }
  const auto logit = [](int64_t row, int64_t id) {
    return 4 * uniform(static_cast<uint64_t>(row), static_cast<uint64_t>(id));
  };
  std::vector<SampledRow> expected;
  for (const int ranks : {1, 2, 3, 4})
    run_ranks(ranks, [&](World& world) {
      Rank rank(world);
      ForwardContext context = rank.context();
      const VocabularyShard shard = vocabulary_shard(vocabulary, ranks, world.rank());
      std::vector<float> logits;
      for (int32_t row = 0; row < count; ++row)
        for (int64_t id = shard.padded.begin; id < shard.padded.end; ++id)
          logits.push_back(id < vocabulary ? logit(row, id) : 1e9F);
      Seating seating(rows);
      SamplerBatch batch = seating.batch();
      batch.adjusted = adjusted;
      batch.tables = {tokens, blocks, lists, length,
                      1,      0,      1,     static_cast<int32_t>(most_list_words(vocabulary))};
      const std::vector<SampledRow> sampled =
          Sampler(vocabulary, shard)
              .launch(view_of(logits.data(), DType::fp32, {count, shard.padded.size()}), batch, context)
              .wait();
      if (ranks == 1) expected = sampled;
      for (size_t row = 0; row < count; ++row) {
        EXPECT_EQ(sampled[row].id, expected[row].id) << "row " << row << ", ranks " << ranks;
        EXPECT_NEAR(sampled[row].logprob, expected[row].logprob, 1e-5);
        ASSERT_EQ(sampled[row].alternatives.size(), expected[row].alternatives.size());
        for (size_t i = 0; i < sampled[row].alternatives.size(); ++i)
          EXPECT_EQ(sampled[row].alternatives[i].id, expected[row].alternatives[i].id);
      }
    });
  size_t others = 0;
  for (int32_t row = 0; row < count; ++row) {
    const SampledRow& found = expected[static_cast<size_t>(row)];
    double sum = 0;
    int64_t best = 0;
    for (int64_t id = 0; id < vocabulary; ++id) {
      sum += std::exp(double{logit(row, id)});
      if (logit(row, id) > logit(row, best)) best = id;
    }
    if (rows[static_cast<size_t>(row)].logprobs >= 0) {
      EXPECT_NEAR(found.logprob, logit(row, found.id) - std::log(sum), 1e-5) << row;
    }
    if (row % 6 != 5) {
      EXPECT_NE(found.id, 149);
    }
    others += row % 4 == 0 && found.id != best;
  }
  EXPECT_GT(others, 0u);  // or nothing was adjusted
}

TEST(Rotary, KeepsFastAndDividesSlowFrequenciesOfLlama3) {
  const RotaryConfig config{RotaryType::llama3, 500000.0, 8.0, 1.0, 4.0, 8192};
  const std::vector<double> plain = rotary_frequencies({.theta = 500000.0}, 128),
                            scaled = rotary_frequencies(config, 128);
  EXPECT_DOUBLE_EQ(scaled[0], plain[0]);
  EXPECT_DOUBLE_EQ(scaled[63], plain[63] / 8);
  for (size_t i = 0; i < scaled.size(); ++i) {
    EXPECT_LE(scaled[i], plain[i]);
    EXPECT_GE(scaled[i], plain[i] / 8);
  }
  const std::vector<float> table = rotary_table({}, 4, 4, 3);
  EXPECT_FLOAT_EQ(table[2 * 4 + 1], std::cos(2 * 0.01F));
  EXPECT_FLOAT_EQ(table[2 * 4 + 3], std::sin(2 * 0.01F));
}

// Frequencies of pairs 0, 8, 16, 24 and the last: of a script that follows the definition in transformers.
TEST(Rotary, HasTheFrequenciesOfYarn) {
  struct Stored {
    double theta, factor;
    int64_t width, original;
    double beta_fast, beta_slow;
    bool truncate;
    std::array<double, 5> frequencies;
  };
  for (const Stored& stored :
       {Stored{1e4, 40, 64, 4096, 32, 1, true, {1, 0.1, 0.0055, 2.5e-05, 3.33380358040831e-06}},
        {5e4,
         32,
         64,
         4096,
         1,
         1,
         true,
         {1, 0.0668740304976422, 0.00447213595499958, 9.345929882632628e-06, 8.764412911589875e-07}},
        {1.5e5,
         32,
         64,
         4096,
         32,
         1,
         false,
         {1, 0.050813274815461475, 0.00045648391922324086, 4.0999784818029795e-06, 3.0235114281192144e-07}},
        {1e6,
         4,
         128,
         32768,
         32,
         1,
         true,
         {1, 0.17782794100389226, 0.03162277660168379, 0.005375321490790102, 3.102344401879299e-07}}}) {
    RotaryConfig config{.type = RotaryType::yarn, .theta = stored.theta, .factor = stored.factor};
    config.original_max_position_embeddings = stored.original;
    config.beta_fast = stored.beta_fast;
    config.beta_slow = stored.beta_slow;
    config.truncate = stored.truncate;
    const std::vector<double> found = rotary_frequencies(config, stored.width);
    const size_t pairs[] = {0, 8, 16, 24, found.size() - 1};
    for (size_t i = 0; i < 5; ++i)
      EXPECT_NEAR(found[pairs[i]] / stored.frequencies[i], 1, 1e-12) << stored.theta << " pair " << pairs[i];
  }
  RotaryConfig config{.type = RotaryType::yarn, .factor = 40, .original_max_position_embeddings = 4096};
  EXPECT_DOUBLE_EQ(rotary_amplitude(config), 1.3688879454113936);
  config.mscale = 0.707;
  config.mscale_all_dim = 1;
  EXPECT_DOUBLE_EQ(rotary_amplitude(config), 0.9210423553163399);
  config.attention_factor = 1.25;
  EXPECT_DOUBLE_EQ(rotary_amplitude(config), 1.25);
  const std::vector<float> table = rotary_table(config, 4, 8, 1);
  EXPECT_EQ(table, (std::vector<float>{1.25F, 1.25F, 1, 1, 0, 0, 0, 0})) << "lanes of the padding stay";
}

}  // namespace
}  // namespace maniple
