// Thoughts of an output apart from its answer. The ids of tokens decide, never text: "<think>" that is spelt in other tokens marks nothing.
#pragma once

#include <runtime/tokenizer/tokenizer.hpp>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace maniple {

// One of the names that mean the same: "auto" (also called "split"), "off", or a format by its own name or vLLM's. Nothing: unknown.
std::optional<std::string> reasoning_name(std::string_view given);
// "auto", "off" and each format's own name.
std::vector<std::string> reasoning_names();

struct ReasoningFormat;

// For a tool; the arguments may be cut.
struct ToolCall {
  std::string recipient, arguments;
};

// How to split the output of one prompt.
class Reasoning {
 public:
  struct Text {
    // Without the marks between them and without special tokens; several of a kind are joined by line breaks.
    std::string thought, answer;
    std::vector<ToolCall> calls;  // of a format that has messages to tools; elsewhere calls are answer
  };

  // name: of a format, or "auto": the first whose marks are added tokens of the tokenizer. Nothing where they are not.
  static std::optional<Reasoning> of(std::string_view name, const Tokenizer& tokenizer,
                                     std::span<const int32_t> prompt);

  // output: without a stop token. cut: so many bytes of its text are left off at the end, as a stop string and what follows it.
  Text split(const Tokenizer& tokenizer, std::span<const int32_t> output, size_t cut = 0) const;

 private:
  const ReasoningFormat* format_ = nullptr;
  std::vector<int32_t> marks_;    // ids, in the order of the format
  std::vector<int32_t> context_;  // the end of the prompt that decides how the output begins
};

}  // namespace maniple
