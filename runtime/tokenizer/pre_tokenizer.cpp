#include <runtime/tokenizer/pre_tokenizer.hpp>

#include <algorithm>

namespace maniple {
namespace {

// joins(is_match, previous_is_match): does a span extend the one before it? Nothing precedes the first one,
// which counts as text.
template <typename Joins>
std::vector<Span> join(const std::vector<Span>& spans, Joins joins) {
  std::vector<Span> joined;
  bool previous = false;
  for (const Span& span : spans) {
    if (!joined.empty() && joins(span.is_match, previous)) {
      joined.back().begin = std::min(joined.back().begin, span.begin);
      joined.back().end = std::max(joined.back().end, span.end);
    } else {
      joined.push_back(span);
    }
    previous = span.is_match;
  }
  return joined;
}

std::vector<Span> arrange(std::vector<Span> spans, SplitBehavior behavior) {
  const auto is_fresh_match = [](bool match, bool previous) { return match && !previous; };
  switch (behavior) {
    case SplitBehavior::isolated:
      break;
    case SplitBehavior::removed:
      std::erase_if(spans, [](const Span& span) { return span.is_match; });
      break;
    case SplitBehavior::contiguous:
      return join(spans, std::equal_to<>());
    case SplitBehavior::merged_with_previous:
      return join(spans, is_fresh_match);
    case SplitBehavior::merged_with_next:
      std::ranges::reverse(spans);
      spans = join(spans, is_fresh_match);
      std::ranges::reverse(spans);
  }
  return spans;
}

using Pieces = std::function<void(std::string_view piece, bool opens_input)>;

void apply(const Split& split, std::string_view text, bool opens_input, const Pieces& next) {
  auto spans = split.pattern.spans(text);
  for (Span& span : spans) span.is_match ^= split.invert;
  for (const Span& span : arrange(std::move(spans), split.behavior))
    next(text.substr(span.begin, span.end - span.begin), opens_input && span.begin == 0);
}

void apply(const PrefixSpace&, std::string_view text, bool opens_input, const Pieces& next) {
  if (text.starts_with(' ')) return next(text, opens_input);
  next(std::string(" ").append(text), opens_input);
}

void apply(const MapBytes& map, std::string_view text, bool opens_input, const Pieces& next) {
  next(map.alphabet.to_characters(text), opens_input);
}

void apply(const VisibleSpace& space, std::string_view text, bool opens_input, const Pieces& next) {
  using Prepend = VisibleSpace::Prepend;
  std::string visible;
  for (const char byte : text) byte == ' ' ? visible += space.replacement : visible += byte;
  const bool wanted = space.prepend == Prepend::always || (space.prepend == Prepend::first && opens_input);
  if (wanted && !visible.starts_with(space.replacement)) visible.insert(0, space.replacement);
  next(visible, opens_input);
}

}  // namespace

void PreTokenizer::run(size_t step, std::string_view text, bool opens_input, const Sink& sink) const {
  if (text.empty()) return;
  if (step == steps_.size()) return sink(text);
  const auto next = [&](std::string_view piece, bool opens) { run(step + 1, piece, opens, sink); };
  std::visit([&](const auto& known) { apply(known, text, opens_input, next); }, steps_[step]);
}

}  // namespace maniple
