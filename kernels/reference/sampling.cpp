#include <kernels/contracts.hpp>
#include <kernels/reference/candidates.hpp>
#include <kernels/reference/noise.hpp>
#include <kernels/reference/reference_ops.hpp>

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

namespace maniple {

using reference::larger;
using reference::nan_to_lowest;
using reference::shard_row;

namespace {

constexpr float infinity = std::numeric_limits<float>::infinity();

// logit - maximum; the difference of equal infinities is 0.
float distance(float logit, float maximum) { return logit == maximum ? 0.0f : logit - maximum; }

Candidate scored(int32_t id, float logit, const SamplingRow& row) {
  if (row.temperature <= 0) return {logit, id, logit};
  return {
      logit / row.temperature + gumbel_noise(noise_key(row.seed, row.position), static_cast<uint32_t>(id)),
      id, logit};
}

bool better(const Candidate& a, const Candidate& b) {
  return a.score != b.score ? a.score > b.score : a.id < b.id;
}

std::vector<TokenLogit> shard_tokens(ConstTensorView logits, IndexRange vocabulary, int64_t row) {
  std::vector<TokenLogit> tokens;
  auto id = static_cast<int32_t>(vocabulary.begin);
  for (const float logit : shard_row(logits, vocabulary, row)) tokens.push_back({id++, nan_to_lowest(logit)});
  return tokens;
}

std::vector<TokenLogit> gathered_row(ConstTensorView gathered, int64_t vocabulary_size, int64_t row) {
  const int64_t rows = gathered.shape[1], width = gathered.shape[2];
  std::vector<TokenLogit> entries;
  for (int64_t id = 0; id < vocabulary_size; ++id)
    entries.push_back({static_cast<int32_t>(id),
                       nan_to_lowest(gathered.as<float>()[(id / width * rows + row) * width + id % width])});
  return entries;
}

void keep_min_p(std::vector<TokenLogit>& sorted, const SamplingRow& row) {
  if (row.min_p <= 0) return;
  const float floor = std::log(row.min_p), maximum = sorted[0].logit / row.temperature;
  std::erase_if(sorted, [&](const TokenLogit& entry) {
    return distance(entry.logit / row.temperature, maximum) < floor;
  });
}

void keep_top_k(std::vector<TokenLogit>& sorted, const SamplingRow& row) {
  const auto k = static_cast<size_t>(row.top_k);
  if (k == 0 || k >= sorted.size()) return;
  const float threshold = sorted[k - 1].logit;
  std::erase_if(sorted, [&](const TokenLogit& entry) { return entry.logit < threshold; });
}

// Adds probabilities as integers in units of 2^-40 of the
// largest: the order of summation cannot change the result.
void keep_top_p(std::vector<TokenLogit>& sorted, const SamplingRow& row) {
  if (row.top_p >= 1) return;
  const float maximum = sorted[0].logit / row.temperature;
  const auto share = [&](const TokenLogit& entry) {
    return static_cast<int64_t>(std::exp(distance(entry.logit / row.temperature, maximum)) * 0x1p40f);
  };
  int64_t total = 0, sum = 0;
  for (const TokenLogit& entry : sorted) total += share(entry);
  const double wanted = static_cast<double>(row.top_p) * static_cast<double>(total);
  size_t kept = 0;
  do sum += share(sorted[kept++]);
  while (kept < sorted.size() && static_cast<double>(sum) < wanted);
  sorted.resize(kept);
}

void filter(std::vector<TokenLogit>& tokens, const SamplingRow& row) {
  std::sort(tokens.begin(), tokens.end(), larger);
  keep_min_p(tokens, row);
  keep_top_k(tokens, row);
  keep_top_p(tokens, row);
}

}  // namespace

void ReferenceOps::candidates(ConstTensorView logits, IndexRange vocabulary, ConstTensorView listed,
                              std::span<CandidateList> lists) {
  contract::candidates(logits, vocabulary, listed, lists);
  for (size_t i = 0; i < lists.size(); ++i) {
    std::vector<TokenLogit> tokens = shard_tokens(logits, vocabulary, listed.as<int32_t>()[i]);
    lists[i] = reference::list_of(tokens);
  }
}

void ReferenceOps::filter_candidates(std::span<const CandidateList> lists, ConstTensorView logits,
                                     IndexRange vocabulary, ConstTensorView listed,
                                     std::span<const SamplingRow> rows, std::span<Cut> cuts) {
  contract::filter_candidates(lists, logits, vocabulary, listed, rows, cuts);
  const auto count = static_cast<size_t>(listed.shape[0]);
  for (size_t i = 0; i < count; ++i) {
    std::vector<const CandidateList*> of_shards;
    for (size_t at = i; at < lists.size(); at += count) of_shards.push_back(&lists[at]);
    const int32_t row = listed.as<int32_t>()[i];
    std::vector<TokenLogit> tokens = reference::tokens_of(of_shards);
    filter(tokens, rows[static_cast<size_t>(row)]);
    cuts[static_cast<size_t>(row)] =
        reference::cut_after(tokens, of_shards, shard_row(logits, vocabulary, row), vocabulary);
  }
}

void ReferenceOps::filter_logits(ConstTensorView gathered, int64_t vocabulary_size, ConstTensorView listed,
                                 std::span<const SamplingRow> rows, std::span<Cut> cuts) {
  contract::filter_logits(gathered, vocabulary_size, listed, rows, cuts);
  const bool all = static_cast<size_t>(gathered.shape[1]) == rows.size();
  for (int64_t i = 0; i < listed.shape[0]; ++i) {
    const int32_t row = listed.as<int32_t>()[i];
    const SamplingRow& how = rows[static_cast<size_t>(row)];
    if (!how.filtered() || how.filtered_by_candidates()) continue;
    std::vector<TokenLogit> tokens = gathered_row(gathered, vocabulary_size, all ? row : i);
    filter(tokens, how);
    cuts[static_cast<size_t>(row)] = {tokens.back().logit, tokens.back().id};
  }
}

void ReferenceOps::best_candidates(ConstTensorView logits, IndexRange vocabulary,
                                   std::span<const SamplingRow> rows, std::span<const Cut> cuts,
                                   std::span<Candidate> out) {
  contract::best_candidates(logits, vocabulary, rows, out);
  for (size_t r = 0; r < rows.size(); ++r) {
    out[r] = {-infinity, std::numeric_limits<int32_t>::max(), -infinity};
    if (rows[r].filtered() && cuts.empty()) continue;
    const Cut cut = rows[r].filtered() ? cuts[r] : Cut{};
    auto id = static_cast<int32_t>(vocabulary.begin);
    for (const float logit : shard_row(logits, vocabulary, static_cast<int64_t>(r))) {
      const Candidate candidate = std::isfinite(logit) ? scored(id, logit, rows[r]) : no_token;
      if ((!std::isfinite(logit) || cut.keeps({id, logit})) && better(candidate, out[r])) out[r] = candidate;
      ++id;
    }
  }
}

void ReferenceOps::row_maxima(ConstTensorView logits, IndexRange vocabulary, std::span<float> maxima) {
  contract::shard(logits, vocabulary, std::ssize(maxima));
  for (size_t r = 0; r < maxima.size(); ++r) {
    const float* const row = logits.as<float>() + static_cast<int64_t>(r) * logits.shape[1];
    maxima[r] = -infinity;
    for (int64_t i = 0; i < vocabulary.size(); ++i) maxima[r] = std::max(maxima[r], nan_to_lowest(row[i]));
  }
}

void ReferenceOps::exp_sums(ConstTensorView logits, IndexRange vocabulary, std::span<const float> maxima,
                            int chunks, std::span<float> sums) {
  contract::exp_sums(logits, vocabulary, maxima, chunks, sums);
  const int64_t width = logits.shape[1], part = width / chunks;
  const auto rows = static_cast<size_t>(logits.shape[0]);
  for (int64_t r = 0; r < logits.shape[0]; ++r) {
    const float maximum = over_shards(maxima, rows, static_cast<size_t>(r));
    for (int64_t c = 0; c < chunks; ++c) {
      double sum = 0;
      for (int64_t i = c * part; i < std::min((c + 1) * part, vocabulary.size()); ++i)
        sum += std::exp(distance(nan_to_lowest(logits.as<float>()[r * width + i]), maximum));
      sums[static_cast<size_t>(r * chunks + c)] = static_cast<float>(sum);
    }
  }
}

void ReferenceOps::largest_logits(ConstTensorView logits, IndexRange vocabulary, int64_t row,
                                  std::span<TokenLogit> out) {
  contract::largest_logits(logits, vocabulary, row, out);
  const std::vector<TokenLogit> tokens = shard_tokens(logits, vocabulary, row);
  std::partial_sort_copy(tokens.begin(), tokens.end(), out.begin(), out.end(), larger);
}

}  // namespace maniple
