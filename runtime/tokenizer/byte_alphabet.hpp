// GPT-2's alphabet: each of the 256 bytes as a printable character, so that byte-level vocabularies are text.
// Printable Latin-1 stands for itself, the others follow from U+0100 on (openai/gpt-2, encoder.py,
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
  // Back to bytes; text with any character outside the alphabet stands for its own bytes.
  std::string to_bytes(std::string_view characters) const;

 private:
  std::array<std::string, 256> character_of_byte_;
  std::array<std::int16_t, 0x144> byte_of_character_;  // -1: not in the alphabet
};

}  // namespace maniple
