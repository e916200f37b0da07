#include <runtime/tokenizer/reasoning.hpp>

#include <algorithm>

namespace maniple {

using Ids = std::span<const int32_t>;

struct OutputPart {
  enum Kind : uint8_t { thought, answer, mark } kind;
  Ids tokens;
};

struct ReasoningFormat {
  std::vector<std::string_view> names;  // its own, then vLLM's
  std::vector<std::string_view> marks;  // added tokens that the model must have
  // All tokens of the output, in order.
  std::vector<OutputPart> (*parts)(const Tokenizer& tokenizer, Ids marks, std::optional<int32_t> prompt_mark,
                                   Ids output);
};

namespace {

bool is_blank(const Tokenizer& tokenizer, int32_t id) {
  return tokenizer.decode({&id, 1}, /*skip_special_tokens=*/false).find_first_not_of(" \t\r\n") ==
         std::string::npos;
}

// One thought, at the beginning of the output: a mark within the answer is a word about thoughts. Who prefilled the thought, or left its
// first mark out, still gets it apart once it ends.
std::vector<OutputPart> leading_thought(const Tokenizer& tokenizer, Ids marks,
                                        std::optional<int32_t> prompt_mark, Ids output) {
  const int32_t open = marks[0], close = marks[1];
  const auto first = std::ranges::find_if(output, [&](int32_t id) { return !is_blank(tokenizer, id); });
  const bool opens = first != output.end() && *first == open;
  const auto begin = opens ? first + 1 : output.begin();
  const auto end = std::find(begin, output.end(), close);
  const bool only_ends = prompt_mark != close && end != output.end() && std::find(begin, end, open) == end;
  if (!opens && prompt_mark != open && !only_ends) return {{OutputPart::answer, output}};
  const auto answer = end == output.end() ? end : end + 1;
  return {{OutputPart::mark, {output.begin(), begin}},
          {OutputPart::thought, {begin, end}},
          {OutputPart::mark, {end, answer}},
          {OutputPart::answer, {answer, output.end()}}};
}

const ReasoningFormat formats[] = {
    {{"think", "qwen3", "deepseek_r1", "glm45", "minimax_m2"}, {"<think>", "</think>"}, leading_thought},
    {{"mistral"}, {"[THINK]", "[/THINK]"}, leading_thought},
};

// Empty where the tokenizer lacks one.
std::vector<int32_t> ids_of(const std::vector<std::string_view>& marks, const Tokenizer& tokenizer) {
  std::vector<int32_t> ids;
  for (const std::string_view mark : marks) {
    const std::optional<int32_t> id = tokenizer.added_token_id(mark);
    if (!id) return {};
    ids.push_back(*id);
  }
  return ids;
}

}  // namespace

std::optional<std::string> reasoning_name(std::string_view given) {
  if (given == "split") return "auto";
  if (given == "auto" || given == "off") return std::string(given);
  for (const ReasoningFormat& format : formats)
    if (std::ranges::find(format.names, given) != format.names.end()) return std::string(format.names[0]);
  return std::nullopt;
}

std::vector<std::string> reasoning_names() {
  std::vector<std::string> names = {"auto", "off"};
  for (const ReasoningFormat& format : formats) names.emplace_back(format.names[0]);
  return names;
}

std::optional<Reasoning> Reasoning::of(std::string_view name, const Tokenizer& tokenizer, Ids prompt) {
  for (const ReasoningFormat& format : formats) {
    if (name != "auto" && name != format.names[0]) continue;
    Reasoning reasoning;
    reasoning.format_ = &format;
    reasoning.marks_ = ids_of(format.marks, tokenizer);
    if (reasoning.marks_.empty()) continue;
    const auto last = std::ranges::find_if(prompt.rbegin(), prompt.rend(),
                                           [&](int32_t id) { return !is_blank(tokenizer, id); });
    if (last != prompt.rend() && std::ranges::find(reasoning.marks_, *last) != reasoning.marks_.end())
      reasoning.prompt_mark_ = *last;
    return reasoning;
  }
  return std::nullopt;
}

Reasoning::Text Reasoning::split(const Tokenizer& tokenizer, Ids output, size_t cut) const {
  Text text;
  const std::vector<OutputPart> parts = format_->parts(tokenizer, marks_, prompt_mark_, output);
  for (auto part = parts.rbegin(); part != parts.rend(); ++part) {
    std::string said = tokenizer.decode(part->tokens, /*skip_special_tokens=*/true);
    const size_t lost = std::min(cut, said.size());
    cut -= lost;
    said.resize(said.size() - lost);
    if (part->kind == OutputPart::thought) text.thought.insert(0, said);
    if (part->kind == OutputPart::answer) text.answer.insert(0, said);
  }
  return text;
}

}  // namespace maniple
