#include <kernels/support/check.hpp>
#include <runtime/chat/lexer.hpp>
#include <runtime/chat/text.hpp>
#include <runtime/text/utf8.hpp>

#include <algorithm>
#include <charconv>

namespace maniple::jinja {
namespace {

using Kind = Token::Kind;

bool is_digit(char c) { return c >= '0' && c <= '9'; }
bool is_name_part(char c) {
  return is_digit(c) || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' || (c & 0x80);
}

// Makes every line end \n and drops the last one.
std::string with_plain_line_ends(std::string_view source) {
  std::string text = replace(replace(source, "\r\n", "\n", -1), "\r", "\n", -1);
  if (text.ends_with('\n')) text.pop_back();
  return text;
}

class Lexer {
 public:
  explicit Lexer(std::string_view source) : source_(with_plain_line_ends(source)) {}

  std::vector<Token> run() {
    while (position_ < source_.size()) {
      const size_t begin = position_, tag = next_tag();
      const char kind = tag < source_.size() ? source_[tag + 1] : ' ';
      position_ = std::min(tag + 2, source_.size());
      const char sign = position_ < source_.size() ? source_[position_] : ' ';
      if (kind != ' ') position_ += sign == '-' || sign == '+';
      add_data(begin, tag, kind == '%' || kind == '#' ? sign : sign == '-' ? '-' : '+');
      if (kind == '#') skip_comment();
      if (kind == '%' && !take_raw()) read_tag(Kind::begin_block, Kind::end_block, "%}");
      if (kind == '{') read_tag(Kind::begin_output, Kind::end_output, "}}");
    }
    add(Kind::end, "the end of the template");
    return std::move(tokens_);
  }

 private:
  [[noreturn]] void refuse(std::string_view problem) { refuse_template(line(), problem); }

  int line() {
    const size_t end = std::min(position_, source_.size());
    for (; counted_ < end; ++counted_) line_ += source_[counted_] == '\n';
    return line_;
  }

  void add(Kind kind, std::string text) { tokens_.push_back({kind, std::move(text), line()}); }

  std::string_view rest() const { return std::string_view(source_).substr(position_); }

  size_t next_tag() const {
    for (size_t at = source_.find('{', position_); at < source_.size() - 1; at = source_.find('{', at + 1))
      if (std::string_view("{%#").find(source_[at + 1]) != std::string_view::npos) return at;
    return source_.size();
  }

  void skip_spaces() {
    for (size_t next = position_; next < source_.size() && is_space(next_code_point(source_, next));)
      position_ = next;
  }

  // Adds the text before a tag. sign '-': without the white space at its end; '+': whole; else without the
  // tag's indentation, if only white space precedes the tag on its line.
  void add_data(size_t begin, size_t end, char sign) {
    std::string data = source_.substr(begin, end - begin);
    if (sign == '-') {
      data = strip(data, {}, Side::right);
    } else if (sign != '+' && end < source_.size()) {
      const size_t line_begin = data.rfind('\n') + 1;
      const bool starts_line = line_begin > 0 || begin == 0 || source_[begin - 1] == '\n';
      if (starts_line && strip(data.substr(line_begin)).empty()) data.resize(line_begin);
    }
    if (!data.empty()) add(Kind::data, std::move(data));
  }

  // Skips the white space that the end of a tag removes: '-' all, a block or comment without
  // sign one line end.
  void finish_tag(char sign, std::string_view delimiter) {
    position_ += delimiter.size();
    if (sign == '-') skip_spaces();
    if (sign != '-' && sign != '+' && delimiter != "}}" && rest().starts_with('\n')) ++position_;
  }

  void skip_comment() {
    const size_t end = source_.find("#}", position_);
    if (end == source_.npos) refuse("a comment is not closed");
    const char sign = end > position_ ? source_[end - 1] : ' ';
    position_ = end;
    finish_tag(sign, "#}");
  }

  // Takes "word %}" at position_, which then moves to the sign before %}.
  bool take_word_of_tag(std::string_view word) {
    const size_t start = position_;
    skip_spaces();
    if (rest().starts_with(word)) {
      position_ += word.size();
      skip_spaces();
      const std::string_view after = rest();
      if (after.starts_with("%}") || after.starts_with("-%}") || after.starts_with("+%}")) return true;
    }
    position_ = start;
    return false;
  }

  char take_sign() {
    const char sign = source_[position_];
    position_ += sign == '-' || sign == '+';
    return sign;
  }

  bool take_raw() {
    if (!take_word_of_tag("raw")) return false;
    const bool strips = take_sign() == '-';
    position_ += 2;
    if (strips) skip_spaces();
    const size_t begin = position_;
    for (size_t tag = position_; (tag = source_.find("{%", tag)) != source_.npos; tag += 2) {
      position_ = tag + 2;
      const char sign = position_ < source_.size() ? take_sign() : ' ';
      if (!take_word_of_tag("endraw")) continue;
      add_data(begin, tag, sign);
      finish_tag(take_sign(), "%}");
      return true;
    }
    refuse("raw is not closed");
  }

  void read_tag(Kind begin, Kind end, std::string_view delimiter) {
    add(begin, "");
    std::string brackets;  // the closing brackets that are due
    for (;;) {
      skip_spaces();
      if (position_ == source_.size()) refuse("a tag is not closed");
      const bool signed_end = rest().substr(1).starts_with(delimiter) &&
                              (rest()[0] == '-' || (rest()[0] == '+' && end == Kind::end_block));
      if (brackets.empty() && (signed_end || rest().starts_with(delimiter))) break;
      read_token(brackets);
    }
    add(end, std::string(delimiter));
    finish_tag(rest().starts_with(delimiter) ? ' ' : take_sign(), delimiter);
  }

  void read_token(std::string& brackets) {
    const char first = source_[position_];
    if (is_digit(first)) return read_number();
    if (is_name_part(first)) return add(Kind::name, take_while(is_name_part));
    if (first == '"' || first == '\'') return read_text(first);
    constexpr std::string_view symbols[] = {"//", "**", "==", "!=", ">=", "<=", "+", "-", "/",
                                            "*",  "%",  "~",  "[",  "]",  "(",  ")", "{", "}",
                                            ">",  "<",  "=",  ".",  ":",  "|",  ","};
    const auto* symbol = std::ranges::find_if(symbols, [&](auto each) { return rest().starts_with(each); });
    if (symbol == std::end(symbols)) refuse("an unexpected character: " + json_quoted({&first, 1}, false));
    if (const size_t open = std::string_view("([{").find(first); open != std::string_view::npos)
      brackets += ")]}"[open];
    if (first == ')' || first == ']' || first == '}') {
      if (!brackets.ends_with(first)) refuse("an unexpected " + std::string(*symbol));
      brackets.pop_back();
    }
    add(Kind::symbol, std::string(*symbol));
    position_ += symbol->size();
  }

  template <typename Belongs>
  std::string take_while(Belongs belongs) {
    const size_t begin = position_;
    while (position_ < source_.size() && belongs(source_[position_])) ++position_;
    return source_.substr(begin, position_ - begin);
  }

  bool digit_follows(size_t ahead) const { return rest().size() > ahead && is_digit(rest()[ahead]); }

  void read_number() {
    const bool is_index = !tokens_.empty() && tokens_.back().text == ".";  // x.0.1
    std::string number = take_while(is_digit);
    Kind kind = Kind::integer;
    if (!is_index && rest().starts_with('.') && digit_follows(1)) {
      kind = Kind::real;
      ++position_;
      number += '.' + take_while(is_digit);
    }
    if (rest().starts_with('e') || rest().starts_with('E')) {
      const size_t sign = rest().substr(1).starts_with('-') || rest().substr(1).starts_with('+');
      if (digit_follows(1 + sign)) {
        kind = Kind::real;
        number += rest().substr(0, 1 + sign);
        position_ += 1 + sign;
        number += take_while(is_digit);
      }
    }
    if (position_ < source_.size() && is_name_part(source_[position_]))
      refuse("a number of an unknown form: " + number + source_[position_]);
    add(kind, number);
  }

  void read_text(char quote) {
    std::string text;
    for (++position_; position_ < source_.size() && source_[position_] != quote;) {
      if (source_[position_] == '\\' && position_ + 1 < source_.size())
        read_escape(text);
      else
        text += source_[position_++];
    }
    if (position_ == source_.size()) refuse("a text is not closed");
    add(Kind::text, std::move(text));
    ++position_;
  }

  // Reads Python's escapes; an unknown one is kept as it is.
  void read_escape(std::string& text) {
    constexpr std::string_view letters = "\n\\'\"abfnrtv";
    constexpr std::string_view meanings = "\n\\'\"\a\b\f\n\r\t\v";
    const char letter = source_[position_ + 1];
    position_ += 2;
    if (letter == 'x') return append_code(text, take_code(2, 2, 16));
    if (letter == 'u') return append_code(text, take_code(4, 4, 16));
    if (letter == 'U') return append_code(text, take_code(8, 8, 16));
    if (letter == 'N') refuse("the escape \\N{...} is not supported");
    if (letter >= '0' && letter <= '7') {
      --position_;
      return append_code(text, take_code(1, 3, 8));
    }
    if (const size_t at = letters.find(letter); at == letters.npos)
      (text += '\\') += letter;
    else if (letter != '\n')  // escaped line end: nothing
      text += meanings[at];
  }

  uint32_t take_code(size_t least, size_t most, int base) {
    uint32_t code = 0;
    const std::string_view digits = rest().substr(0, most);
    const auto* end = std::from_chars(digits.data(), digits.data() + digits.size(), code, base).ptr;
    const auto used = static_cast<size_t>(end - digits.data());
    if (used < least) refuse("an incomplete escape in a text");
    position_ += used;
    return code;
  }

  void append_code(std::string& text, uint32_t code) {
    if (code > 0x10FFFF || (code >= 0xD800 && code < 0xE000)) refuse("an escape that is no character");
    append_utf8(text, code);
  }

  std::string source_;
  size_t position_ = 0, counted_ = 0;
  int line_ = 1;
  std::vector<Token> tokens_;
};

}  // namespace

std::vector<Token> lex(std::string_view source) { return Lexer(source).run(); }

void refuse_template(int line, std::string_view problem) {
  fail(ExitCode::input, "chat template, line {}: {}", line, problem);
}

}  // namespace maniple::jinja
