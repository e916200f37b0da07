// What changes the logits of a row before its draw, in this order: allowed ids, bad words, ends before min_tokens (all of these leave a
// token the lowest finite logit), bias, repetition, frequency and presence penalty. Plain data, filled by runtime/execution. A logit that
// is not finite stays what it is; a finite one stays finite.
#pragma once

#include <kernels/support/sampling_params.hpp>

#include <cstdint>
#include <limits>
#include <span>
#include <vector>

namespace maniple {

// A row of logits to change, and the sequence whose next token it gives.
struct AdjustedRow {
  int32_t row = 0;   // of the logits
  int32_t seat = 0;  // of its block table and its lists
  int32_t length = 0;
  int32_t prompt_length = 0;  // of these tokens
  float repetition_penalty = 1;
  float frequency_penalty = 0;
  float presence_penalty = 0;
  int32_t before_min_tokens = 0;  // 1: no end yet
};

// The lists of one request, as words: sizes, then what the accessors say. Ids are those of the whole vocabulary.
class TokenLists {
 public:
  constexpr explicit TokenLists(const int32_t* words) : words_(words) {}
  constexpr int biases() const { return words_[0]; }
  constexpr int ends() const { return words_[1]; }
  constexpr int bad_words() const { return words_[2]; }
  constexpr bool limited() const { return words_[3] != 0; }
  constexpr int32_t biased(int i) const { return words_[4 + i]; }
  constexpr float bias(int i) const { return __builtin_bit_cast(float, words_[4 + biases() + i]); }
  constexpr int32_t end(int i) const { return words_[4 + 2 * biases() + i]; }
  constexpr std::span<const int32_t> bad_word(int i) const {
    const int32_t* const offsets = words_ + 4 + 2 * biases() + ends();
    const int32_t* const tokens = offsets + bad_words() + 1;
    return {tokens + offsets[i], tokens + offsets[i + 1]};
  }
  constexpr bool allows(int32_t id) const {
    return !limited() || (static_cast<uint32_t>(words_[words_[3] + id / 32]) >> (id % 32) & 1) != 0;
  }

 private:
  const int32_t* words_;
};

// The words of a TokenLists; stop_token_ids are the ends. Fails (fault) beyond the limits of the request's fields.
std::vector<int32_t> words_of_lists(const SamplingParams& sampling, int64_t vocabulary_size);
// The most of them.
int64_t most_list_words(int64_t vocabulary_size);

// What a device knows of its sequences.
struct SequenceTables {
  std::span<const int32_t> tokens = {};        // of the slots of all blocks, [blocks, block tokens]
  std::span<const int32_t> block_tables = {};  // [seats, max_blocks]; block i: entry first + i * stride
  std::span<const int32_t> lists = {};         // [seats, list_words]
  int32_t block_tokens = 0, max_blocks = 0, first = 0, stride = 1, list_words = 0;

  constexpr int32_t token(int32_t seat, int32_t position) const {
    const int64_t entry = int64_t{seat} * max_blocks + first + position / block_tokens * stride;
    const int64_t block = block_tables[static_cast<size_t>(entry)];
    return tokens[static_cast<size_t>(block * block_tokens + position % block_tokens)];
  }
  constexpr TokenLists lists_of(int32_t seat) const {
    return TokenLists(lists.data() + int64_t{seat} * list_words);
  }
  // Whether the last token of the bad word would complete it: the output ends with the others.
  constexpr bool begins(const AdjustedRow& row, std::span<const int32_t> bad_word) const {
    const auto others = static_cast<int32_t>(bad_word.size()) - 1, first_other = row.length - others;
    if (first_other < row.prompt_length) return false;
    for (int32_t i = 0; i < others; ++i)
      if (token(row.seat, first_other + i) != bad_word[static_cast<size_t>(i)]) return false;
    return true;
  }
};

constexpr float lowest_logit = std::numeric_limits<float>::lowest();

// `after`, if the logit was finite before.
constexpr float kept_finite(float before, float after) {
  if (!(before - before == 0)) return before;
  return after > -lowest_logit ? -lowest_logit : after < lowest_logit ? lowest_logit : after;
}
constexpr float masked_logit(float logit) { return kept_finite(logit, lowest_logit); }
constexpr float repeated_logit(float logit, float penalty) {
  return kept_finite(logit, logit > 0 ? logit / penalty : logit * penalty);
}
// by_frequency: the rounded product of penalty and count.
constexpr float counted_logit(float logit, float by_frequency, float presence_penalty) {
  return kept_finite(logit, logit - by_frequency - presence_penalty);
}

}  // namespace maniple
