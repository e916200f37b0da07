#include <runtime/text/utf8.hpp>

#include <unicode/utf8.h>

#include <algorithm>
#include <iterator>
#include <utility>

namespace maniple {

size_t character_count(std::string_view text) {
  return text.size() - static_cast<size_t>(std::ranges::count_if(text, continues_character));
}

std::string_view character_at(std::string_view text, size_t position) {
  size_t end = position;
  U8_FWD_1(text.data(), end, text.size());
  return text.substr(position, end - position);
}

size_t first_invalid_utf8(std::string_view text) {
  for (size_t position = 0, start = 0; position < text.size(); start = position) {
    UChar32 character = 0;
    U8_NEXT(text.data(), position, text.size(), character);
    if (character < 0) return start;
  }
  return std::string_view::npos;
}

char32_t next_code_point(std::string_view text, size_t& position) {
  UChar32 character = 0;
  U8_NEXT_UNSAFE(text.data(), position, character);
  return static_cast<char32_t>(character);
}

void append_utf8(std::string& text, char32_t code_point) {
  char bytes[U8_MAX_LENGTH];
  size_t length = 0;
  U8_APPEND_UNSAFE(bytes, length, code_point);
  text.append(bytes, length);
}

std::string LossyUtf8::push(std::string_view bytes) {
  pending_ += bytes;
  auto end = std::ssize(pending_);
  U8_TRUNCATE_IF_INCOMPLETE(pending_.data(), 0, end);
  std::string whole;
  for (ptrdiff_t position = 0, start = 0; position < end; start = position) {
    UChar32 character = 0;
    U8_NEXT(pending_.data(), position, end, character);
    if (character < 0)
      whole += replacement_character;
    else
      whole.append(pending_, static_cast<size_t>(start), static_cast<size_t>(position - start));
  }
  pending_.erase(0, static_cast<size_t>(end));
  return whole;
}

std::string LossyUtf8::finish() {
  return std::exchange(pending_, {}).empty() ? std::string() : std::string(replacement_character);
}

}  // namespace maniple
