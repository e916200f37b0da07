// What the files beside tokenizer.json say of special tokens: tokenizer_config.json, special_tokens_map.json, added_tokens.json.
#pragma once

#include <runtime/checkpoint/model_files.hpp>

#include <cstdint>
#include <map>
#include <optional>

namespace maniple {

// A token that is searched in the text itself.
struct TokenSetting {
  std::string content;
  bool single_word = false;  // only where no word character touches it
  bool lstrip = false;       // takes the white space on its left with it
  bool rstrip = false;
  bool normalized = false;         // searched in normalised text, in its normalised form
  bool special = false;            // left out of decoded text on request
  std::optional<int64_t> id = {};  // as the file says; the tokenizer gives it one
};

struct TokenSettings {
  // By id: of added_tokens_decoder; without one, of added_tokens.json, except ids that tokenizer.json gives.
  std::map<int64_t, TokenSetting> added;
  bool yields = false;  // to tokenizer.json where it has the same id
  // "bos_token", "eos_token", ..., then names of the model's own: the variables of its chat template.
  std::vector<std::pair<std::string, TokenSetting>> named;
  std::vector<TokenSetting> further;  // additional_special_tokens, extra_special_tokens

  const std::string* find(std::string_view name) const;  // the content of a named token
  bool names(std::string_view content) const;
};

// Source: PreTrainedTokenizerBase._from_pretrained of transformers 5.2. Fails (input) on a file that is there and malformed.
TokenSettings read_token_settings(const ModelFiles& files);

}  // namespace maniple
