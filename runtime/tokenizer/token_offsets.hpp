// Where tokens stand in the text that they make.
#pragma once

#include <runtime/tokenizer/tokenizer.hpp>

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace maniple {

// Of each id the character of Tokenizer::decode's text, in code points, with which its own text begins; of one that only begins a character or
// goes on with it that character; of one without text where the next text begins.
std::vector<size_t> token_offsets(const Tokenizer& tokenizer, std::span<const int32_t> ids,
                                  bool skip_special_tokens);

}  // namespace maniple
