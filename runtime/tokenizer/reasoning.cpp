#include <runtime/tokenizer/reasoning.hpp>

#include <algorithm>
#include <functional>
#include <numeric>
#include <sstream>

namespace maniple {

using Ids = std::span<const int32_t>;

struct OutputPart {
  enum Kind : uint8_t { thought, answer, call, mark } kind;
  Ids tokens;
  std::string recipient = {};  // of a call
};

struct ReasoningFormat {
  std::vector<std::string_view> names;  // its own, then those of others
  std::vector<std::string_view> marks;  // added tokens that the model must have
  // The end of the prompt that decides how the output begins.
  std::vector<int32_t> (*context)(const Tokenizer& tokenizer, Ids marks, Ids prompt);
  // All tokens of the output, in order.
  std::vector<OutputPart> (*parts)(const Tokenizer& tokenizer, Ids marks, Ids context, Ids output);
};

namespace {

bool is_blank(const Tokenizer& tokenizer, int32_t id) {
  return tokenizer.decode({&id, 1}, /*skip_special_tokens=*/false).find_first_not_of(" \t\r\n") ==
         std::string::npos;
}

bool contains(Ids ids, int32_t id) { return std::ranges::find(ids, id) != ids.end(); }

// A mark that ends the prompt, blanks aside: a template may open the thought, or close it.
std::vector<int32_t> last_mark(const Tokenizer& tokenizer, Ids marks, Ids prompt) {
  const auto last = std::ranges::find_if(prompt.rbegin(), prompt.rend(),
                                         [&](int32_t id) { return !is_blank(tokenizer, id); });
  return last != prompt.rend() && contains(marks, *last) ? std::vector{*last} : std::vector<int32_t>{};
}

// One thought, at the beginning of the output: a mark within the answer is a word about thoughts. Who prefilled the thought, or left its
// first mark out, still gets it apart once it ends.
std::vector<OutputPart> leading_thought(const Tokenizer& tokenizer, Ids marks, Ids context, Ids output) {
  const int32_t open = marks[0], close = marks[1], prompt_mark = context.empty() ? -1 : context[0];
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

// The message that the prompt leaves open.
std::vector<int32_t> last_message(const Tokenizer&, Ids marks, Ids prompt) {
  const auto start = std::ranges::find(prompt.rbegin(), prompt.rend(), marks[0]);
  return start == prompt.rend() ? std::vector<int32_t>{} : std::vector(start.base() - 1, prompt.end());
}

// What a header announces: "assistant<|channel|>analysis", "assistant<|channel|>commentary to=functions.f <|constrain|>json",
// "assistant to=functions.f<|channel|>commentary json". As in openai-harmony a word beside role, channel and constrained type is a recipient.
OutputPart announced(const Tokenizer& tokenizer, int32_t channel_mark, Ids header) {
  const auto mark = std::ranges::find(header, channel_mark);
  const auto text = [&](auto begin, auto end) {
    return tokenizer.decode({begin, end}, /*skip_special_tokens=*/false);
  };
  const std::string channel = mark == header.end() ? "" : text(mark + 1, header.end());
  const size_t name = std::min(channel.find_first_of(" \t\r\n<"), channel.size());
  if (channel.substr(0, name) == "analysis") return {OutputPart::thought, {}};
  if (channel.substr(0, name) == "final") return {OutputPart::answer, {}};
  std::istringstream words(text(header.begin(), mark) + " " + channel.substr(name));
  for (std::string word; words >> word;) {
    word.resize(std::min(word.find('<'), word.size()));
    if (word.empty() || word == "assistant") continue;
    return {OutputPart::call, {}, word.starts_with("to=") ? word.substr(3) : word};
  }
  return {OutputPart::answer, {}};
}

// OpenAI's harmony: messages of a header and a text. Nothing gets lost where the model breaks the form: what stands outside of messages, or
// in a channel of another name, is answer; a message without an end is over where the next one begins.
std::vector<OutputPart> messages(const Tokenizer& tokenizer, Ids marks, Ids context, Ids output) {
  const int32_t start = marks[0], channel = marks[1], message = marks[2];
  const auto is_mark = [&](int32_t id) { return contains(marks, id); };
  std::vector<OutputPart> parts;
  std::optional<std::vector<int32_t>> header;  // so far
  OutputPart open{OutputPart::answer, {}};
  const auto pass = [&](int32_t mark) {
    if (mark == start) return void(header.emplace());
    if (mark == channel) return (header ? *header : header.emplace()).push_back(mark);
    if (mark != message) open = {OutputPart::answer, {}};
    if (mark == message && header) open = announced(tokenizer, channel, *header);
    header.reset();
  };
  for (const Ids ids : {context, output}) {
    parts.clear();
    for (auto at = ids.begin(); at != ids.end();) {
      const auto text = at + is_mark(*at), end = std::find_if(text, ids.end(), is_mark);
      std::for_each(at, text, pass);
      if (header) header->insert(header->end(), text, end);
      parts.push_back({OutputPart::mark, {at, text}});
      parts.push_back(header ? OutputPart{OutputPart::mark, {}} : open);
      parts.back().tokens = {text, end};
      at = end;
    }
  }
  return parts;
}

const ReasoningFormat formats[] = {
    {{"think", "qwen3", "deepseek_r1", "glm45", "minimax_m2"},
     {"<think>", "</think>"},
     last_mark,
     leading_thought},
    {{"mistral"}, {"[THINK]", "[/THINK]"}, last_mark, leading_thought},
    {{"harmony", "openai_gptoss", "gpt-oss"},
     {"<|start|>", "<|channel|>", "<|message|>", "<|end|>", "<|return|>", "<|call|>"},
     last_message,
     messages},
};

void add_line(std::string& text, const std::string& more) {
  if (!text.empty() && !more.empty()) text += '\n';
  text += more;
}

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
    reasoning.context_ = format.context(tokenizer, reasoning.marks_, prompt);
    return reasoning;
  }
  return std::nullopt;
}

Reasoning::Text Reasoning::split(const Tokenizer& tokenizer, Ids output, size_t cut) const {
  const std::vector<OutputPart> parts = format_->parts(tokenizer, marks_, context_, output);
  std::vector<std::string> said;
  for (const OutputPart& part : parts)
    said.push_back(tokenizer.decode(part.tokens, /*skip_special_tokens=*/true));
  size_t left = std::transform_reduce(said.begin(), said.end(), size_t{0}, std::plus<>(),
                                      std::mem_fn(&std::string::size));
  left -= std::min(left, cut);
  Text text;
  for (size_t i = 0; i < parts.size(); ++i) {
    const bool is_whole = said[i].size() <= left;
    said[i].resize(std::min(said[i].size(), left));
    left -= said[i].size();
    if (parts[i].kind == OutputPart::thought) add_line(text.thought, said[i]);
    if (parts[i].kind == OutputPart::answer) add_line(text.answer, said[i]);
    if (parts[i].kind == OutputPart::call) text.calls.push_back({parts[i].recipient, said[i]});
    if (!is_whole) break;
  }
  return text;
}

}  // namespace maniple
