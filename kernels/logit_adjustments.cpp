#include <kernels/logit_adjustments.hpp>
#include <kernels/support/check.hpp>

#include <utility>

namespace maniple {

std::vector<int32_t> words_of_lists(const SamplingParams& sampling, int64_t vocabulary_size) {
  const auto size = [](const auto& list) { return static_cast<int32_t>(list.size()); };
  std::vector<int32_t> words{size(sampling.logit_bias), size(sampling.stop_token_ids),
                             size(sampling.bad_word_ids), 0};
  for (const TokenBias& bias : sampling.logit_bias) words.push_back(bias.id);
  for (const TokenBias& bias : sampling.logit_bias) words.push_back(__builtin_bit_cast(int32_t, bias.bias));
  words.insert(words.end(), sampling.stop_token_ids.begin(), sampling.stop_token_ids.end());
  words.push_back(0);  // offsets
  for (const auto& word : sampling.bad_word_ids) words.push_back(words.back() + size(word));
  for (const auto& word : sampling.bad_word_ids) words.insert(words.end(), word.begin(), word.end());
  if (!sampling.allowed_token_ids.empty()) {
    const size_t first = words.size();
    words[3] = static_cast<int32_t>(first);
    words.resize(first + static_cast<size_t>(vocabulary_size + 31) / 32);
    for (const int32_t id : sampling.allowed_token_ids)
      if (0 <= id && id < vocabulary_size)
        words[first + static_cast<size_t>(id) / 32] |= static_cast<int32_t>(1U << (id % 32));
  }
  for (const auto& word : sampling.bad_word_ids) require(!word.empty(), "a bad word has a token");
  if (std::cmp_greater(words.size(), most_list_words(vocabulary_size)))
    fail(ExitCode::fault, "a request has lists of {} words, and {} is the most", words.size(),
         most_list_words(vocabulary_size));
  return words;
}

int64_t most_list_words(int64_t vocabulary_size) {
  return 4 + 2 * max_biases + max_ends + 1 + 2 * max_bad_word_tokens + (vocabulary_size + 31) / 32;
}

}  // namespace maniple
