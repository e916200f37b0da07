// Logits to tokens. What a request wants changed in its logits comes first (kernels/logit_adjustments.hpp), on each vocabulary shard.
// Every rank of the tensor group computes the same token: each proposes the best candidate
// of its shard, an all-gather exchanges 12 bytes a row, and all ranks choose in the same way. Filters
// come before that: they cut the shard's tokens. With a small top-k they look at the largest logits of each shard; else
// they need the whole logits of a row: several ranks share such rows among them. All of it runs on the device, where the chosen
// tokens stay for the next step; the host gets them in one download, and merges the alternatives of the shards.
#pragma once

#include <layers/forward_context.hpp>
#include <parallel/shard.hpp>

#include <memory>
#include <span>
#include <vector>

namespace maniple {

// How to draw the token of a row, and which log-probabilities to return (-1: none; n >= 0: that of the token
// and those of the n likeliest).
struct SamplerRow {
  SamplingRow draw;
  int32_t logprobs = -1;
  int32_t given = -1;  // the token that the log-probability is of; -1: the one that is drawn

  bool needs_full_logits() const { return draw.filtered() && !draw.filtered_by_candidates(); }
};

// The rows of a step. All but `rows` is device memory.
struct SamplerBatch {
  std::span<const SamplerRow> rows;
  std::span<const SamplingRow> draws;  // [rows, then those of padding]
  ConstTensorView seats;               // int32, the same: the seat that keeps the token; -1: none
  ConstTensorView listed_rows;         // int32: indices of rows that are filtered by candidates
  ConstTensorView full_rows;           // int32: indices of rows whose filters need full logits
  ConstTensorView scored_rows;         // int32: indices of rows with log-probabilities
  ConstTensorView given_tokens;        // int32: the given tokens of these rows
  TensorView last_tokens;              // int32 [all seats]: receives the tokens
  std::span<const AdjustedRow> adjusted = {};
  SequenceTables tables = {};  // for the adjusted ones

  SamplerBatch without_padding() const {
    SamplerBatch real = *this;
    real.draws = draws.first(rows.size());
    real.seats = seats.rows(0, static_cast<int64_t>(rows.size()));
    return real;
  }
};

struct SampledRow {
  int32_t id = 0;  // -1: a raw logit was NaN or infinite
  // Log softmax of the raw logits, before temperature and filters; 0 unless asked for.
  float logprob = 0;
  std::vector<TokenLogit> alternatives;  // likeliest first; logit holds the log-probability
};

// The tokens of a launched step. wait() blocks until the device has drawn them; ready(): it would not block.
class PendingRows {
 public:
  bool ready() const { return !download_ || download_->ready(); }
  std::vector<SampledRow> wait();

 private:
  friend class Sampler;
  // The layout of the download, array after array. Maxima and sums are those of all ranks, rank after rank.
  template <typename Byte>
  struct Arrays;
  template <typename Byte>
  Arrays<Byte> arrays(Byte* memory) const;
  float given(const Arrays<const std::byte>& results, size_t scored_row) const;
  std::vector<TokenLogit> likeliest(const Arrays<const std::byte>& results, size_t first, size_t count) const;
  float normaliser(const Arrays<const std::byte>& results, size_t scored_row) const;

  std::vector<SamplerRow> rows_;
  size_t scored_ = 0;
  bool given_ = false;             // some of them have a given token
  size_t ranks_ = 1, chunks_ = 1;  // chunks of a rank's vocabulary
  int64_t vocabulary_size_ = 0;
  size_t alternatives_ = 0;  // of all rows
  std::unique_ptr<Download> download_;
};

class Sampler {
 public:
  Sampler(int64_t vocabulary_size, const VocabularyShard& shard)
      : vocabulary_size_(vocabulary_size), shard_(shard) {}

  // Collective over the tensor group, like launch(). Draws the rows that are not filtered, also those of padding: for captured steps.
  std::span<Candidate> draw(ConstTensorView logits, const SamplerBatch& batch, ForwardContext& context) const;
  // logits fp32 [rows, padded shard]; those of adjusted rows change. drawn: by draw() of this step, or empty; it serves where no row
  // is filtered or adjusted.
  PendingRows launch(TensorView logits, const SamplerBatch& batch, ForwardContext& context,
                     std::span<const Candidate> drawn = {}) const;

 private:
  using Arrays = PendingRows::Arrays<std::byte>;

  PendingRows pending(const SamplerBatch& batch, int ranks) const;
  // raw: the logits of the scored rows, where those in `logits` may be others.
  void choose(ConstTensorView logits, const SamplerBatch& batch, std::span<const Cut> cuts,
              std::span<Candidate> chosen, ForwardContext& context, ConstTensorView raw = {}) const;
  void filter_by_candidates(ConstTensorView logits, const SamplerBatch& batch, std::span<Cut> cuts,
                            ForwardContext& context) const;
  void filter_full_rows(ConstTensorView logits, const SamplerBatch& batch, std::span<Cut> cuts,
                        ForwardContext& context) const;
  void list_alternatives(ConstTensorView logits, std::span<const SamplerRow> rows, const Arrays& results,
                         ForwardContext& context) const;
  // The logits of the scored rows, a copy.
  ConstTensorView score(ConstTensorView logits, const SamplerBatch& batch, size_t chunks,
                        const Arrays& results, ForwardContext& context) const;

  int64_t vocabulary_size_;
  VocabularyShard shard_;
};

}  // namespace maniple
