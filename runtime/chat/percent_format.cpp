#include <runtime/chat/text.hpp>
#include <runtime/chat/value.hpp>

#include <fmt/printf.h>

#include <charconv>
#include <cmath>

namespace maniple::jinja {
namespace {

// %[(name)][flags][width][.precision]conversion
struct Directive {
  std::optional<std::string> name;
  std::string flags;
  int width = 0, precision = -1;
  char conversion = 0;
};

class Directives {
 public:
  explicit Directives(std::string_view text) : text_(text) {}

  std::string_view take_plain() { return take(text_.find('%')); }
  bool done() const { return text_.empty(); }

  Directive take_directive() {
    Directive directive;
    take(1);
    if (text_.starts_with('(')) {
      directive.name = take(text_.find(')')).substr(1);
      take(1);
    }
    directive.flags = take(text_.find_first_not_of("-+ 0#"));
    directive.width = take_number(0);
    if (text_.starts_with('.')) {
      take(1);
      directive.precision = take_number(0);
    }
    if (done()) throw TemplateError("incomplete format");
    directive.conversion = take(1)[0];
    return directive;
  }

 private:
  std::string_view take(size_t count) {
    const std::string_view taken = text_.substr(0, count);
    text_.remove_prefix(taken.size());
    return taken;
  }
  int take_number(int otherwise) {
    const std::string_view digits = take(text_.find_first_not_of("0123456789"));
    std::from_chars(digits.data(), digits.data() + digits.size(), otherwise);
    check_size(static_cast<size_t>(otherwise));
    return otherwise;
  }

  std::string_view text_;
};

// A tuple's items in order, a dictionary's by name, or one value.
class Operands {
 public:
  explicit Operands(const Value& values) : values_(values), tuple_(values.as<Sequence>()) {
    if (tuple_ && tuple_->kind != Sequence::Kind::tuple) tuple_ = nullptr;
  }

  Value take(const std::optional<std::string>& name) {
    const auto* dict = values_.as<Dict>();
    if (name) {
      const Value* found = dict ? find(dict->entries, *name) : nullptr;
      if (!found) throw TemplateError(fmt::format("there is no value named {} to format", *name));
      taken_ = count();  // as in Python, all further values are taken by name
      return *found;
    }
    if (taken_ == count()) throw TemplateError("not enough arguments for format string");
    return tuple_ ? tuple_->items[taken_++] : (++taken_, values_);
  }
  void finish() const {
    if (taken_ < count() && !values_.is<Dict>())
      throw TemplateError("not all arguments converted during string formatting");
  }

 private:
  size_t count() const { return tuple_ ? tuple_->items.size() : 1; }

  const Value& values_;
  const Sequence* tuple_;
  size_t taken_ = 0;
};

std::string padded(const std::string& text, const Directive& directive) {
  std::u32string characters = code_points(text);
  if (directive.precision >= 0)
    characters.resize(std::min(characters.size(), static_cast<size_t>(directive.precision)));
  const size_t width = std::max(characters.size(), static_cast<size_t>(directive.width));
  const bool left = directive.flags.find('-') != std::string::npos;
  characters.insert(left ? characters.size() : 0, width - characters.size(), U' ');
  return utf8(characters);
}

// Formats a number as in C, whose rules Python follows.
template <typename Number>
std::string number_text(const Directive& directive, std::string_view length, Number number) {
  const std::string precision = directive.precision < 0 ? "" : fmt::format(".{}", directive.precision);
  return fmt::sprintf(
      fmt::format("%{}{}{}{}{}", directive.flags, directive.width > 0 ? std::to_string(directive.width) : "",
                  precision, length, directive.conversion),
      number);
}

std::string formatted(const Directive& directive, const Value& value) {
  const auto refuse = [&] {
    throw TemplateError(
        fmt::format("a value of type {} cannot be formatted with %{}", value.type(), directive.conversion));
  };
  switch (directive.conversion) {
    case 's':
      return padded(text_of(value), directive);
    case 'r':
      return padded(repr_of(value), directive);
    case 'd':
    case 'i':
      if (const auto number = value.whole()) return number_text(directive, "", *number);
      if (const auto* number = value.as<double>(); number && std::abs(*number) < 9.2e18)
        return number_text(directive, "", static_cast<int64_t>(*number));
      refuse();
      break;
    case 'e':
    case 'f':
    case 'g':
      if (const auto number = value.real()) return number_text(directive, "", *number);
      refuse();
      break;
    default:
      throw TemplateError(fmt::format("the format %{} is not supported", directive.conversion));
  }
  return {};
}

}  // namespace

std::string percent_format(std::string_view text, const Value& values) {
  Directives directives(text);
  Operands operands(values);
  std::string result(directives.take_plain());
  for (; !directives.done(); result += directives.take_plain()) {
    const Directive directive = directives.take_directive();
    result += directive.conversion == '%' ? "%" : formatted(directive, operands.take(directive.name));
    check_size(result.size());
  }
  operands.finish();
  return result;
}

}  // namespace maniple::jinja
