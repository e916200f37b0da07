#include <kernels/support/sampling_params.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <set>

namespace maniple {
namespace {

// A NaN lies in no range.
std::optional<std::string> reason_against_numbers(const SamplingParams& params) {
  std::optional<std::string> reason;
  for_sampling_fields([&](auto name, const auto& limits, auto, auto of) {
    if (const auto value = of(params); !reason && !(value >= limits.least && value <= limits.most))
      reason = fmt::format("{} ({}) must be {}", name, value, limits.text);
  });
  return reason;
}

std::optional<std::string> reason_against_lists(const SamplingParams& params) {
  if (params.logit_bias.size() > max_biases)
    return fmt::format("logit_bias has {} tokens, and {} is the most", params.logit_bias.size(), max_biases);
  for (const TokenBias& bias : params.logit_bias)
    if (!(bias.bias >= -100 && bias.bias <= 100))
      return fmt::format("logit_bias of token {} ({}) must be from -100 to 100", bias.id, bias.bias);
  if (params.allowed_token_ids.size() > max_allowed)
    return fmt::format("allowed_token_ids has {} ids, and {} is the most", params.allowed_token_ids.size(),
                       max_allowed);
  size_t tokens = 0;
  for (const auto& word : params.bad_word_ids) tokens += word.size();
  if (tokens > max_bad_word_tokens)
    return fmt::format("bad_words have {} tokens, and {} is the most", tokens, max_bad_word_tokens);
  return std::nullopt;
}

// The tokens that may not be drawn at some time.
std::set<int32_t> banned(const SamplingParams& params, std::span<const int32_t> ends) {
  std::set<int32_t> ids;
  for (const auto& word : params.bad_word_ids) ids.insert(word.back());
  if (params.min_tokens == 0) return ids;
  ids.insert(ends.begin(), ends.end());
  ids.insert(params.stop_token_ids.begin(), params.stop_token_ids.end());
  return ids;
}

}  // namespace

void apply_stated(const StatedSampling& stated, SamplingParams& params) {
  const auto take = [&](auto of) {
    if (of(stated)) of(params) = *of(stated);
  };
  for_sampling_fields([&](auto, auto&&, auto, auto of) { take(of); });
  for_sampling_lists([&](auto, auto of) { take(of); });
}

std::optional<std::string> invalid_reason(const SamplingParams& params) {
  if (auto reason = reason_against_numbers(params)) return reason;
  if (!params.open_ended && params.min_tokens > params.max_tokens)
    return fmt::format("min_tokens ({}) must not exceed max_tokens ({})", params.min_tokens,
                       params.max_tokens);
  return reason_against_lists(params);
}

std::optional<std::string> invalid_reason(const SamplingParams& params, int64_t vocabulary_size,
                                          std::span<const int32_t> ends) {
  const auto unknown = [&](int32_t id) { return id < 0 || id >= vocabulary_size; };
  const auto not_there = [&](const char* name, int32_t id) {
    return fmt::format("{}: token id {} is not in the vocabulary (0 to {})", name, id, vocabulary_size - 1);
  };
  for (const TokenBias& bias : params.logit_bias)
    if (unknown(bias.id)) return not_there("logit_bias", bias.id);
  const std::vector<int32_t>& allowed = params.allowed_token_ids;
  for (const int32_t id : allowed)
    if (unknown(id)) return not_there("allowed_token_ids", id);
  if (params.min_tokens > 0 && ends.size() + params.stop_token_ids.size() > max_ends)
    return fmt::format("min_tokens goes with at most {} tokens that end a completion", max_ends);
  std::set<int32_t> never = banned(params, ends);
  std::erase_if(never, unknown);
  const bool nothing_left =
      allowed.empty() ? std::ssize(never) >= vocabulary_size
                      : std::ranges::all_of(allowed, [&](int32_t id) { return never.contains(id); });
  if (nothing_left)
    return "bad_words and min_tokens ban all tokens that are allowed, and none could be drawn";
  return std::nullopt;
}

}  // namespace maniple
