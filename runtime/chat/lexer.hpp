// Cuts a template into tokens, as Jinja's lexer does with trim_blocks and lstrip_blocks and without
// keep_trailing_newline. Published chat templates assume these settings.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace maniple::jinja {

struct Token {
  enum class Kind {
    data,
    begin_output,
    end_output,
    begin_block,
    end_block,
    name,
    text,
    integer,
    real,
    symbol,
    end
  };
  Kind kind;
  std::string text;  // data and texts without escapes, the others as written
  int line;          // from 1
};

// The last token is of kind end. Throws Error (input), with the line, on a text that is not a template.
std::vector<Token> lex(std::string_view source);

// "chat template, line 3: ..."
[[noreturn]] void refuse_template(int line, std::string_view problem);

}  // namespace maniple::jinja
