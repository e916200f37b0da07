// The checked components of a tokenizer file. Private to this folder.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
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

// Where a text is cut before anything else, in characters: as Kimi's Python does.
struct TextLimits {
  size_t text;  // a part's length
  size_t run;   // of characters that are all blank, or all not
};

struct TokenizerComponents {
  Normalizer normalizer;
  PreTokenizer pre_tokenizer;
  Bpe model;
  AddedTokens added_tokens;
  SpecialTokens special_tokens;
  std::vector<DecoderStage> decoder;
  std::optional<TextLimits> limits = {};
};

// Throws Error (input) on anything that is not a supported tokenizer.json, and where two tokens have one id.
std::unique_ptr<const TokenizerComponents> parse_tokenizer_json(std::string_view text,
                                                                const TokenSettings& settings);

// Throws Error (input), with the line, on a broken line and on a rank or token that is there twice; also where tokens lack.
std::unique_ptr<const TokenizerComponents> parse_tiktoken(std::string_view text,
                                                          const TokenSettings& settings);

}  // namespace maniple
