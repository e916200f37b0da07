// GPT-2's alphabet: maps each of the 256 bytes to a printable character; byte-level vocabularies are then
// text. Printable Latin-1 maps to itself, the other bytes to U+0100 onwards (openai/gpt-2, encoder.py,
// bytes_to_unicode).
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>

namespace maniple {

class ByteAlphabet {
 public:
  ByteAlphabet();
  std::string to_characters(std::string_view bytes) const;
  // Back to bytes. A text with a character outside the alphabet is returned unchanged.
  std::string to_bytes(std::string_view characters) const;

 private:
  std::array<std::string, 256> character_of_byte_;
  std::array<int16_t, 0x144> byte_of_character_;  // -1: not in the alphabet
};

}  // namespace maniple
