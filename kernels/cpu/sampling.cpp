#include <kernels/cpu/cpu_ops.hpp>
#include <kernels/reference/candidates.hpp>
#include <kernels/reference/noise.hpp>

#include <algorithm>
#include <cmath>
#include <limits>

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
  GatheredRow(ConstTensorView gathered, int64_t vocabulary_size, int64_t row)
      : shards_(gathered.shape[0]),
        width_(gathered.shape[2]),
        vocabulary_size_(vocabulary_size),
        first_(gathered.as<float>() + row * width_),
        stride_(gathered.shape[1] * width_) {
    require(0 < vocabulary_size && vocabulary_size <= shards_ * width_ && row < gathered.shape[1],
            "gathered logits do not cover the vocabulary");
  }

  // Calls f(first id, logits) for each shard.
  template <typename F>
  void for_shards(F f) const {
    for (int64_t shard = 0, id = 0; shard < shards_ && id < vocabulary_size_; ++shard, id += width_)
      f(static_cast<int32_t>(id),
        std::span(first_ + shard * stride_, static_cast<size_t>(std::min(width_, vocabulary_size_ - id))));
  }
  // Entries with logit >= floor, in the order of ids.
  void collect(float floor, std::vector<TokenLogit>& entries) const {
    entries.clear();
    for_shards([&](int32_t id, std::span<const float> logits) {
      for (const float logit : logits) {
        if (nan_to_lowest(logit) >= floor) entries.push_back({id, nan_to_lowest(logit)});
        ++id;
      }
    });
  }
  // The first `count` by (logit descending, id ascending), as a heap with the last of them in front.
  void largest(size_t count, std::vector<TokenLogit>& heap) const {
    heap.clear();
    for_shards([&](int32_t id, std::span<const float> logits) {
      for (const float logit : logits) {
        const TokenLogit entry{id++, nan_to_lowest(logit)};
        const bool full = heap.size() == count;
        if (full && entry.logit <= heap.front().logit) continue;  // ids ascend: an equal logit loses
        if (full) std::pop_heap(heap.begin(), heap.end(), larger), heap.pop_back();
        heap.push_back(entry);
        std::push_heap(heap.begin(), heap.end(), larger);
      }
    });
  }
  int64_t vocabulary_size() const { return vocabulary_size_; }

 private:
  int64_t shards_, width_, vocabulary_size_;
  const float* first_;
  int64_t stride_;
};

ConstTensorView one_shard(ConstTensorView logits) {
  return logits.reshaped({1, logits.shape[0], logits.shape[1]});
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
    if (row_.top_p < 1) keep_top_p();
  }

  void filter(const GatheredRow& logits) {
    maximum_ = -infinity;
    logits.for_shards([&](int32_t, std::span<const float> part) {
      maximum_ = std::max(maximum_, kernels_.maximum(part.data(), static_cast<int64_t>(part.size())));
    });
    // A large heap is slower than a selection among all entries.
    const bool small_k = row_.top_k > 0 && row_.top_k <= logits.vocabulary_size() / 16;
    float floor = below_min_p();
    if (small_k) {
      logits.largest(static_cast<size_t>(row_.top_k), entries_);
      floor = std::max(floor, entries_.front().logit);
    }
    logits.collect(floor, entries_);
    keep_min_p();
    if (!small_k) keep_top_k();
    if (row_.top_p < 1) keep_top_p();
  }

 private:
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
  // so halving finds the cut of the sorted order without a sort.
  void keep_top_p() {
    const double total = static_cast<double>(sum_of_shares(0, entries_.size()));
    const double wanted = static_cast<double>(row_.top_p) * total;
    drop_shares_below(0.999 * (total - wanted) / static_cast<double>(entries_.size()));
    const auto at = [&](size_t index) { return entries_.begin() + static_cast<std::ptrdiff_t>(index); };
    size_t begin = 0, end = entries_.size();
    for (int64_t before = 0; end - begin > 1;) {
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

  // Drops entries so small that all of them together are less
  // than 1 - p. scratch.numbers holds the shares of all entries.
  void drop_shares_below(double smallest) {
    size_t kept = 0;
    for (size_t i = 0; i < entries_.size(); ++i)
      if (static_cast<double>(integer_share(scratch_.numbers[i])) >= smallest) entries_[kept++] = entries_[i];
    entries_.resize(kept);
  }

  static int64_t integer_share(float share) { return static_cast<int64_t>(share * 0x1p40f); }

  // Leaves the shares themselves in scratch.numbers.
  int64_t sum_of_shares(size_t begin, size_t end) {
    std::vector<float>& numbers = logits_of(begin, end);
    const auto count = static_cast<int64_t>(numbers.size());
    kernels_.shares(numbers.data(), count, row_.temperature, maximum_, numbers.data());
    int64_t sum = 0;
    for (const float share : numbers) sum += integer_share(share);
    return sum;
  }

  std::vector<float>& logits_of(size_t begin, size_t end) {
    scratch_.numbers.resize(end - begin);
    for (size_t i = begin; i < end; ++i) scratch_.numbers[i - begin] = entries_[i].logit;
    return scratch_.numbers;
  }

  const SamplingKernels& kernels_;
  const SamplingRow& row_;
  FilterScratch& scratch_;
  std::vector<TokenLogit>& entries_;
  float maximum_ = -infinity;
};

void check_logits(ConstTensorView logits, IndexRange vocabulary, size_t rows) {
  require(logits.dtype == DType::fp32 && logits.shape.rank() == 2, "logits are fp32 rows");
  require(vocabulary.size() <= logits.shape[1] && rows == static_cast<size_t>(logits.shape[0]),
          "logits of other rows or another vocabulary");
}

}  // namespace

void CpuOps::candidates(ConstTensorView logits, IndexRange vocabulary, ConstTensorView listed,
                        std::span<CandidateList> lists) {
  for_rows(lists.size(), [&](size_t i, FilterScratch& scratch) {
    const int32_t row = listed.as<int32_t>()[i];
    std::vector<TokenLogit>& tokens = scratch.entries;
    tokens.clear();
    if (vocabulary.size() > 0)
      GatheredRow(one_shard(logits), vocabulary.size(), row).largest(max_candidates, tokens);
    for (TokenLogit& token : tokens) token.id += static_cast<int32_t>(vocabulary.begin);
    lists[i] = reference::list_of(tokens, shard_row(logits, vocabulary, row));
  });
}

void CpuOps::filter_candidates(std::span<const CandidateList> lists, ConstTensorView logits,
                               IndexRange vocabulary, ConstTensorView listed,
                               std::span<const SamplingRow> rows, std::span<Cut> cuts) {
  const auto count = static_cast<size_t>(listed.shape[0]);
  require(count > 0 && lists.size() % count == 0 && cuts.size() == rows.size(), "shapes of filters");
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

void CpuOps::filter_logits(ConstTensorView gathered, int64_t vocabulary_size, ConstTensorView listed,
                           std::span<const SamplingRow> rows, std::span<Cut> cuts) {
  require(cuts.size() == rows.size(), "a cut for each row");
  const bool all = static_cast<size_t>(gathered.shape[1]) == rows.size();
  for_rows(static_cast<size_t>(listed.shape[0]), [&](size_t i, FilterScratch& scratch) {
    const int32_t row = listed.as<int32_t>()[i];
    const SamplingRow& how = rows[static_cast<size_t>(row)];
    if (!how.filtered() || how.filtered_by_candidates()) return;
    RowFilter(path_.sampling, how, scratch)
        .filter(GatheredRow(gathered, vocabulary_size, all ? row : static_cast<int64_t>(i)));
    const TokenLogit last = *std::max_element(scratch.entries.begin(), scratch.entries.end(), larger);
    cuts[static_cast<size_t>(row)] = {last.logit, last.id};
  });
}

// f(i, working memory) for each i below count.
void CpuOps::for_rows(size_t count, FunctionRef<void(size_t, FilterScratch&)> f) {
  pool_->run([&](int thread) {
    for (auto i = static_cast<size_t>(thread); i < count; i += static_cast<size_t>(pool_->size()))
      f(i, filter_scratch_[static_cast<size_t>(thread)]);
  });
}

void CpuOps::best_candidates(ConstTensorView logits, IndexRange vocabulary, std::span<const SamplingRow> rows,
                             std::span<const Cut> cuts, std::span<Candidate> out) {
  check_logits(logits, vocabulary, rows.size());
  require(out.size() == rows.size(), "one candidate for each row");
  pool_->parallel_tasks(logits.shape[0], [&](int64_t r) {
    const std::span<const float> row = shard_row(logits, vocabulary, r);
    const SamplingRow& how = rows[static_cast<size_t>(r)];
    Candidate& best =
        out[static_cast<size_t>(r)] = {-infinity, std::numeric_limits<int32_t>::max(), -infinity};
    if (how.filtered() && cuts.empty()) return;
    best = no_token;
    if (!path_.sampling.all_finite(row.data(), vocabulary.size())) return;
    const auto first = static_cast<int32_t>(vocabulary.begin);
    if (how.filtered()) {
      std::vector<float> kept;
      std::vector<int32_t> ids;
      for (size_t i = 0; i < row.size(); ++i) {
        const TokenLogit token{first + static_cast<int32_t>(i), row[i]};
        if (cuts[static_cast<size_t>(r)].keeps(token)) kept.push_back(token.logit), ids.push_back(token.id);
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
  check_logits(logits, vocabulary, maxima.size());
  pool_->parallel_tasks(logits.shape[0], [&](int64_t row) {
    maxima[static_cast<size_t>(row)] =
        path_.sampling.maximum(logits.as<float>() + row * logits.shape[1], vocabulary.size());
  });
}

void CpuOps::exp_sums(ConstTensorView logits, IndexRange vocabulary, std::span<const float> maxima,
                      int chunks, std::span<float> sums) {
  const auto rows = static_cast<size_t>(logits.shape[0]);
  check_logits(logits, vocabulary, rows);
  const int64_t width = logits.shape[1], part = width / chunks;
  require(width % chunks == 0 && sums.size() == rows * static_cast<size_t>(chunks),
          "a padded vocabulary divides by its chunks");
  require(maxima.size() % rows == 0, "maxima of every shard for each row");
  pool_->parallel_tasks(logits.shape[0] * chunks, [&](int64_t task) {
    const int64_t row = task / chunks, begin = task % chunks * part;
    const int64_t count = std::clamp<int64_t>(vocabulary.size() - begin, 0, part);
    sums[static_cast<size_t>(task)] = path_.sampling.exp_sum(
        logits.as<float>() + row * width + begin, count, over_shards(maxima, rows, static_cast<size_t>(row)));
  });
}

void CpuOps::largest_logits(ConstTensorView gathered, int64_t vocabulary_size, int64_t row,
                            std::span<TokenLogit> out) {
  require(out.size() <= static_cast<size_t>(vocabulary_size), "more logits asked for than there are");
  if (out.empty()) return;
  std::vector<TokenLogit> heap;
  GatheredRow(gathered, vocabulary_size, row).largest(out.size(), heap);
  std::sort_heap(heap.begin(), heap.end(), larger);
  std::copy(heap.begin(), heap.end(), out.begin());
}

}  // namespace maniple::cpu
