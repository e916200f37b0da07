#include <kernels/cpu/cpu_ops.hpp>
#include <kernels/reference/noise.hpp>

#include <algorithm>
#include <cmath>
#include <limits>

namespace maniple::cpu {

namespace {

constexpr float infinity = std::numeric_limits<float>::infinity();

float nan_to_lowest(float logit) { return std::isnan(logit) ? -infinity : logit; }
bool larger(const TokenLogit& a, const TokenLogit& b) {
  return a.logit != b.logit ? a.logit > b.logit : a.id < b.id;
}

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

// Draws one row. The entries that pass the filters stay in scratch.entries, in any order.
class FilteredDraw {
 public:
  FilteredDraw(const SamplingKernels& kernels, const GatheredRow& logits, const SamplingRow& row,
               FilterScratch& scratch)
      : kernels_(kernels), logits_(logits), row_(row), scratch_(scratch), entries_(scratch.entries) {}

  Candidate draw() {
    maximum_ = -infinity;
    logits_.for_shards([&](int32_t, std::span<const float> part) {
      maximum_ = std::max(maximum_, kernels_.maximum(part.data(), static_cast<int64_t>(part.size())));
    });
    if (row_.temperature > 0)
      filter();
    else
      logits_.collect(maximum_, entries_);
    return best_entry();
  }

 private:
  void filter() {
    // A large heap is slower than a selection among all entries.
    const bool small_k = row_.top_k > 0 && row_.top_k <= logits_.vocabulary_size() / 16;
    float floor = below_min_p();
    if (small_k) {
      logits_.largest(static_cast<size_t>(row_.top_k), entries_);
      floor = std::max(floor, entries_.front().logit);
    }
    logits_.collect(floor, entries_);
    keep_min_p();
    if (!small_k) keep_top_k();
    if (row_.top_p < 1) keep_top_p();
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

  Candidate best_entry() {
    const std::vector<float>& logits = logits_of(0, entries_.size());
    scratch_.ids.resize(entries_.size());
    std::transform(entries_.begin(), entries_.end(), scratch_.ids.begin(),
                   [](const TokenLogit& entry) { return entry.id; });
    Candidate winner;
    winner.id = kernels_.best(logits.data(), scratch_.ids.data(), 0, static_cast<int64_t>(logits.size()),
                              draw_of(row_), &winner.score);
    winner.logit = std::find_if(entries_.begin(), entries_.end(), [&](const TokenLogit& entry) {
                     return entry.id == winner.id;
                   })->logit;
    return winner;
  }

  const SamplingKernels& kernels_;
  const GatheredRow& logits_;
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

void CpuOps::best_candidates(ConstTensorView logits, IndexRange vocabulary, std::span<const SamplingRow> rows,
                             std::span<Candidate> out) {
  check_logits(logits, vocabulary, rows.size());
  require(out.size() == rows.size(), "one candidate for each row");
  pool_->parallel_tasks(logits.shape[0], [&](int64_t r) {
    const float* const row = logits.as<float>() + r * logits.shape[1];
    Candidate& best = out[static_cast<size_t>(r)] = no_token;
    if (!path_.sampling.all_finite(row, vocabulary.size())) return;
    best.id = path_.sampling.best(row, nullptr, static_cast<int32_t>(vocabulary.begin), vocabulary.size(),
                                  draw_of(rows[static_cast<size_t>(r)]), &best.score);
    best.logit = vocabulary.contains(best.id) ? row[best.id - vocabulary.begin] : -infinity;
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

void CpuOps::sample_filtered(ConstTensorView gathered, int64_t vocabulary_size,
                             std::span<const SamplingRow> rows, std::span<Candidate> out) {
  require(out.size() == rows.size(), "one candidate for each row");
  const auto draw = [&](size_t row, FilterScratch& mine) {
    out[row] = FilteredDraw(path_.sampling, GatheredRow(gathered, vocabulary_size, static_cast<int64_t>(row)),
                            rows[row], mine)
                   .draw();
  };
  pool_->run([&](int thread) {
    const auto step = static_cast<size_t>(pool_->size());
    for (auto row = static_cast<size_t>(thread); row < rows.size(); row += step)
      draw(row, filter_scratch_[static_cast<size_t>(thread)]);
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
