#include <runtime/text/utf8.hpp>
#include <runtime/tokenizer/incremental_detokenizer.hpp>
#include <runtime/tokenizer/token_offsets.hpp>

#include <algorithm>
#include <string>
#include <string_view>

namespace maniple {
namespace {

// The character of `text` of each of the tokens that make it together: of the last ones each has a byte, or each a broken character; those
// before have none.
std::vector<size_t> characters_of(std::string_view text, size_t tokens) {
  std::vector<size_t> characters(tokens);
  const bool bytes = tokens >= text.size();
  const size_t silent = tokens - std::min(tokens, bytes ? text.size() : character_count(text));
  for (size_t i = 1; silent + i < tokens; ++i)
    characters[silent + i] = characters[silent + i - 1] + (bytes && continues_character(text[i]) ? 0 : 1);
  return characters;
}

}  // namespace

std::vector<size_t> token_offsets(const Tokenizer& tokenizer, std::span<const int32_t> ids,
                                  bool skip_special_tokens) {
  std::vector<size_t> offsets;
  IncrementalDetokenizer detokenizer(tokenizer, skip_special_tokens);
  size_t out = 0;             // characters so far
  std::vector<int32_t> held;  // ids behind them
  // The text of the held ids, and perhaps of one that follows them: where that one begins.
  const auto release = [&](const std::string& text) {
    const std::string own = held.empty() ? "" : tokenizer.decode(held, skip_special_tokens);
    const bool goes_on = !text.starts_with(own);  // with a character that the held ones began
    for (const size_t character : characters_of(own, held.size()))
      offsets.push_back(out + (goes_on ? 0 : character));
    const size_t next = out + (goes_on ? 0 : character_count(own));
    out += character_count(text);
    held.clear();
    return next;
  };
  for (const int32_t id : ids) {
    const std::string text = detokenizer.push(id);
    if (text.empty())
      held.push_back(id);
    else
      offsets.push_back(release(text));
  }
  release(detokenizer.finish());
  return offsets;
}

}  // namespace maniple
