#include <launch/options/grammar.hpp>
#include <launch/tools/options/lengths.hpp>

#include <array>

namespace maniple {
namespace {

constexpr uint32_t longest = 100'000'000;  // above any model's context

std::optional<uint32_t> length_of(std::string_view text) {
  const auto length = whole_text<uint32_t>(text);
  return length >= 1U && length <= longest ? length : std::nullopt;
}

// "128", or where it may be a range "64-512".
std::optional<LengthRange> range_of(std::string_view text, bool may_be_range) {
  const size_t dash = may_be_range ? text.find('-') : std::string_view::npos;
  const auto low = length_of(text.substr(0, dash));
  const auto high = dash == std::string_view::npos ? low : length_of(text.substr(dash + 1));
  return low && high && *low <= *high ? std::optional(LengthRange{*low, *high}) : std::nullopt;
}

}  // namespace

Lengths parse_lengths(const std::string& name, const std::string& text) {
  Lengths lengths;
  lengths.text = text;
  if (text.ends_with(".csv")) {
    lengths.kind = Lengths::Kind::file;
    lengths.file = text;
    return lengths;
  }
  if (text == "sharegpt") {
    lengths.kind = Lengths::Kind::sharegpt;
    return lengths;
  }
  const std::array<std::string, 3> kinds = {"fixed", "uniform", "sharegpt"};
  const size_t colon = text.find(':'), slash = text.find('/');
  const std::string kind = text.substr(0, colon);
  if ((kind == "fixed" || kind == "uniform") && colon < slash && slash < text.size()) {
    const std::string_view both(text);
    const auto prompt = range_of(both.substr(colon + 1, slash - colon - 1), kind == "uniform"),
               output = range_of(both.substr(slash + 1), kind == "uniform");
    if (prompt && output) {
      lengths.prompt = *prompt;
      lengths.output = *output;
      return lengths;
    }
  }
  refuse(
      fmt::format("--{} ({}) must be fixed:128/128, uniform:64-512/16-256, sharegpt or FILE.csv", name, text),
      kind == "fixed" || kind == "uniform"
          ? fmt::format("--{} fixed:128/128: tokens of each prompt and output, 1 or more", name)
          : did_you_mean(kind, kinds, fmt::format("--{} fixed:128/128", name)));
}

}  // namespace maniple
