// Lists of candidates, as the backends on the host make and use them.
#pragma once

#include <kernels/sampling_batch.hpp>
#include <kernels/tensor/tensor_view.hpp>

#include <cmath>
#include <limits>
#include <span>
#include <vector>

namespace maniple::reference {

// NaN never wins.
inline float nan_to_lowest(float logit) {
  return std::isnan(logit) ? -std::numeric_limits<float>::infinity() : logit;
}
// The order (logit descending, id ascending).
inline bool larger(const TokenLogit& a, const TokenLogit& b) {
  return a.logit != b.logit ? a.logit > b.logit : a.id < b.id;
}

// The logits of a shard in a row of [rows, width], without padding.
std::span<const float> shard_row(ConstTensorView logits, IndexRange vocabulary, int64_t row);

// tokens: of a shard, in any order; all of them, or those from some logit on that at least max_candidates reach.
CandidateList list_of(std::vector<TokenLogit>& tokens);

// The lists of all shards as tokens in any order. Further tokens get the ids after the last listed one with their logit: wrong
// ids, but in the right place of the order.
std::vector<TokenLogit> tokens_of(std::span<const CandidateList* const> lists);

// The cut after `kept`, a prefix of tokens_of, on a shard with these logits.
Cut cut_after(const std::vector<TokenLogit>& kept, std::span<const CandidateList* const> lists,
              std::span<const float> logits, IndexRange vocabulary);

}  // namespace maniple::reference
