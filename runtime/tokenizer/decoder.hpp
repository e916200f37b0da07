// From the texts of tokens back to text, token by token. A decoder is a chain of stages. A stream holds back
// exactly the text that later tokens can change: its joined output is the same as that of all tokens at once.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include <runtime/tokenizer/normalizer.hpp>

namespace maniple {

// Receives tokens: the text of each in any number of parts of whole characters, then end_token().
class TokenSink {
 public:
  virtual ~TokenSink() = default;
  virtual void text(std::string_view part) = 0;
  virtual void end_token() = 0;
  virtual void finish() = 0;  // no token follows
};

// Opens a stage that passes its tokens on to next.
using DecoderStage = std::function<std::unique_ptr<TokenSink>(TokenSink& next)>;

// GPT-2's byte alphabet to bytes, as one token; broken UTF-8 becomes U+FFFD.
DecoderStage byte_level_decoder();
// Runs of <0x..> to bytes; a run that is not UTF-8 becomes one U+FFFD for each byte.
DecoderStage byte_fallback_decoder();
DecoderStage fuse_decoder();  // all tokens become one
DecoderStage replace_decoder(Replace replace);
// Removes up to `start` such characters from the front and up to `stop` from the end of each token.
DecoderStage strip_decoder(std::string character, size_t start, size_t stop);
// Visible spaces become spaces; those of the first token vanish where one is prepended when encoding.
DecoderStage metaspace_decoder(std::string replacement, bool is_prepended);
DecoderStage space_between_decoder();  // for files without a decoder

class DecoderStream {
 public:
  explicit DecoderStream(const std::vector<DecoderStage>& stages);
  std::string push(std::string_view token);
  std::string finish();  // the rest; once, at the end

 private:
  std::unique_ptr<std::string> output_;
  std::vector<std::unique_ptr<TokenSink>> sinks_;  // last stage first
};

}  // namespace maniple
