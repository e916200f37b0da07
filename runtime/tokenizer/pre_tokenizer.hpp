// Cuts normalised text into pieces, across which byte-pair encoding must not merge, and rewrites them (to
// GPT-2's byte alphabet, or with a visible space).
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include <runtime/text/regex.hpp>
#include <runtime/tokenizer/byte_alphabet.hpp>

namespace maniple {

// What a Split does with its matches.
enum class SplitBehavior { removed, isolated, merged_with_previous, merged_with_next, contiguous };

struct Split {
  Regex pattern;
  SplitBehavior behavior;
  bool invert = false;  // what lies between the matches counts as the match
};

struct PrefixSpace {};  // a space in front, unless there is one

struct MapBytes {
  ByteAlphabet alphabet;
};

struct VisibleSpace {  // Metaspace without its split
  enum class Prepend { always, first, never };
  std::string replacement;
  Prepend prepend;
};

using PreTokenizerStep = std::variant<Split, PrefixSpace, MapBytes, VisibleSpace>;

class PreTokenizer {
 public:
  using Sink = std::function<void(std::string_view piece)>;

  explicit PreTokenizer(std::vector<PreTokenizerStep> steps = {}) : steps_(std::move(steps)) {}

  // Passes the non-empty pieces to sink, in order. opens_input: the text is the very start
  // of the user's input.
  void split(std::string_view text, bool opens_input, const Sink& sink) const {
    run(0, text, opens_input, sink);
  }

 private:
  void run(size_t step, std::string_view text, bool opens_input, const Sink& sink) const;

  std::vector<PreTokenizerStep> steps_;
};

// The pattern of ByteLevel's use_regex (openai/gpt-2, encoder.py).
inline constexpr std::string_view gpt2_pattern =
    R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";

}  // namespace maniple
