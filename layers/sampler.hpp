// Logits to tokens. Every rank of the tensor group derives the same token: each proposes the best of its
// vocabulary shard, 12 bytes a row are gathered, and all choose alike. Rows with top-k, top-p or min-p, and
// those that want alternatives, gather their whole logits first.
#pragma once

#include <layers/forward_context.hpp>
#include <parallel/shard.hpp>

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

struct SampledRow {
  int32_t id = 0;
  float logprob =
      0;  // log softmax of the raw logits (temperature and filters not applied); 0 unless asked for
  std::vector<TokenLogit> alternatives;  // likeliest first; logit holds the log-probability
};

class Sampler {
 public:
  Sampler(int64_t vocabulary_size, const VocabularyShard& shard)
      : vocabulary_size_(vocabulary_size), shard_(shard) {}

  // logits fp32 [rows, padded shard], one SamplerRow each.
  std::vector<SampledRow> sample(ConstTensorView logits, std::span<const SamplerRow> rows,
                                 ForwardContext& context) const;

 private:
  std::vector<Candidate> draw(ConstTensorView logits, std::span<const SamplerRow> rows,
                              ForwardContext& context) const;
  void redraw_with_full_logits(ConstTensorView logits, std::span<const SamplerRow> rows,
                               std::span<const int32_t> chosen, std::span<Candidate> winners,
                               std::span<SampledRow> sampled, ForwardContext& context) const;
  std::vector<float> log_sum_exp(ConstTensorView logits, ForwardContext& context) const;

  int64_t vocabulary_size_;
  VocabularyShard shard_;
};

}  // namespace maniple
