// How each sampled row chooses its token. Plain data, filled by runtime/execution.
#pragma once

#include <cstdint>
#include <limits>

namespace maniple {

// How many tokens of a vocabulary shard a CandidateList has.
inline constexpr int max_candidates = 64;

// Drawing is Gumbel-max: the token is argmax(logit / temperature + noise). The noise is a pure function of
// (seed, position, token id), so the draw does not depend on batch, grid or restart. Ties go to the lowest
// id. Temperature 0 means no noise: the plain argmax. Filters act on the logits divided by the temperature,
// in this order: min_p (against the largest probability), top_k (keeps ties at the threshold), top_p (adds
// probabilities in the order logit descending, id ascending, until the sum reaches p; keeps at least one).
struct SamplingRow {
  float temperature = 0;
  int32_t top_k = 0;      // 0: off
  float top_p = 1;        // 1: off
  float min_p = 0;        // 0: off
  uint64_t seed = 0;      // of the request
  uint32_t position = 0;  // of the token to be drawn, absolute

  constexpr bool filtered() const { return temperature > 0 && (top_k > 0 || top_p < 1 || min_p > 0); }
  // The filters need no logits but the max_candidates largest, and the number of those equal to the last.
  constexpr bool filtered_by_candidates() const { return filtered() && 0 < top_k && top_k <= max_candidates; }
};

// The best token of one vocabulary shard. Over shards the largest score wins, among equals the lowest id.
struct Candidate {
  float score = 0;  // logit / temperature + noise
  int32_t id = 0;   // global token id
  float logit = 0;
};

// Of a row with a logit that is NaN or infinite: wins over every other, and stands for no token.
inline constexpr Candidate no_token{std::numeric_limits<float>::infinity(), -1, 0};

struct TokenLogit {
  int32_t id = 0;
  float logit = 0;
};

// The first tokens of a vocabulary shard in the order (logit descending, id ascending). In a smaller shard the rest are
// {INT32_MAX, -inf}.
struct CandidateList {
  TokenLogit tokens[max_candidates];
  int32_t further;  // how many more tokens of the shard have the logit of the last one
};

// What filters leave of a shard: the tokens up to this one in the order (logit descending, id ascending).
struct Cut {
  float logit = -std::numeric_limits<float>::infinity();
  int32_t id = std::numeric_limits<int32_t>::max();
  // Without branches, which a GPU would take apart for each lane.
  constexpr bool keeps(const TokenLogit& token) const {
    return (token.logit > logit) | ((token.logit == logit) & (token.id <= id));
  }
};

// The log-sum-exp of a vocabulary takes the exact maximum, then this
// many chunk sums of the padded vocabulary. A binary tree adds them.
inline constexpr int vocabulary_chunks = 8;

}  // namespace maniple
