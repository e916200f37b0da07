#include <fmt/format.h>

#include <runtime/scheduling/sampling_params.hpp>

namespace maniple {
namespace {

constexpr int32_t max_logprobs = 20;

}  // namespace

// Comparisons are written so that a NaN is refused.
std::optional<std::string> invalid_reason(const SamplingParams& params) {
  if (!(params.temperature >= 0.0F && params.temperature <= 2.0F))
    return fmt::format("temperature ({}) must be from 0 (greedy) to 2", params.temperature);
  if (params.top_k < -1)
    return fmt::format("top_k ({}) must be at least 1, or 0 or -1 to switch it off", params.top_k);
  if (!(params.top_p > 0.0F && params.top_p <= 1.0F))
    return fmt::format("top_p ({}) must be above 0 and at most 1", params.top_p);
  if (!(params.min_p >= 0.0F && params.min_p <= 1.0F))
    return fmt::format("min_p ({}) must be from 0 to 1", params.min_p);
  if (params.max_tokens < 1) return "max_tokens (0) must be at least 1";
  if (!params.open_ended && params.min_tokens > params.max_tokens)
    return fmt::format("min_tokens ({}) must not exceed max_tokens ({})", params.min_tokens,
                       params.max_tokens);
  if (params.logprobs < -1 || params.logprobs > max_logprobs)
    return fmt::format("logprobs ({}) must be from 0 to {}, or -1 for none", params.logprobs, max_logprobs);
  return std::nullopt;
}

}  // namespace maniple
