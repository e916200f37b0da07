// Text to token ids and back, as Hugging Face's tokenizers library does it for byte-pair encoders: reads
// tokenizer.json, or tiktoken.model. Refuses unsupported components of the file by name (see README.md).
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace maniple {

class DecoderStream;
struct TokenizerComponents;
struct TokenSettings;  // runtime/checkpoint/token_settings.hpp

// Constant and safe to use from several threads once built. Copies share their content.
class Tokenizer {
 public:
  // Throws Error (input) with a message that names the problem and `where`, the name of the file.
  static Tokenizer from_json(std::string_view json, std::string_view where = {});
  // With what other files say of special tokens.
  static Tokenizer from_json(std::string_view json, std::string_view where, const TokenSettings& settings);

  // Kimi-K2's: lines of a token in base64 and its rank. The same errors.
  static Tokenizer from_tiktoken(std::string_view text, std::string_view where,
                                 const TokenSettings& settings);

  explicit Tokenizer(std::shared_ptr<const TokenizerComponents> parts) : parts_(std::move(parts)) {}

  // add_special_tokens: apply the file's template (for Llama 3, <|begin_of_text|> comes first). Added tokens
  // in the text are recognised in any case. Throws Error (input) on text that is not UTF-8.
  std::vector<int32_t> encode(std::string_view text, bool add_special_tokens) const;

  // Skips ids without a token; broken UTF-8 becomes U+FFFD.
  std::string decode(std::span<const int32_t> ids, bool skip_special_tokens) const;

  std::optional<int32_t> token_id(std::string_view token) const;
  std::optional<int32_t> added_token_id(std::string_view token) const;
  size_t vocab_size() const;  // largest id + 1
  bool is_special(int32_t id) const;

  // For the incremental detokeniser: a token's text in the vocabulary, and a decoder from
  // these texts to text.
  std::optional<std::string_view> token_text(int32_t id) const;
  DecoderStream open_decoder() const;

 private:
  void encode_part(std::string_view text, bool opens_input, std::vector<int32_t>& ids) const;
  void encode_section(std::string_view text, bool opens_input, std::vector<int32_t>& ids) const;

  std::shared_ptr<const TokenizerComponents> parts_;
};

}  // namespace maniple
