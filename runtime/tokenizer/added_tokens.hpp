// Tokens that are searched in the text itself, before any other step cuts it.
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
  int32_t id;
  bool is_single_word = false;  // only where no word character touches it
  bool strips_left = false;     // takes the white space on its left with it
  bool strips_right = false;
  bool is_normalized = false;  // searched in normalised text, in its normalised form
  bool is_special = false;     // left out of decoded text on request

  bool operator==(const AddedToken&) const = default;
};

// A part of a text: an added token, or text between them.
struct Section {
  std::string_view text;
  size_t begin;  // offset of `text` in the text that was split, in bytes
  std::optional<int32_t> id;
};

// Finds the leftmost token, and the longest of several that start there.
class AddedTokenFinder {
 public:
  void add(const std::string& pattern, const AddedToken& token);
  // Sections in order. White space that strips_right takes may also match a token, as in
  // Hugging Face's library.
  std::vector<Section> split(std::string_view text) const;

 private:
  using Patterns = std::map<std::string, AddedToken, std::less<>>;
  const Patterns::value_type* longest_at(std::string_view text, size_t position) const;

  Patterns patterns_;
  std::array<std::set<size_t, std::greater<>>, 256> lengths_;  // of the patterns that start with a byte
};

class AddedTokens {
 public:
  AddedTokens(const std::vector<AddedToken>& tokens, const Normalizer& normalizer);

  const AddedTokenFinder& in_raw_text() const { return in_raw_text_; }
  const AddedTokenFinder& in_normalized_text() const { return in_normalized_text_; }

  std::optional<int32_t> find(std::string_view content) const;
  // The text for decoding: normalised for tokens that are searched in normalised text.
  std::optional<std::string_view> text(int32_t id) const;
  bool is_special(int32_t id) const;
  int32_t id_end() const { return by_id_.empty() ? 0 : by_id_.rbegin()->first + 1; }

 private:
  struct Entry {
    std::string text;
    bool is_special;
  };
  std::map<int32_t, Entry> by_id_;
  std::map<std::string, int32_t, std::less<>> by_content_;
  AddedTokenFinder in_raw_text_, in_normalized_text_;
};

}  // namespace maniple
