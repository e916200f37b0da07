#include <runtime/text/utf8.hpp>
#include <runtime/tokenizer/byte_alphabet.hpp>

namespace maniple {

ByteAlphabet::ByteAlphabet() {
  byte_of_character_.fill(-1);
  char32_t next = 0x100;
  for (int byte = 0; byte < 256; ++byte) {
    const bool printable = (byte >= 0x21 && byte <= 0x7E) || (byte >= 0xA1 && byte != 0xAD);
    const char32_t character = printable ? static_cast<char32_t>(byte) : next++;
    append_utf8(character_of_byte_[byte], character);
    byte_of_character_[character] = static_cast<int16_t>(byte);
  }
}

std::string ByteAlphabet::to_characters(std::string_view bytes) const {
  std::string characters;
  characters.reserve(bytes.size() * 2);
  for (const char byte : bytes) characters += character_of_byte_[static_cast<unsigned char>(byte)];
  return characters;
}

std::string ByteAlphabet::to_bytes(std::string_view characters) const {
  std::string bytes;
  for (size_t position = 0; position < characters.size();) {
    const char32_t character = next_code_point(characters, position);
    if (character >= byte_of_character_.size() || byte_of_character_[character] < 0)
      return std::string(characters);
    bytes.push_back(static_cast<char>(byte_of_character_[character]));
  }
  return bytes;
}

}  // namespace maniple
