#include <gtest/gtest.h>

#include <random>
#include <runtime/text/utf8.hpp>
#include <runtime/tokenizer/byte_alphabet.hpp>

namespace maniple {
namespace {

std::string repaired(std::string_view bytes) {
  LossyUtf8 lossy;
  const auto whole = lossy.push(bytes);
  return whole + lossy.finish();
}

// From the documentation of WHATWG Encoding and of Rust's from_utf8_lossy: one U+FFFD for each maximal part.
TEST(LossyUtf8, ReplacesEachMaximalPartOnce) {
  EXPECT_EQ(repaired("a\xFF"
                     "b"),
            "a\uFFFDb");
  EXPECT_EQ(repaired("\xE2\x82"
                     "a"),
            "\uFFFDa");
  EXPECT_EQ(repaired("\xF0\x9F\x98"), "\uFFFD");
  EXPECT_EQ(repaired("\xF0\x80\x80\x80"),
            "\uFFFD\uFFFD\uFFFD\uFFFD");                      // overlong: no byte belongs to another
  EXPECT_EQ(repaired("\xED\xA0\x80"), "\uFFFD\uFFFD\uFFFD");  // a surrogate
  EXPECT_EQ(repaired("\xF4\x90\x80\x80"), "\uFFFD\uFFFD\uFFFD\uFFFD");  // beyond U+10FFFF
  EXPECT_EQ(repaired("\xC0\xAF\xE1\x80\xE2\xF0\x91\x92\xF1\xBF"
                     "A"),
            "\uFFFD\uFFFD\uFFFD\uFFFD\uFFFD\uFFFD"
            "A");
}

TEST(LossyUtf8, GivesTheSameHoweverTheBytesAreCut) {
  std::mt19937 random(5);
  const std::string_view alphabet = "a\x80\xBF\xC3\xA9\xE2\x82\xAC\xED\xF0\x9F\x98\x80\xF4\xFF";
  for (int round = 0; round < 2000; ++round) {
    std::string bytes;
    for (int i = 0; i < 12; ++i) bytes += alphabet[random() % alphabet.size()];
    LossyUtf8 lossy;
    std::string pieces;
    for (const char byte : bytes) pieces += lossy.push({&byte, 1});
    ASSERT_EQ(pieces + lossy.finish(), repaired(bytes));
  }
}

TEST(Utf8, CodePointsSurviveTheRoundTrip) {
  for (const char32_t c :
       {0x0u, 0x7Fu, 0x80u, 0x7FFu, 0x800u, 0xD7FFu, 0xE000u, 0xFFFFu, 0x10000u, 0x10FFFFu}) {
    std::string text;
    append_utf8(text, c);
    EXPECT_EQ(first_invalid_utf8(text), std::string::npos);
    size_t position = 0;
    EXPECT_EQ(next_code_point(text, position), c);
    EXPECT_EQ(position, text.size());
  }
}

TEST(Utf8, FindsTheFirstInvalidByte) {
  EXPECT_EQ(first_invalid_utf8("abc"), std::string::npos);
  EXPECT_EQ(first_invalid_utf8("ab\x80"), 2u);
  EXPECT_EQ(first_invalid_utf8("é\xC3"), 2u);
}

TEST(ByteAlphabet, EveryByteSurvivesTheRoundTrip) {
  std::string bytes;
  for (int byte = 0; byte < 256; ++byte) bytes += static_cast<char>(byte);
  const ByteAlphabet alphabet;
  EXPECT_EQ(alphabet.to_bytes(alphabet.to_characters(bytes)), bytes);
  EXPECT_EQ(alphabet.to_characters(" \n~"), "ĠĊ~");
  EXPECT_EQ(alphabet.to_bytes("a b"), "a b");  // a space is not in the alphabet: the text stands for itself
}

}  // namespace
}  // namespace maniple
