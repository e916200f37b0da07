#include <kernels/contracts.hpp>
#include <kernels/cpu/cpu_ops.hpp>
#include <kernels/reference/candidates.hpp>
#include <kernels/reference/noise.hpp>

#include <algorithm>
#include <bit>
#include <cmath>
#include <functional>
#include <limits>
#include <numeric>

namespace maniple::cpu {

using reference::larger;
using reference::nan_to_lowest;
using reference::shard_row;

namespace {

constexpr float infinity = std::numeric_limits<float>::infinity();

Draw draw_of(const SamplingRow& row) {
  const NoiseKey key = noise_key(row.seed, row.position);
  return {row.temperature, key.first, key.second};
}

// One row of logits gathered as [shards, rows, width], without padding.
class GatheredRow {
 public:
  GatheredRow(const SamplingKernels& kernels, ConstTensorView gathered, int64_t vocabulary_size, int64_t row)
      : kernels_(kernels),
        shards_(gathered.shape[0]),
        width_(gathered.shape[2]),
        vocabulary_size_(vocabulary_size),
        first_(gathered.as<float>() + row * width_),
        stride_(gathered.shape[1] * width_) {}

  // Calls f(first id, logits) for each shard.
  template <typename F>
  void for_shards(F f) const {
    for (int64_t shard = 0, id = 0; shard < shards_ && id < vocabulary_size_; ++shard, id += width_)
      f(static_cast<int32_t>(id),
        std::span(first_ + shard * stride_, static_cast<size_t>(std::min(width_, vocabulary_size_ - id))));
  }
  float maximum() const {
    float maximum = -infinity;
    for_shards([&](int32_t, std::span<const float> part) {
      maximum = std::max(maximum, kernels_.maximum(part.data(), static_cast<int64_t>(part.size())));
    });
    return maximum;
  }
  // A logit that at least `count` reach, and few more: as many parts of the row have one.
  float reached_by(size_t count, std::vector<float>& maxima) const {
    constexpr size_t least_part = 32, parts_for_each = 4;
    const size_t part = static_cast<size_t>(vocabulary_size_) / (parts_for_each * count);
    if (part < least_part) return -infinity;
    maxima.clear();
    for_shards([&](int32_t, std::span<const float> logits) {
      for (; logits.size() >= part; logits = logits.subspan(part))
        maxima.push_back(kernels_.maximum(logits.data(), static_cast<int64_t>(part)));
    });
    if (maxima.size() < count) return -infinity;
    const auto last = maxima.begin() + static_cast<std::ptrdiff_t>(count - 1);
    std::nth_element(maxima.begin(), last, maxima.end(), std::greater());
    return *last;
  }
  // Into scratch.entries: those with logit >= floor, in the order of ids.
  void collect(float floor, FilterScratch& scratch) const {
    scratch.entries.clear();
    for_shards([&](int32_t id, std::span<const float> logits) {
      scratch.places.resize(std::max(scratch.places.size(), logits.size()));
      int32_t* const places = scratch.places.data();
      const int64_t count =
          kernels_.at_least(logits.data(), static_cast<int64_t>(logits.size()), floor, places);
      for (int64_t i = 0; i < count; ++i)
        scratch.entries.push_back({id + places[i], nan_to_lowest(logits[static_cast<size_t>(places[i])])});
    });
  }
  int64_t vocabulary_size() const { return vocabulary_size_; }

 private:
  const SamplingKernels& kernels_;
  int64_t shards_, width_, vocabulary_size_;
  const float* first_;
  int64_t stride_;
};

// Into scratch.entries, in any order: the `most` largest of the shard's row, and others that are as large.
void collect_largest(const SamplingKernels& kernels, ConstTensorView logits, IndexRange vocabulary,
                     int64_t row, size_t most, FilterScratch& scratch) {
  scratch.entries.clear();
  if (vocabulary.size() == 0) return;
  const GatheredRow shard(kernels, logits.reshaped({1, logits.shape[0], logits.shape[1]}), vocabulary.size(),
                          row);
  shard.collect(shard.reached_by(most, scratch.numbers), scratch);
  for (TokenLogit& token : scratch.entries) token.id += static_cast<int32_t>(vocabulary.begin);
}

// Filters the tokens of one row. Those that pass stay in scratch.entries, in any order.
class RowFilter {
 public:
  RowFilter(const SamplingKernels& kernels, const SamplingRow& row, FilterScratch& scratch)
      : kernels_(kernels), row_(row), scratch_(scratch), entries_(scratch.entries) {}

  void filter_entries() {
    maximum_ = std::min_element(entries_.begin(), entries_.end(), larger)->logit;
    keep_min_p();
    keep_top_k();
    if (row_.top_p < 1) keep_top_p(total_share());
  }

  void filter(const GatheredRow& logits) {
    maximum_ = logits.maximum();
    if (row_.top_k == 0 && row_.min_p <= 0) return keep_top_p_of(logits);
    float floor = below_min_p();
    if (row_.top_k > 0)
      floor = std::max(floor, logits.reached_by(static_cast<size_t>(row_.top_k), scratch_.numbers));
    logits.collect(floor, scratch_);
    keep_min_p();
    keep_top_k();
    if (row_.top_p < 1) keep_top_p(total_share());
  }

 private:
  // Logits in ascending buckets, by the first bits of their size and sign: equal ones, as 0 and -0, share one.
  static constexpr int bucket_bits = 14;
  static size_t bucket_of(float logit) {
    const auto bits = std::bit_cast<uint32_t>(nan_to_lowest(logit) + 0.0f);
    return (bits >> 31 ? ~bits : bits | 1u << 31) >> (32 - bucket_bits);
  }
  static float smallest_of(size_t bucket) {
    const uint32_t ordered = static_cast<uint32_t>(bucket) << (32 - bucket_bits);
    return nan_to_lowest(std::bit_cast<float>(ordered >> 31 ? ordered ^ 1u << 31 : ~ordered));
  }

  // Without other filters all tokens count: their shares are summed by bucket, and only the bucket of the cut is sorted. Its entries
  // stay, those before it do not.
  void keep_top_p_of(const GatheredRow& logits) {
    std::vector<int64_t>& sums = scratch_.sums;
    sums.assign(size_t{1} << bucket_bits, 0);
    logits.for_shards([&](int32_t, std::span<const float> part) {
      find_shares(part.data(), part.size());
      for (size_t i = 0; i < part.size(); ++i) sums[bucket_of(part[i])] += integer_share(scratch_.numbers[i]);
    });
    const auto total = static_cast<double>(std::accumulate(sums.begin(), sums.end(), int64_t{0}));
    const double wanted = static_cast<double>(row_.top_p) * total;
    size_t bucket = sums.size() - 1;
    int64_t before = 0;
    for (; static_cast<double>(before + sums[bucket]) < wanted; --bucket) before += sums[bucket];
    logits.collect(smallest_of(bucket), scratch_);
    const float next = smallest_of(bucket + 1);
    std::erase_if(entries_, [&](const TokenLogit& entry) { return entry.logit >= next; });
    keep_top_p(total, before);
  }

  // A bound just below the min_p threshold: smaller logits are not even collected.
  float below_min_p() const {
    if (row_.min_p <= 0 || !std::isfinite(maximum_)) return -infinity;
    const float reach = -std::log(row_.min_p) * row_.temperature;
    return maximum_ - reach - 1e-5f * (std::abs(maximum_) + reach);
  }

  // min_p and top_k both keep a prefix of the sorted order, so either may come first.
  void keep_min_p() {
    if (row_.min_p <= 0) return;
    const float floor = std::log(row_.min_p), maximum = maximum_ / row_.temperature;
    std::erase_if(entries_, [&](const TokenLogit& entry) {
      const float scaled = entry.logit / row_.temperature;
      return scaled != maximum && scaled - maximum < floor;
    });
  }

  void keep_top_k() {
    const auto k = static_cast<size_t>(row_.top_k);
    if (k == 0 || k >= entries_.size()) return;
    std::nth_element(entries_.begin(), entries_.begin() + static_cast<std::ptrdiff_t>(k - 1), entries_.end(),
                     larger);
    const float threshold = entries_[k - 1].logit;
    std::erase_if(entries_, [&](const TokenLogit& entry) { return entry.logit < threshold; });
  }

  // Shares are integers in units of 2^-40 of the largest probability. Their sums do not depend on the order,
  // so halving finds the cut of the sorted order without a sort. total: of all tokens; before: of those larger than all entries.
  void keep_top_p(double total, int64_t before = 0) {
    const double wanted = static_cast<double>(row_.top_p) * total;
    const auto at = [&](size_t index) { return entries_.begin() + static_cast<std::ptrdiff_t>(index); };
    size_t begin = 0, end = entries_.size();
    while (end - begin > 1) {
      const size_t middle = begin + (end - begin) / 2;
      std::nth_element(at(begin), at(middle), at(end), larger);
      const int64_t sum = before + sum_of_shares(begin, middle);
      if (static_cast<double>(sum) >= wanted) {
        end = middle;
      } else {
        before = sum;
        begin = middle;
      }
    }
    entries_.resize(end);
  }

  static int64_t integer_share(float share) { return static_cast<int64_t>(share * 0x1p40f); }

  // Into scratch.numbers; logits may lie there.
  void find_shares(const float* logits, size_t count) {
    scratch_.numbers.resize(count);
    kernels_.shares(logits, static_cast<int64_t>(count), row_.temperature, maximum_, scratch_.numbers.data());
  }
  int64_t sum_of_shares(size_t begin, size_t end) {
    std::vector<float>& numbers = scratch_.numbers;
    numbers.resize(end - begin);
    for (size_t i = begin; i < end; ++i) numbers[i - begin] = entries_[i].logit;
    find_shares(numbers.data(), numbers.size());
    int64_t sum = 0;
    for (const float share : numbers) sum += integer_share(share);
    return sum;
  }
  double total_share() { return static_cast<double>(sum_of_shares(0, entries_.size())); }

  const SamplingKernels& kernels_;
  const SamplingRow& row_;
  FilterScratch& scratch_;
  std::vector<TokenLogit>& entries_;
  float maximum_ = -infinity;
};

}  // namespace

void CpuOps::candidates(ConstTensorView logits, IndexRange vocabulary, ConstTensorView listed,
                        std::span<CandidateList> lists) {
  contract::candidates(logits, vocabulary, listed, lists);
  for_rows(lists.size(), [&](size_t i, FilterScratch& scratch) {
    collect_largest(path_.sampling, logits, vocabulary, listed.as<int32_t>()[i], max_candidates, scratch);
    lists[i] = reference::list_of(scratch.entries);
  });
}

void CpuOps::filter_candidates(std::span<const CandidateList> lists, ConstTensorView logits,
                               IndexRange vocabulary, ConstTensorView listed,
                               std::span<const SamplingRow> rows, std::span<Cut> cuts) {
  contract::filter_candidates(lists, logits, vocabulary, listed, rows, cuts);
  const auto count = static_cast<size_t>(listed.shape[0]);
  for_rows(count, [&](size_t i, FilterScratch& scratch) {
    std::vector<const CandidateList*> of_shards;
    for (size_t at = i; at < lists.size(); at += count) of_shards.push_back(&lists[at]);
    const int32_t row = listed.as<int32_t>()[i];
    scratch.entries = reference::tokens_of(of_shards);
    RowFilter(path_.sampling, rows[static_cast<size_t>(row)], scratch).filter_entries();
    cuts[static_cast<size_t>(row)] =
        reference::cut_after(scratch.entries, of_shards, shard_row(logits, vocabulary, row), vocabulary);
  });
}

void CpuOps::adjust_logits(TensorView logits, IndexRange vocabulary, std::span<const AdjustedRow> rows,
                           const SequenceTables& tables) {
  pool_->parallel_tasks(std::ssize(rows), [&](int64_t row) {
    HostOps::adjust_logits(logits, vocabulary, rows.subspan(static_cast<size_t>(row), 1), tables);
  });
}

void CpuOps::filter_logits(ConstTensorView gathered, int64_t vocabulary_size, ConstTensorView listed,
                           std::span<const SamplingRow> rows, std::span<Cut> cuts) {
  contract::filter_logits(gathered, vocabulary_size, listed, rows, cuts);
  const bool all = static_cast<size_t>(gathered.shape[1]) == rows.size();
  for_rows(static_cast<size_t>(listed.shape[0]), [&](size_t i, FilterScratch& scratch) {
    const int32_t row = listed.as<int32_t>()[i];
    const SamplingRow& how = rows[static_cast<size_t>(row)];
    if (!how.filtered() || how.filtered_by_candidates()) return;
    RowFilter(path_.sampling, how, scratch)
        .filter(GatheredRow(path_.sampling, gathered, vocabulary_size, all ? row : static_cast<int64_t>(i)));
    const TokenLogit last = *std::max_element(scratch.entries.begin(), scratch.entries.end(), larger);
    cuts[static_cast<size_t>(row)] = {last.logit, last.id};
  });
}

// f(i, working memory) for each i below count.
void CpuOps::for_rows(size_t count, FunctionRef<void(size_t, FilterScratch&)> f) {
  if (count <= 1)
    return pool_->parallel_tasks(static_cast<int64_t>(count), [&](int64_t) { f(0, filter_scratch_[0]); });
  pool_->run([&](int thread) {
    for (auto i = static_cast<size_t>(thread); i < count; i += static_cast<size_t>(pool_->size()))
      f(i, filter_scratch_[static_cast<size_t>(thread)]);
  });
}

void CpuOps::best_candidates(ConstTensorView logits, IndexRange vocabulary, std::span<const SamplingRow> rows,
                             std::span<const Cut> cuts, std::span<Candidate> out) {
  contract::best_candidates(logits, vocabulary, rows, out);
  for_rows(rows.size(), [&](size_t r, FilterScratch& scratch) {
    const std::span<const float> row = shard_row(logits, vocabulary, static_cast<int64_t>(r));
    const SamplingRow& how = rows[r];
    Candidate& best = out[r] = {-infinity, std::numeric_limits<int32_t>::max(), -infinity};
    if (how.filtered() && cuts.empty()) return;
    best = no_token;
    if (!path_.sampling.all_finite(row.data(), vocabulary.size())) return;
    const auto first = static_cast<int32_t>(vocabulary.begin);
    if (how.filtered()) {
      std::vector<int32_t>& ids = scratch.places;
      std::vector<float>& kept = scratch.numbers;
      ids.resize(std::max(ids.size(), row.size())), kept.clear();
      const int64_t reached =
          path_.sampling.at_least(row.data(), vocabulary.size(), cuts[r].logit, ids.data());
      for (int64_t i = 0; i < reached; ++i) {
        const TokenLogit token{first + ids[static_cast<size_t>(i)],
                               row[static_cast<size_t>(ids[static_cast<size_t>(i)])]};
        if (cuts[r].keeps(token)) ids[kept.size()] = token.id, kept.push_back(token.logit);
      }
      best.id = path_.sampling.best(kept.data(), ids.data(), 0, static_cast<int64_t>(kept.size()),
                                    draw_of(how), &best.score);
    } else {
      best.id = path_.sampling.best(row.data(), nullptr, first, vocabulary.size(), draw_of(how), &best.score);
    }
    best.logit = vocabulary.contains(best.id) ? row[static_cast<size_t>(best.id) - static_cast<size_t>(first)]
                                              : -infinity;
  });
}

void CpuOps::row_maxima(ConstTensorView logits, IndexRange vocabulary, std::span<float> maxima) {
  contract::shard(logits, vocabulary, std::ssize(maxima));
  pool_->parallel_tasks(logits.shape[0], [&](int64_t row) {
    maxima[static_cast<size_t>(row)] =
        path_.sampling.maximum(logits.as<float>() + row * logits.shape[1], vocabulary.size());
  });
}

void CpuOps::exp_sums(ConstTensorView logits, IndexRange vocabulary, std::span<const float> maxima,
                      int chunks, std::span<float> sums) {
  contract::exp_sums(logits, vocabulary, maxima, chunks, sums);
  const auto rows = static_cast<size_t>(logits.shape[0]);
  const int64_t width = logits.shape[1], part = width / chunks;
  pool_->parallel_tasks(logits.shape[0] * chunks, [&](int64_t task) {
    const int64_t row = task / chunks, begin = task % chunks * part;
    const int64_t count = std::clamp<int64_t>(vocabulary.size() - begin, 0, part);
    sums[static_cast<size_t>(task)] = path_.sampling.exp_sum(
        logits.as<float>() + row * width + begin, count, over_shards(maxima, rows, static_cast<size_t>(row)));
  });
}

void CpuOps::largest_logits(ConstTensorView logits, IndexRange vocabulary, int64_t row,
                            std::span<TokenLogit> out) {
  contract::largest_logits(logits, vocabulary, row, out);
  if (out.empty()) return;
  FilterScratch& scratch = filter_scratch_[0];
  collect_largest(path_.sampling, logits, vocabulary, row, out.size(), scratch);
  std::partial_sort_copy(scratch.entries.begin(), scratch.entries.end(), out.begin(), out.end(), larger);
}

}  // namespace maniple::cpu
