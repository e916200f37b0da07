// Tokens that are found in the text itself, before anything else cuts it.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include <runtime/tokenizer/normalizer.hpp>

namespace maniple {

struct AddedToken {
  std::string content;
  std::int32_t id;
  bool is_single_word;  // only where no word character touches it
  bool strips_left;     // takes the white space on its left with it
  bool strips_right;
  bool is_normalized;  // looked for in normalised text, in its normalised form
  bool is_special;     // left out of decoded text on request
};

// A part of a text: an added token, or text between them.
struct Section {
  std::string_view text;
  std::size_t begin;  // of text in what was split, in bytes
  std::optional<std::int32_t> id;
};

// Finds the leftmost, there the longest token.
class AddedTokenFinder {
 public:
  void add(const std::string& pattern, const AddedToken& token);
  // Sections in order. White space taken by strips_right may be a match of its own too (as in the original).
  std::vector<Section> split(std::string_view text) const;

 private:
  using Patterns = std::map<std::string, AddedToken, std::less<>>;
  const Patterns::value_type* longest_at(std::string_view text, std::size_t position) const;

  Patterns patterns_;
  std::array<std::set<std::size_t, std::greater<>>, 256> lengths_;  // of the patterns that start with a byte
};

class AddedTokens {
 public:
  AddedTokens(const std::vector<AddedToken>& tokens, const Normalizer& normalizer);

  const AddedTokenFinder& in_raw_text() const { return in_raw_text_; }
  const AddedTokenFinder& in_normalized_text() const { return in_normalized_text_; }

  std::optional<std::int32_t> find(std::string_view content) const;
  // What decoding starts from: the normalised form of tokens that are looked for in that form.
  std::optional<std::string_view> text(std::int32_t id) const;
  bool is_special(std::int32_t id) const;
  std::int32_t id_end() const { return by_id_.empty() ? 0 : by_id_.rbegin()->first + 1; }

 private:
  struct Entry {
    std::string text;
    bool is_special;
  };
  std::map<std::int32_t, Entry> by_id_;
  std::map<std::string, std::int32_t, std::less<>> by_content_;
  AddedTokenFinder in_raw_text_, in_normalized_text_;
};

}  // namespace maniple
