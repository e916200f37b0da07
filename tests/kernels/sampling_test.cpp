#include <kernels/reference/noise.hpp>
#include <kernels/subjects.hpp>
#include <support/cover.hpp>

#include <numeric>
#include <set>

namespace maniple {
namespace {

using namespace testing;

constexpr float infinity = std::numeric_limits<float>::infinity();
constexpr float nan = std::numeric_limits<float>::quiet_NaN();

SamplingRow row_of(float temperature, uint64_t seed = 1, uint32_t position = 0) {
  SamplingRow row;
  row.temperature = temperature;
  row.seed = seed;
  row.position = position;
  return row;
}

class Sampling : public Conformance {
 protected:
  Tensor logits_of(const std::vector<std::vector<float>>& rows, int64_t width) {
    Tensor logits(device(), DType::fp32, {static_cast<int64_t>(rows.size()), width});
    fill(logits, nan);  // padding
    for (size_t r = 0; r < rows.size(); ++r)
      std::copy(rows[r].begin(), rows[r].end(), logits.view().as<float>() + static_cast<int64_t>(r) * width);
    return logits;
  }
  std::vector<Candidate> best(ConstTensorView logits, IndexRange vocabulary,
                              const std::vector<SamplingRow>& rows) {
    std::vector<Candidate> out(rows.size());
    ops().best_candidates(PoisonedRows(device(), logits).view(), vocabulary, rows, {}, out);
    return out;
  }
  // Cuts [rows, width] into [shards, rows, width / shards].
  Tensor gathered(ConstTensorView logits, int64_t shards) {
    const int64_t rows = logits.shape[0], width = logits.shape[1], part = width / shards;
    Tensor cut(device(), DType::fp32, {shards, rows, part});
    for (int64_t row = 0; row < rows; ++row)
      for (int64_t i = 0; i < width; ++i)
        set(cut, (i / part * rows + row) * part + i % part, get(logits, row * width + i));
    return cut;
  }
  // Over shards of whole logits [rows, width]: cuts, draws, and the winners.
  std::vector<Candidate> filtered(ConstTensorView logits, int64_t shards, int64_t vocabulary_size,
                                  const std::vector<SamplingRow>& rows, Ops& ops) {
    std::vector<int32_t> listed, whole;
    for (size_t row = 0; row < rows.size(); ++row)
      (rows[row].filtered_by_candidates() ? listed : whole).push_back(static_cast<int32_t>(row));
    const auto ints = [](const std::vector<int32_t>& values) {
      return view_of(values.data(), DType::int32, {static_cast<int64_t>(values.size())});
    };
    const auto count = static_cast<int64_t>(rows.size()), part = logits.shape[1] / shards;
    const Tensor cut = gathered(logits, shards);
    const auto shard = [&](int64_t i) { return cut.view().rows(i, 1).reshaped({count, part}); };
    const auto ids = [&](int64_t i) {
      return IndexRange{std::min(i * part, vocabulary_size), std::min((i + 1) * part, vocabulary_size)};
    };
    std::vector<CandidateList> lists;
    for (int64_t i = 0; i < shards; ++i) {
      std::vector<CandidateList> mine(listed.size());
      if (!listed.empty()) ops.candidates(shard(i), ids(i), ints(listed), mine);
      lists.insert(lists.end(), mine.begin(), mine.end());
    }
    Tensor of_whole(device(), DType::fp32, {shards, static_cast<int64_t>(whole.size()), part});
    for (int64_t i = 0; i < of_whole.view().shape.elements(); ++i)
      set(of_whole, i,
          get(cut, (i / part / std::ssize(whole) * count +
                    whole[static_cast<size_t>(i / part % std::ssize(whole))]) *
                           part +
                       i % part));
    std::vector<Candidate> drawn, winners(rows.size());
    for (int64_t i = 0; i < shards; ++i) {
      std::vector<Cut> cuts(rows.size(), Cut{nan, -7});
      if (!listed.empty()) ops.filter_candidates(lists, shard(i), ids(i), ints(listed), rows, cuts);
      if (!whole.empty())  // of one shard in its place
        ops.filter_logits(shards == 1 ? ConstTensorView(cut) : of_whole, vocabulary_size, ints(whole), rows,
                          cuts);
      std::vector<Candidate> mine(rows.size());
      ops.best_candidates(shard(i), ids(i), rows, cuts, mine);
      drawn.insert(drawn.end(), mine.begin(), mine.end());
    }
    const std::vector<int32_t> seats(rows.size(), -1);
    Tensor none(device(), DType::int32, {1});
    ops.choose(drawn, ints(seats), winners, none);
    return winners;
  }
  std::vector<Candidate> filtered(ConstTensorView logits, int64_t shards, int64_t vocabulary_size,
                                  const std::vector<SamplingRow>& rows) {
    return filtered(logits, shards, vocabulary_size, rows, ops());
  }
};
INSTANTIATE_TEST_SUITE_P(Every, Sampling, ::testing::ValuesIn(all_subjects()), name_of_subject);

bool equal(const Candidate& a, const Candidate& b) {
  return a.id == b.id && a.score == b.score && a.logit == b.logit;
}

std::vector<float> random_logits(int64_t count, uint64_t seed, float scale) {
  std::vector<float> logits;
  for (int64_t i = 0; i < count; ++i) logits.push_back(scale * uniform(seed, static_cast<uint64_t>(i)));
  return logits;
}

TEST_P(Sampling, TemperatureZeroIsTheArgmaxWithTiesToTheLowestIdInAMixedBatch) {
  std::vector<std::vector<float>> rows;
  std::vector<SamplingRow> how;
  for (uint64_t r = 0; r < 12; ++r) {
    rows.push_back(random_logits(100, r, 1));
    rows.back()[90 - r] = rows.back()[95] = 5;
    how.push_back(row_of(r % 3 == 2 ? 1.0f : 0.0f));
  }
  const Tensor logits = logits_of(rows, 128);
  const std::vector<Candidate> drawn = best(logits, {1000, 1100}, how);
  for (size_t r = 0; r < 12; ++r) {
    if (r % 3 == 2) continue;
    EXPECT_EQ(drawn[r].id, 1090 - static_cast<int>(r));
    EXPECT_EQ(drawn[r].score, 5);
    EXPECT_EQ(drawn[r].logit, 5);
  }
}

TEST_P(Sampling, OddLogitsGiveNoTokenWhateverTheFilters) {
  const std::vector<float> usual = random_logits(37, 1, 1);
  std::vector<float> with_nan = usual, one_finite(37, -infinity), infinities = usual;
  with_nan[3] = nan;
  one_finite[20] = -1e30f;
  infinities[30] = infinities[33] = infinity;
  const Tensor logits = logits_of(
      {std::vector<float>(37, nan), std::vector<float>(37, -infinity), one_finite, with_nan, infinities}, 64);
  for (const float temperature : {0.0f, 0.7f}) {
    std::vector<SamplingRow> how(5, row_of(temperature));
    for (int filters = 0; filters < 3; ++filters) {
      for (SamplingRow& row : how) {
        row.top_p = filters == 1 ? 0.5f : 1;
        row.min_p = filters == 2 ? 0.1f : 0;
        row.top_k = filters == 2 ? 5 : 0;
      }
      for (const Candidate& candidate : filtered(logits, 4, 37, how)) EXPECT_TRUE(equal(candidate, no_token));
    }
  }
}

// Of two shards one has such a logit; the seat of the row then keeps id 0.
TEST_P(Sampling, ALogitThatIsNotFiniteWinsOverAllShards) {
  for (const float odd : {nan, infinity, -infinity})
    for (const int64_t place : {0, 3, 17, 36}) {
      std::vector<float> bad = random_logits(37, 3, 1);
      bad[static_cast<size_t>(place)] = odd;
      const std::vector<SamplingRow> how{row_of(0), row_of(0.7f)};
      const std::vector<Candidate> one = best(logits_of({bad, random_logits(37, 4, 1)}, 64), {0, 37}, how),
                                   other =
                                       best(logits_of({random_logits(37, 5, 1), random_logits(37, 6, 1)}, 64),
                                            {37, 74}, how);
      ASSERT_TRUE(equal(one[0], no_token));
      ASSERT_GE(one[1].id, 0);
      Tensor seats(device(), DType::int32, {2}), last_tokens(device(), DType::int32, {3});
      for (const int i : {0, 1}) seats.view().as<int32_t>()[i] = i + 1;
      std::vector<Candidate> gathered = other, chosen(2);
      gathered.insert(gathered.end(), one.begin(), one.end());
      ops().choose(gathered, seats.view(), chosen, last_tokens.view());
      EXPECT_TRUE(equal(chosen[0], no_token));
      EXPECT_EQ(last_tokens.view().as<int32_t>()[1], 0);
      EXPECT_EQ(last_tokens.view().as<int32_t>()[2], chosen[1].id);
    }
}

TEST_P(Sampling, AnEmptyShardProposesNothing) {
  const Tensor logits = logits_of({{}, {}}, 64);
  for (const Candidate& candidate : best(logits, {640, 640}, {row_of(0), row_of(1)})) {
    EXPECT_EQ(candidate.score, -infinity);
    EXPECT_EQ(candidate.id, std::numeric_limits<int32_t>::max());
  }
  std::vector<float> maxima(2), sums(8);
  ops().row_maxima(logits, {640, 640}, maxima);
  EXPECT_EQ(maxima, std::vector<float>(2, -infinity));
  ops().exp_sums(logits, {640, 640}, std::vector<float>{1, 2}, 4, sums);
  EXPECT_EQ(sums, std::vector<float>(8, 0.0f));
}

// The noise itself: a shard of one token with logit 0. Eight units in the last place of values up to 22.
TEST_P(Sampling, NoiseIsTheSpecifiedGumbelOfSeedPositionAndId) {
  const Tensor zero = zeroed(device(), DType::fp32, {200, 1});
  std::vector<int32_t> ids(500);
  std::iota(ids.begin(), ids.end(), 0);
  if (GetParam().emulated) ids = sampled(ids, 125);
  double sum = 0, squares = 0;
  for (const int32_t id : ids) {
    std::vector<SamplingRow> how;
    for (uint32_t r = 0; r < 200; ++r) how.push_back(row_of(1, r % 7, r));
    const std::vector<Candidate> drawn = best(zero, {id * 300, id * 300 + 1}, how);
    for (uint32_t r = 0; r < 200; ++r) {
      const double w = noise_uniform(noise_key(how[r].seed, r), static_cast<uint32_t>(id) * 300);
      const double noise = -std::log(-std::log1p(-w));
      ASSERT_NEAR(drawn[r].score, noise, 1e-6 * std::max(1.0, std::abs(noise)));
      sum += noise;
      squares += noise * noise;
    }
  }
  // Mean 0.57722 and variance 1.64493 of a Gumbel variable; five standard errors (error rate below 1e-6).
  const double draws = 200 * static_cast<double>(ids.size()), mean = sum / draws,
               variance = squares / draws - mean * mean;
  EXPECT_NEAR(mean, 0.57722, 5 * 1.2825 / std::sqrt(draws));
  EXPECT_NEAR(variance, 1.64493, 5 * 3.45 / std::sqrt(draws));
}

TEST(Noise, IsNeverAboveItsCeilingNorFarBelowWhereItIsLarge) {
  for (uint32_t position = 0; position < 20; ++position)
    for (uint32_t id = 0; id < 100000; ++id) {
      const NoiseKey key = noise_key(3, position);
      const float noise = gumbel_noise(key, id), gap = noise_ceiling(key, id) - noise;
      ASSERT_GE(gap, 0) << noise_uniform(key, id);
      ASSERT_LE(gap, 0.07f + std::exp(-noise)) << noise_uniform(key, id);
    }
}

// Sum of (observed - expected)^2 / expected.
double chi_square(const std::vector<int>& counts, const std::vector<double>& probabilities) {
  double draws = 0, sum = 0;
  for (const int count : counts) draws += count;
  for (size_t i = 0; i < counts.size(); ++i)
    sum += std::pow(counts[i] - draws * probabilities[i], 2) / (draws * probabilities[i]);
  return sum;
}

TEST_P(Sampling, HundredThousandDrawsFollowTheDistribution) {
  const float temperature = 0.8f;
  const std::vector<float> logits = random_logits(10, 3, 1.5f);
  std::vector<double> probabilities;
  double total = 0;
  for (const float logit : logits)
    total += std::exp(static_cast<double>(logit) / static_cast<double>(temperature));
  for (const float logit : logits)
    probabilities.push_back(std::exp(static_cast<double>(logit) / static_cast<double>(temperature)) / total);
  const Tensor rows = logits_of(std::vector<std::vector<float>>(1000, logits), 64);
  // Along positions of one request, and over seeds at one
  // position. Adjacent pairs are independent too (100 cells).
  std::vector<bool> ways{false, true};
  if (GetParam().emulated) ways = sampled(ways, 1);
  for (const bool over_seeds : ways) {
    std::vector<int> counts(10), pairs(100);
    int previous = 0;
    for (uint32_t batch = 0; batch < 100; ++batch) {
      std::vector<SamplingRow> how;
      for (uint32_t r = 0; r < 1000; ++r) {
        const uint32_t draw = batch * 1000 + r;
        how.push_back(over_seeds ? row_of(temperature, draw, 5) : row_of(temperature, 5, draw));
      }
      for (const Candidate& candidate : best(rows, {0, 10}, how)) {
        ++counts[static_cast<size_t>(candidate.id)];
        ++pairs[static_cast<size_t>(previous * 10 + candidate.id)];
        previous = candidate.id;
      }
    }
    std::vector<double> pair_probabilities;
    for (const double a : probabilities)
      for (const double b : probabilities) pair_probabilities.push_back(a * b);
    EXPECT_LT(chi_square(counts, probabilities), 44.8);       // 9 degrees of freedom, error rate 1e-6
    EXPECT_LT(chi_square(pairs, pair_probabilities), 180.8);  // 99 degrees of freedom, error rate 1e-6
  }
}

TEST_P(Sampling, ADrawDependsOnSeedPositionAndLogitsAloneWhateverTheBatchAndTheShards) {
  constexpr int64_t vocabulary = 1000, width = 1024;
  std::vector<std::vector<float>> rows;
  std::vector<SamplingRow> how;
  for (uint32_t r = 0; r < 9; ++r) {
    rows.push_back(random_logits(vocabulary, r, 4));
    how.push_back(row_of(0.5f + 0.1f * static_cast<float>(r), r * 77, r * 3));
  }
  const Tensor logits = logits_of(rows, width);
  const std::vector<Candidate> together = best(logits, {0, vocabulary}, how);
  for (int64_t r = 0; r < 9; ++r) {
    const auto i = static_cast<size_t>(r);
    EXPECT_TRUE(equal(best(logits.view().rows(r, 1), {0, vocabulary}, {how[i]})[0], together[i]));
  }
  for (const int64_t shards : {2, 4, 8}) {
    const Tensor cut = gathered(logits, shards);
    const int64_t part = width / shards;
    std::vector<Candidate> winners(9, Candidate{-infinity, std::numeric_limits<int32_t>::max(), 0});
    for (int64_t shard = 0; shard < shards; ++shard) {
      const IndexRange ids{shard * part, std::min((shard + 1) * part, vocabulary)};
      const auto found = best(cut.view().rows(shard, 1).reshaped({9, part}), ids, how);
      for (size_t r = 0; r < 9; ++r)
        if (found[r].score > winners[r].score) winners[r] = found[r];
    }
    for (size_t r = 0; r < 9; ++r) EXPECT_TRUE(equal(winners[r], together[r]));
  }
}

struct Filters {
  int32_t top_k;
  float top_p, min_p;
};
constexpr Filters all_filters[] = {{1, 1, 0},          {3, 1, 0},       {50, 1, 0},      {999, 1, 0},
                                   {0, 0.9f, 0},       {0, 0.3f, 0},    {0, 1e-6f, 0},   {0, 1, 0.1f},
                                   {0, 1, 1.0f},       {20, 0.8f, 0},   {900, 0.95f, 0}, {5, 1, 0.05f},
                                   {100, 0.7f, 0.01f}, {0, 0.9999f, 0}, {2000, 0.9f, 0}, {1500, 0.95f, 1e-3f},
                                   {500, 1, 1e-9f}};

SamplingRow with(SamplingRow row, const Filters& filters) {
  row.top_k = filters.top_k;
  row.top_p = filters.top_p;
  row.min_p = filters.min_p;
  return row;
}

// The tokens that pass, by the plain definition, in double precision.
std::set<int32_t> survivors(const std::vector<float>& logits, const SamplingRow& row) {
  std::vector<std::pair<double, int32_t>> order;  // (-logit, id)
  for (size_t i = 0; i < logits.size(); ++i)
    order.push_back({-static_cast<double>(logits[i]), static_cast<int32_t>(i)});
  std::sort(order.begin(), order.end());
  const double temperature = static_cast<double>(row.temperature), top = order[0].first;
  const auto share = [&](size_t i) { return std::exp((top - order[i].first) / temperature); };
  size_t kept = order.size();
  while (row.min_p > 0 && share(kept - 1) < static_cast<double>(row.min_p)) --kept;
  if (const auto k = static_cast<size_t>(row.top_k); k > 0 && k < kept)
    while (order[kept - 1].first > order[k - 1].first) --kept;
  double total = 0, sum = 0;
  for (size_t i = 0; i < kept; ++i) total += share(i);
  size_t nucleus = 0;
  while (nucleus < kept && (row.top_p >= 1 || nucleus == 0 || sum < static_cast<double>(row.top_p) * total))
    sum += share(nucleus++);
  std::set<int32_t> ids;
  for (size_t i = 0; i < nucleus; ++i) ids.insert(order[i].second);
  return ids;
}

TEST_P(Sampling, RowsWithFiltersAreLeftOutWithoutCuts) {
  std::vector<SamplingRow> how{row_of(0.8f, 1, 2), with(row_of(0.8f, 1, 2), {3, 0.9f, 0}), row_of(0)};
  const Tensor logits = logits_of(std::vector<std::vector<float>>(3, random_logits(100, 1, 1)), 128);
  const std::vector<Candidate> drawn = best(logits, {0, 100}, how);
  EXPECT_TRUE(equal(drawn[1], {-infinity, std::numeric_limits<int32_t>::max(), -infinity}));
  how.erase(how.begin() + 1);
  const std::vector<Candidate> others = best(logits.view().rows(0, 2), {0, 100}, how);
  EXPECT_TRUE(equal(drawn[0], others[0]) && equal(drawn[2], others[1]));
}

TEST_P(Sampling, FiltersKeepExactlyTheTokensOfTheDefinition) {
  constexpr int64_t vocabulary = 1000, width = 1024;
  std::vector<std::vector<float>> rows{random_logits(vocabulary, 1, 8), random_logits(vocabulary, 2, 1),
                                       std::vector<float>(vocabulary, 0.5f)};
  for (size_t i = 0; i < rows[1].size(); ++i) rows[1][i] = std::round(rows[1][i] * 8) / 8;  // many ties
  for (const auto& [logits, filters] :
       each_value(rows, std::vector<Filters>(std::begin(all_filters), std::end(all_filters)))) {
    SCOPED_TRACE(fmt::format("top_k {} top_p {} min_p {}", filters.top_k, filters.top_p, filters.min_p));
    const SamplingRow how = with(row_of(0.9f), filters);
    const std::set<int32_t> allowed = survivors(logits, how);
    // Only allowed tokens have a logit that can win in the rival row: the filtered
    // draw must take the token that an unfiltered draw over them takes.
    std::vector<float> rest(vocabulary, -1e30f);
    for (const int32_t id : allowed) rest[static_cast<size_t>(id)] = logits[static_cast<size_t>(id)];
    std::vector<SamplingRow> many, plain;
    for (uint32_t position = 0; position < 64; ++position) {
      many.push_back(with(row_of(0.9f, 11, position), filters));
      plain.push_back(row_of(0.9f, 11, position));
    }
    const Tensor full = logits_of(std::vector<std::vector<float>>(64, logits), width);
    const Tensor rival = logits_of(std::vector<std::vector<float>>(64, rest), width);
    const std::vector<Candidate> drawn = filtered(full, 2, vocabulary, many),
                                 expected = best(rival, {0, vocabulary}, plain);
    for (size_t i = 0; i < 64; ++i)
      ASSERT_TRUE(equal(drawn[i], expected[i])) << drawn[i].id << " for " << expected[i].id;
  }
}

TEST_P(Sampling, FilteredDrawsDoNotDependOnShardsOrBatchAndFiltersThatRemoveNothingChangeNothing) {
  constexpr int64_t vocabulary = 1000, width = 1024;
  std::vector<std::vector<float>> rows;
  std::vector<SamplingRow> how, open, plain;
  for (uint32_t r = 0; r < std::size(all_filters); ++r) {
    rows.push_back(random_logits(vocabulary, r, 6));
    if (r % 3 == 2)  // many ties
      for (float& logit : rows.back()) logit = std::round(logit / 4);
    plain.push_back(row_of(0.8f, r, r));
    how.push_back(with(plain.back(), all_filters[r]));
    open.push_back(with(plain.back(), r % 2 ? Filters{vocabulary, 1, 0} : Filters{0, 1, 1e-30f}));
  }
  const Tensor logits = logits_of(rows, width);
  const std::vector<Candidate> together = filtered(logits, 1, vocabulary, how);
  for (const int64_t shards : {2, 4, 8}) {
    const std::vector<Candidate> drawn = filtered(logits, shards, vocabulary, how);
    for (size_t r = 0; r < how.size(); ++r) EXPECT_TRUE(equal(drawn[r], together[r]));
  }
  for (size_t r = 0; r < how.size(); ++r) {
    const Tensor alone = logits_of({rows[r]}, width);
    EXPECT_TRUE(equal(filtered(alone, 2, vocabulary, {how[r]})[0], together[r]));
  }
  const std::vector<Candidate> unfiltered = best(logits, {0, vocabulary}, plain),
                               opened = filtered(logits, 2, vocabulary, open);
  for (size_t r = 0; r < how.size(); ++r) EXPECT_TRUE(equal(opened[r], unfiltered[r]));
}

TEST_P(Sampling, PaddingOfALargeVocabularyIsNeverChosen) {
  constexpr int64_t vocabulary = 151669, width = 151680;
  std::vector<float> logits = random_logits(vocabulary, 1, 1);
  logits.resize(width, 1e30f);
  const Tensor rows = logits_of({logits, logits, logits, logits}, width);
  const std::vector<SamplingRow> how{row_of(0), with(row_of(1), {20, 0.95f, 0}),
                                     with(row_of(1), {1000, 1, 0}), with(row_of(5), {0, 0.95f, 0})};
  for (const Candidate& candidate : best(rows, {0, vocabulary}, {row_of(0), row_of(1), row_of(1), row_of(5)}))
    EXPECT_LT(candidate.id, vocabulary);
  for (const Candidate& candidate : filtered(rows, 2, vocabulary, how)) EXPECT_LT(candidate.id, vocabulary);
  std::vector<TokenLogit> largest(20);
  ops().largest_logits(rows, {0, vocabulary}, 3, largest);
  for (const TokenLogit& entry : largest) EXPECT_LE(entry.logit, 1);
  std::vector<float> maxima(4), sums(4 * 8);
  ops().row_maxima(rows, {0, vocabulary}, maxima);
  EXPECT_LE(maxima[0], 1);
  ops().exp_sums(rows, {0, vocabulary}, maxima, 8, sums);
  for (const float sum : sums) EXPECT_LE(sum, width / 8);
}

TEST_P(Sampling, CandidatesAreTheFirstOfTheOrderWithTheNumberOfFurtherTies) {
  constexpr int64_t width = 17004;
  for (const int64_t count : {1, 63, 64, 65, 700, 9999, 17001}) {
    std::vector<std::vector<float>> rows;
    for (const float step : {1e-6f, 0.01f, 0.5f, 4.0f}) {  // from no ties to all
      rows.push_back(random_logits(count, rows.size(), 1));
      for (float& logit : rows.back()) logit = std::round(logit / step) * step;
    }
    rows.push_back(random_logits(count, 5, 1));
    std::sort(rows.back().begin(), rows.back().end());
    for (const int64_t equal : {1024, 1025}) {  // what a block has room for, and one more
      rows.push_back(rows[0]);
      std::fill_n(rows.back().begin(), std::min(equal, count), 2.0f);
    }
    for (const int finite : {40, 900}) {  // in a thousand
      rows.push_back(rows[0]);
      const float odd[] = {nan, -infinity, infinity, -0.0f, 0.0f};
      for (size_t at = 0; at < rows.back().size(); ++at)
        if (noise_bits({5, 6}, static_cast<uint32_t>(at)) % 1000 >= static_cast<uint32_t>(finite))
          rows.back()[at] = odd[at % 97 == 0 ? 2 : at % 31 == 0 ? 3 + at % 2 : at % 2];
    }
    const std::vector<int32_t> listed{4, 0, 3, 8, 7, 2, 6, 5, 1};
    std::vector<CandidateList> lists(listed.size());
    ops().candidates(logits_of(rows, width).view(), {7, 7 + count}, view_of(listed.data(), DType::int32, {9}),
                     lists);
    for (size_t i = 0; i < lists.size(); ++i) {
      const std::vector<float>& logits = rows[static_cast<size_t>(listed[i])];
      std::vector<std::pair<float, int32_t>> order;  // (-logit, id)
      for (size_t at = 0; at < logits.size(); ++at)
        order.push_back({std::isnan(logits[at]) ? infinity : -logits[at], 7 + static_cast<int32_t>(at)});
      std::sort(order.begin(), order.end());
      const size_t kept = std::min<size_t>(order.size(), max_candidates);
      for (size_t at = 0; at < max_candidates; ++at) {
        ASSERT_EQ(lists[i].tokens[at].id, at < kept ? order[at].second : std::numeric_limits<int32_t>::max());
        ASSERT_EQ(lists[i].tokens[at].logit, at < kept ? -order[at].first : -infinity);
      }
      const auto further =
          std::count_if(order.begin() + static_cast<std::ptrdiff_t>(kept), order.end(),
                        [&](const auto& entry) { return entry.first == order[kept - 1].first; });
      ASSERT_EQ(lists[i].further, further) << count << " row " << listed[i];
    }
  }
}

TEST_P(Sampling, LargestLogitsComeInOrderWithTiesById) {
  std::vector<float> logits = random_logits(500, 1, 1);
  for (float& logit : logits) logit = std::round(logit * 50) / 50;
  logits[7] = nan;
  logits[8] = -infinity;
  std::vector<std::pair<float, int32_t>> order;
  for (size_t i = 0; i < logits.size(); ++i)
    order.push_back({std::isnan(logits[i]) ? infinity : -logits[i], 7 + static_cast<int32_t>(i)});
  std::sort(order.begin(), order.end());
  const Tensor rows = logits_of({random_logits(500, 2, 1), logits}, 512);
  for (const size_t count : {size_t{0}, size_t{1}, size_t{20}, size_t{500}}) {
    std::vector<TokenLogit> found(count);
    ops().largest_logits(PoisonedRows(device(), rows).view(), {7, 507}, 1, found);
    for (size_t i = 0; i < count; ++i) {
      ASSERT_EQ(found[i].id, order[i].second);
      ASSERT_EQ(found[i].logit, -order[i].first);
    }
  }
}

TEST_P(Sampling, ChunkSumsAgreeWithDoublePrecisionAndShardsHaveTheSameBits) {
  constexpr int64_t vocabulary = 5003, width = 5120;
  const std::vector<float> logits = random_logits(vocabulary, 1, 30);
  const Tensor rows = logits_of({random_logits(vocabulary, 2, 1), logits}, width);
  std::vector<float> maxima(2), sums(16);
  ops().row_maxima(PoisonedRows(device(), rows).view(), {0, vocabulary}, maxima);
  EXPECT_EQ(maxima[1], *std::max_element(logits.begin(), logits.end()));
  ops().exp_sums(PoisonedRows(device(), rows).view(), {0, vocabulary}, maxima, vocabulary_chunks, sums);
  for (int64_t chunk = 0; chunk < 8; ++chunk) {
    double exact = 0;
    for (int64_t i = chunk * 640; i < std::min((chunk + 1) * 640, vocabulary); ++i)
      exact += std::exp(static_cast<double>(logits[static_cast<size_t>(i)]) - static_cast<double>(maxima[1]));
    EXPECT_NEAR(sums[static_cast<size_t>(8 + chunk)], exact, 5e-6 * exact);
  }
  for (const int64_t shards : {2, 4, 8}) {
    const Tensor cut = gathered(rows, shards);
    const int64_t part = width / shards, chunks = 8 / shards;
    std::vector<float> of_shards(static_cast<size_t>(2 * shards));
    for (int64_t shard = 0; shard < shards; ++shard)
      ops().row_maxima(cut.view().rows(shard, 1).reshaped({2, part}),
                       {shard * part, std::min((shard + 1) * part, vocabulary)},
                       std::span(of_shards).subspan(static_cast<size_t>(2 * shard), 2));
    for (int64_t shard = 0; shard < shards; ++shard) {
      std::vector<float> some(static_cast<size_t>(2 * chunks));
      const IndexRange ids{shard * part, std::min((shard + 1) * part, vocabulary)};
      ops().exp_sums(cut.view().rows(shard, 1).reshaped({2, part}), ids, of_shards, static_cast<int>(chunks),
                     some);
      for (int64_t row = 0; row < 2; ++row)
        for (int64_t c = 0; c < chunks; ++c)
          EXPECT_EQ(some[static_cast<size_t>(row * chunks + c)],
                    sums[static_cast<size_t>(row * 8 + shard * chunks + c)]);
    }
  }
}

// Divided by the temperature their logits are infinite.
TEST_P(Sampling, OfMaskedTokensAloneTheFirstWins) {
  std::vector<SamplingRow> how{row_of(0.5f)};
  for (const Filters& filters : all_filters) how.push_back(with(row_of(0.5f), filters));
  const Tensor logits =
      logits_of(std::vector<std::vector<float>>(how.size(), std::vector<float>(19, lowest_logit)), 24);
  for (const Candidate& drawn : filtered(logits, 1, 19, how)) {
    EXPECT_EQ(drawn.id, 0);
    EXPECT_EQ(drawn.score, -infinity);
  }
}

TEST_P(Sampling, DrawsAreThoseOfTheReference) {
  const Backend reference = backend_of(BackendKind::reference);
  constexpr int64_t vocabulary = 9001, width = 9004;
  for (uint32_t trial = 0; trial < 6; ++trial) {
    std::vector<SamplingRow> how;
    std::vector<std::vector<float>> rows;
    for (uint32_t r = 0; r < std::size(all_filters); ++r) {
      rows.push_back(random_logits(vocabulary, trial * 10 + r, r % 2 ? 10 : 1));
      if (trial % 2)  // many ties
        for (float& logit : rows.back()) logit = std::round(logit * 8) / 8;
      how.push_back(with(row_of(0.9f, r, trial), all_filters[r]));
    }
    for (const float step :
         {1e-6f, 100.0f, 4.0f}) {  // without filters: all different, all equal, and the largest of many
      rows.push_back(random_logits(vocabulary, trial, 10));
      for (float& logit : rows.back()) logit = std::round(logit / step) * step;
      how.push_back(row_of(step == 4 ? 0.0f : 0.9f, 5, trial));
    }
    const Tensor logits = logits_of(rows, width);
    const std::vector<Candidate> expected = filtered(logits, 1, vocabulary, how, *reference.ops),
                                 drawn = filtered(logits, 1, vocabulary, how);
    for (size_t r = 0; r < how.size(); ++r) {
      EXPECT_EQ(drawn[r].id, expected[r].id);
      EXPECT_NEAR(drawn[r].score, expected[r].score, 1e-5 * std::max(1.0f, std::abs(expected[r].score)));
    }
  }
}

}  // namespace
}  // namespace maniple
