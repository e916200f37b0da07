// Patterns of tokenizer.json. Their language is Oniguruma's (as in Hugging Face tokenizers), and PCRE2 runs them: syntax with
// another meaning in PCRE2 is translated, or refused by name.
#pragma once

#include <runtime/text/regex.hpp>

namespace maniple {

// Throw Error (input) on a pattern that does not compile or that PCRE2 cannot run with Oniguruma's meaning.
Regex oniguruma_pattern(std::string_view pattern);
Regex literal_pattern(std::string_view text);

}  // namespace maniple
