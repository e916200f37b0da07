// How a request is sampled and when it ends, and the table of these settings that readers, options, identities and checks follow.
#pragma once

#include <kernels/support/split_mix.hpp>

#include <cstdint>
#include <limits>
#include <optional>
#include <span>
#include <string>
#include <type_traits>
#include <vector>

namespace maniple {

// Added to the logit of a token.
struct TokenBias {
  int32_t id = 0;
  float bias = 0;

  bool operator==(const TokenBias&) const = default;
};

// The most of a request.
inline constexpr size_t max_biases = 300, max_ends = 256, max_bad_word_tokens = 1024, max_allowed = 16384;
inline constexpr int32_t most_logprobs = 1024;

template <typename T>
using Always = T;

// Held: Always, or std::optional for what somebody has stated: nothing at first.
template <template <typename> typename Held>
struct SamplingOf {
  template <typename T>
  static constexpr Held<T> at_first(T value) {
    if constexpr (std::is_same_v<Held<T>, T>)
      return value;
    else
      return std::nullopt;
  }

  Held<float> temperature = at_first(1.0F);  // below 1e-5: greedy
  Held<int32_t> top_k = at_first(0);         // 0 or -1: off
  Held<float> top_p = at_first(1.0F);
  Held<float> min_p = at_first(0.0F);
  Held<uint64_t> seed = at_first(uint64_t{0});  // of this request; the caller has replaced an unset one
  Held<uint32_t> max_tokens = at_first(64U);
  bool open_ended = false;  // ignores max_tokens: the context and the KV cache limit the length
  Held<uint32_t> min_tokens = at_first(0U);  // earlier no stop token is drawn
  Held<bool> ignore_eos = at_first(false);
  Held<std::vector<int32_t>> stop_token_ids = {};
  Held<uint32_t> n = at_first(1U);        // answers; that at index i > 0 has the seed answer_seed(seed, i)
  Held<int32_t> logprobs = at_first(-1);  // -1: none; n >= 0: the chosen token's and n alternatives
  Held<int32_t> prompt_logprobs = at_first(-1);       // the same of tokens of the prompt
  Held<float> repetition_penalty = at_first(1.0F);    // of tokens of prompt and completion; 1: off
  Held<float> frequency_penalty = at_first(0.0F);     // of tokens of the completion, for each time; 0: off
  Held<float> presence_penalty = at_first(0.0F);      // the same, once
  Held<std::vector<int32_t>> allowed_token_ids = {};  // empty: all
  Held<std::vector<TokenBias>> logit_bias = {};       // of different ids
  Held<std::vector<std::string>> stop = {};           // texts that end the completion, which ends before them
  Held<std::vector<std::string>> bad_words = {};  // that it does not have: an engine adds their ids to these
  std::vector<std::vector<int32_t>> bad_word_ids =
      {};  // whose last is never drawn after the others, in a completion

  // Of SamplingParams: whether the logits of a token are changed that comes after so many of the completion.
  bool changes_logits(uint32_t completion_tokens) const {
    return repetition_penalty != 1 || frequency_penalty != 0 || presence_penalty != 0 ||
           completion_tokens < min_tokens || !allowed_token_ids.empty() || !logit_bias.empty() ||
           !bad_word_ids.empty();
  }
  bool operator==(const SamplingOf&) const = default;
};

using SamplingParams = SamplingOf<Always>;
using StatedSampling = SamplingOf<std::optional>;

// Of an answer among those to one request.
constexpr uint64_t answer_seed(uint64_t seed, uint32_t index) {
  return index == 0 ? seed : split_mix(split_mix(seed) + index);
}

template <typename T>
struct Limits {
  T least = std::numeric_limits<T>::lowest(), most = std::numeric_limits<T>::max();
  const char* text = "";  // "must be ..."
};

// The table of numbers: f(name, limits, help, of) for each that a request may state. help: of the option that has the name with dashes;
// nullptr: there is none of this form. of(SamplingParams or StatedSampling): the setting.
void for_sampling_fields(auto&& f) {
  constexpr float above_0 = std::numeric_limits<float>::denorm_min();
  f("temperature", Limits<float>{0, 2, "from 0 (greedy) to 2"}, "0 for greedy, up to 2",
    [](auto& s) -> decltype(auto) { return (s.temperature); });
  f("top_k", Limits<int32_t>{.least = -1, .text = "at least 1, or 0 or -1 to switch it off"},
    "sample from the N likeliest tokens; 0 for all", [](auto& s) -> decltype(auto) { return (s.top_k); });
  f("top_p", Limits<float>{above_0, 1, "above 0 and at most 1"},
    "sample from the likeliest tokens of this total probability; 1 for all",
    [](auto& s) -> decltype(auto) { return (s.top_p); });
  f("min_p", Limits<float>{0, 1, "from 0 to 1"},
    "drop tokens below this fraction of the likeliest one's probability",
    [](auto& s) -> decltype(auto) { return (s.min_p); });
  f("seed", Limits<uint64_t>{}, nullptr, [](auto& s) -> decltype(auto) { return (s.seed); });
  f("max_tokens", Limits<uint32_t>{},
    "most tokens of a completion [default: 64; of a chat: the rest of the context]",
    [](auto& s) -> decltype(auto) { return (s.max_tokens); });
  f("min_tokens", Limits<uint32_t>{}, nullptr, [](auto& s) -> decltype(auto) { return (s.min_tokens); });
  f("ignore_eos", Limits<bool>{}, "the model's stop tokens do not end a completion",
    [](auto& s) -> decltype(auto) { return (s.ignore_eos); });
  f("n", Limits<uint32_t>{1, 256, "from 1 to 256"}, "answers to each prompt, drawn with seeds of their own",
    [](auto& s) -> decltype(auto) { return (s.n); });
  constexpr Limits<int32_t> alternatives{-1, most_logprobs, "from 0 to 1024, or -1 for none"};
  f("logprobs", alternatives, nullptr, [](auto& s) -> decltype(auto) { return (s.logprobs); });
  f("prompt_logprobs", alternatives, nullptr, [](auto& s) -> decltype(auto) { return (s.prompt_logprobs); });
  f("repetition_penalty", Limits<float>{.least = above_0, .text = "above 0"},
    "makes tokens of prompt and completion less likely above 1, which is off",
    [](auto& s) -> decltype(auto) { return (s.repetition_penalty); });
  f("frequency_penalty", Limits<float>{-2, 2, "from -2 to 2"},
    "taken off the logit of a token for each time that the completion has it",
    [](auto& s) -> decltype(auto) { return (s.frequency_penalty); });
  f("presence_penalty", Limits<float>{-2, 2, "from -2 to 2"},
    "taken off the logit of each token that the completion has",
    [](auto& s) -> decltype(auto) { return (s.presence_penalty); });
}

// The lists: f(name, of).
void for_sampling_lists(auto&& f) {
  f("stop_token_ids", [](auto& s) -> decltype(auto) { return (s.stop_token_ids); });
  f("allowed_token_ids", [](auto& s) -> decltype(auto) { return (s.allowed_token_ids); });
  f("logit_bias", [](auto& s) -> decltype(auto) { return (s.logit_bias); });
  f("stop", [](auto& s) -> decltype(auto) { return (s.stop); });
  f("bad_words", [](auto& s) -> decltype(auto) { return (s.bad_words); });
}

// Writes what is stated over the settings of the layer below.
void apply_stated(const StatedSampling& stated, SamplingParams& params);

// Why the parameters are invalid, as a message for the user; absent if they are valid.
std::optional<std::string> invalid_reason(const SamplingParams& params);
// The same of what a model with the ids 0 to vocabulary_size - 1 decides; `ends` end its completions.
std::optional<std::string> invalid_reason(const SamplingParams& params, int64_t vocabulary_size,
                                          std::span<const int32_t> ends);

}  // namespace maniple
