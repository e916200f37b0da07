#include <runtime/tokenizer/utf8.hpp>

#include <utility>

namespace maniple {
namespace {

struct LeadByte {
  size_t length;  // 0: no sequence starts with this byte
  unsigned char second_low, second_high;
};

LeadByte lead_byte(unsigned char byte) {
  if (byte < 0x80) return {1, 0, 0};
  if (byte < 0xC2) return {0, 0, 0};
  if (byte < 0xE0) return {2, 0x80, 0xBF};
  if (byte < 0xF0)
    return {3, static_cast<unsigned char>(byte == 0xE0 ? 0xA0 : 0x80),
            static_cast<unsigned char>(byte == 0xED ? 0x9F : 0xBF)};
  if (byte < 0xF5)
    return {4, static_cast<unsigned char>(byte == 0xF0 ? 0x90 : 0x80),
            static_cast<unsigned char>(byte == 0xF4 ? 0x8F : 0xBF)};
  return {0, 0, 0};
}

}  // namespace

Utf8Sequence utf8_sequence(std::string_view text, size_t position) {
  using Kind = Utf8Sequence::Kind;
  const auto lead = lead_byte(static_cast<unsigned char>(text[position]));
  if (lead.length == 0) return {1, Kind::invalid};
  for (size_t i = 1; i < lead.length; ++i) {
    if (position + i == text.size()) return {i, Kind::truncated};
    const auto byte = static_cast<unsigned char>(text[position + i]);
    const unsigned char low = i == 1 ? lead.second_low : 0x80, high = i == 1 ? lead.second_high : 0xBF;
    if (byte < low || byte > high) return {i, Kind::invalid};
  }
  return {lead.length, Kind::valid};
}

size_t first_invalid_utf8(std::string_view text) {
  for (size_t position = 0; position < text.size();) {
    const auto sequence = utf8_sequence(text, position);
    if (sequence.kind != Utf8Sequence::Kind::valid) return position;
    position += sequence.length;
  }
  return std::string_view::npos;
}

char32_t next_code_point(std::string_view text, size_t& position) {
  const auto lead = static_cast<unsigned char>(text[position++]);
  if (lead < 0x80) return lead;
  const int following = lead < 0xE0 ? 1 : lead < 0xF0 ? 2 : 3;
  char32_t code_point = lead & (0x3F >> following);
  for (int i = 0; i < following; ++i)
    code_point = code_point << 6 | (static_cast<unsigned char>(text[position++]) & 0x3F);
  return code_point;
}

void append_utf8(std::string& text, char32_t code_point) {
  constexpr char32_t leads[] = {0, 0xC0, 0xE0, 0xF0};
  const int following = code_point < 0x80 ? 0 : code_point < 0x800 ? 1 : code_point < 0x10000 ? 2 : 3;
  text.push_back(static_cast<char>(leads[following] | code_point >> 6 * following));
  for (int i = following - 1; i >= 0; --i)
    text.push_back(static_cast<char>(0x80 | (code_point >> 6 * i & 0x3F)));
}

std::string LossyUtf8::push(std::string_view bytes) {
  pending_ += bytes;
  std::string whole;
  size_t position = 0;
  while (position < pending_.size()) {
    const auto sequence = utf8_sequence(pending_, position);
    if (sequence.kind == Utf8Sequence::Kind::truncated) break;
    if (sequence.kind == Utf8Sequence::Kind::valid)
      whole.append(pending_, position, sequence.length);
    else
      whole += replacement_character;
    position += sequence.length;
  }
  pending_.erase(0, position);
  return whole;
}

std::string LossyUtf8::finish() {
  return std::exchange(pending_, {}).empty() ? std::string() : std::string(replacement_character);
}

}  // namespace maniple
