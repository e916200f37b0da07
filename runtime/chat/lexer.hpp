// A template cut into tokens, as Jinja's lexer does it with trim_blocks and lstrip_blocks and without
// keep_trailing_newline, the settings under which chat templates are published.
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
  std::string text;  // data and texts as they are meant, the others as they are written
  int line;          // from 1
};

// The last one is of kind end. Fails (input) with the line on what is no template.
std::vector<Token> lex(std::string_view source);

// "chat template, line 3: ..."
[[noreturn]] void refuse_template(int line, std::string_view problem);

}  // namespace maniple::jinja
