// Logits to tokens. Every rank of the tensor group derives the same token: each proposes the best of its
// vocabulary shard, 12 bytes a row are gathered, and all choose alike. Rows with top-k, top-p or min-p, and
// those that want alternatives, gather their whole logits first. All of it happens on the device, where the
// chosen tokens stay for the next step; the host hears of them by one download.
#pragma once

#include <layers/forward_context.hpp>
#include <parallel/shard.hpp>

#include <memory>
#include <span>
#include <vector>

namespace maniple {

// What a row wants: how to draw, and how many log-probabilities (-1: none; n >= 0: of the token, and of the n
// likeliest).
struct SamplerRow {
  SamplingRow draw;
  int32_t logprobs = -1;

  bool needs_full_logits() const { return draw.filtered() || logprobs > 0; }
};

// The rows of a step, on the host, and what the device reads of them.
struct SamplerBatch {
  std::span<const SamplerRow> rows;
  std::span<const SamplingRow> draws;  // [rows]
  ConstTensorView seats;               // int32 [rows]: where the tokens are kept; -1: nowhere
  ConstTensorView full_rows;           // int32: those that need full logits
  ConstTensorView scored_rows;         // int32: those that want log-probabilities
  TensorView last_tokens;              // int32 [all seats]
};

struct SampledRow {
  int32_t id = 0;
  float logprob =
      0;  // log softmax of the raw logits (temperature and filters not applied); 0 unless asked for
  std::vector<TokenLogit> alternatives;  // likeliest first; logit holds the log-probability
};

// Tokens drawn by work that has been launched.
class PendingRows {
 public:
  bool ready() const { return !download_ || download_->ready(); }
  std::vector<SampledRow> wait();

 private:
  friend class Sampler;
  // What is downloaded, array after array; all ranks' maxima and sums, rank after rank.
  template <typename Byte>
  struct Arrays;
  template <typename Byte>
  Arrays<Byte> arrays(Byte* memory) const;
  float normaliser(const Arrays<const std::byte>& results, size_t scored_row) const;

  std::vector<SamplerRow> rows_;
  size_t full_ = 0;
  size_t scored_ = 0;
  size_t ranks_ = 1;
  size_t chunks_ = 1;  // of a rank's vocabulary
  size_t alternatives_ = 0;
  std::unique_ptr<Download> download_;
};

class Sampler {
 public:
  Sampler(int64_t vocabulary_size, const VocabularyShard& shard)
      : vocabulary_size_(vocabulary_size), shard_(shard) {}

  // logits fp32 [rows, padded shard].
  PendingRows launch(ConstTensorView logits, const SamplerBatch& batch, ForwardContext& context) const;

 private:
  using Arrays = PendingRows::Arrays<std::byte>;

  PendingRows pending(const SamplerBatch& batch, int ranks) const;
  void draw(ConstTensorView logits, const SamplerBatch& batch, const Arrays& results,
            ForwardContext& context) const;
  void redraw_with_full_logits(ConstTensorView logits, const SamplerBatch& batch,
                               std::span<const SamplerRow> rows, const Arrays& results,
                               ForwardContext& context) const;
  void score(ConstTensorView logits, const SamplerBatch& batch, size_t chunks, const Arrays& results,
             ForwardContext& context) const;

  int64_t vocabulary_size_;
  VocabularyShard shard_;
};

}  // namespace maniple
