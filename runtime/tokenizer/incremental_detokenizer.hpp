// Text of a growing sequence of tokens. The results of push and finish, joined, are what Tokenizer::decode
// gives for all ids.
#pragma once

#include <cstdint>
#include <string>

#include <runtime/tokenizer/decoder.hpp>
#include <runtime/tokenizer/tokenizer.hpp>

namespace maniple {

// Constant time a token, amortised. The tokenizer must outlive it.
class IncrementalDetokenizer {
 public:
  IncrementalDetokenizer(const Tokenizer& tokenizer, bool skip_special_tokens)
      : tokenizer_(&tokenizer),
        skip_special_tokens_(skip_special_tokens),
        decoder_(tokenizer.open_decoder()) {}

  // Returns the text that this token completes: whole characters that no later token can change. Holds back
  // incomplete characters. With byte tokens (<0x0A>) it holds back a run of them until another token ends it,
  // since one broken byte turns the whole run into U+FFFD.
  std::string push(int32_t id) {
    const auto token = tokenizer_->token_text(id);
    const bool is_silent = !token || (skip_special_tokens_ && tokenizer_->is_special(id));
    return is_silent ? std::string() : decoder_.push(*token);
  }

  // The rest, broken bytes as U+FFFD. Once, at the end.
  std::string finish() { return decoder_.finish(); }

 private:
  const Tokenizer* tokenizer_;
  bool skip_special_tokens_;
  DecoderStream decoder_;
};

}  // namespace maniple
