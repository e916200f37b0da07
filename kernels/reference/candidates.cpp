#include <kernels/reference/candidates.hpp>

#include <algorithm>

namespace maniple::reference {

namespace {

constexpr TokenLogit no_entry{std::numeric_limits<int32_t>::max(), -std::numeric_limits<float>::infinity()};

}  // namespace

std::span<const float> shard_row(ConstTensorView logits, IndexRange vocabulary, int64_t row) {
  return {logits.as<float>() + row * logits.shape[1], static_cast<size_t>(vocabulary.size())};
}

CandidateList list_of(std::vector<TokenLogit>& tokens) {
  CandidateList list{};
  if (tokens.size() > max_candidates) {
    const auto last = tokens.begin() + max_candidates - 1;
    std::nth_element(tokens.begin(), last, tokens.end(), larger);
    list.further = static_cast<int32_t>(std::count_if(
        last + 1, tokens.end(), [&](const TokenLogit& token) { return token.logit == last->logit; }));
    tokens.resize(max_candidates);
  }
  std::sort(tokens.begin(), tokens.end(), larger);
  std::fill(std::copy(tokens.begin(), tokens.end(), list.tokens), std::end(list.tokens), no_entry);
  return list;
}

std::vector<TokenLogit> tokens_of(std::span<const CandidateList* const> lists) {
  std::vector<TokenLogit> tokens;
  for (const CandidateList* const list : lists) {
    for (const TokenLogit& token : list->tokens)
      if (token.id != no_entry.id) tokens.push_back(token);
    const TokenLogit last = list->tokens[max_candidates - 1];
    for (int32_t i = 1; i <= list->further; ++i) tokens.push_back({last.id + i, last.logit});
  }
  return tokens;
}

Cut cut_after(const std::vector<TokenLogit>& kept, std::span<const CandidateList* const> lists,
              std::span<const float> logits, IndexRange vocabulary) {
  const TokenLogit last = *std::max_element(kept.begin(), kept.end(), larger);
  const auto is_last = [&](const TokenLogit& token) {
    return token.logit == last.logit && token.id == last.id;
  };
  const bool listed = std::any_of(lists.begin(), lists.end(), [&](const CandidateList* list) {
    return std::any_of(std::begin(list->tokens), std::end(list->tokens), is_last);
  });
  if (listed || !vocabulary.contains(last.id)) return {last.logit, last.id};
  int64_t ties = std::count_if(kept.begin(), kept.end(), [&](const TokenLogit& token) {
    return token.logit == last.logit && vocabulary.contains(token.id);
  });
  size_t at = 0;
  while (nan_to_lowest(logits[at]) != last.logit || --ties > 0) ++at;
  return {last.logit, static_cast<int32_t>(vocabulary.begin) + static_cast<int32_t>(at)};
}

}  // namespace maniple::reference
