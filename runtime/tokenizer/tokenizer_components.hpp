// The checked components of a tokenizer.json. Private to this folder.
#pragma once

#include <cstdint>
#include <memory>
#include <string_view>
#include <vector>

#include <runtime/tokenizer/added_tokens.hpp>
#include <runtime/tokenizer/bpe.hpp>
#include <runtime/tokenizer/decoder.hpp>
#include <runtime/tokenizer/normalizer.hpp>
#include <runtime/tokenizer/pre_tokenizer.hpp>

namespace maniple {

// The template of one text: the tokens before it and after it.
struct SpecialTokens {
  std::vector<int32_t> before, after;
};

struct TokenSettings;

struct TokenizerComponents {
  Normalizer normalizer;
  PreTokenizer pre_tokenizer;
  Bpe model;
  AddedTokens added_tokens;
  SpecialTokens special_tokens;
  std::vector<DecoderStage> decoder;
};

// Throws Error (input) on anything that is not a supported tokenizer.json, and where two tokens have one id.
std::unique_ptr<const TokenizerComponents> parse_tokenizer_json(std::string_view text,
                                                                const TokenSettings& settings);

}  // namespace maniple
