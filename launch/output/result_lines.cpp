#include <launch/output/result_lines.hpp>

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include <cmath>
#include <set>

namespace maniple {
namespace {

std::string quoted(const std::string& text) {
  return nlohmann::json(text).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

std::string number(float value) { return std::isfinite(value) ? fmt::format("{}", value) : "null"; }

const char* reason_of(const Completion& completion) {
  return completion.reason == FinishReason::stop ? "stop" : "length";
}

std::string spelt(int32_t token, const Tokenizer* tokenizer) {
  return tokenizer ? tokenizer->decode({&token, 1}, /*skip_special_tokens=*/false)
                   : fmt::format("token_id:{}", token);
}

// Our own shape

std::string token_fields(int32_t token, const Tokenizer* tokenizer) {
  const std::string text =
      tokenizer ? fmt::format("\"text\":{},", quoted(spelt(token, tokenizer))) : std::string();
  return fmt::format("\"token\":{},{}", token, text);
}

// Without a tokenizer the token's id is only in "tokens".
std::string score_json(int32_t token, const TokenScore& score, const Tokenizer* tokenizer) {
  std::string text = fmt::format("{{{}\"logprob\":{}", tokenizer ? token_fields(token, tokenizer) : "",
                                 number(score.logprob));
  const char* separator = ",\"top\":[";
  for (const TokenLogprob& alternative : score.alternatives) {
    text += fmt::format("{}{{{}\"logprob\":{}}}", separator, token_fields(alternative.id, tokenizer),
                        number(alternative.logprob));
    separator = ",";
  }
  return text + (score.alternatives.empty() ? "}" : "]}");
}

std::string plain_line(const RequestLabel& label, const Completion& completion, const Tokenizer* tokenizer) {
  if (!completion.error.empty())
    return fmt::format("{{\"id\":{},\"error\":{}}}", label.id, quoted(completion.error));
  std::string scores;
  for (size_t i = 0; i < completion.scores.size(); ++i)
    scores += (i == 0 ? ",\"logprobs\":[" : ",") +
              score_json(completion.tokens[i], completion.scores[i], tokenizer);
  if (!scores.empty()) scores += ']';
  return fmt::format(
      "{{\"id\":{}{}{},\"tokens\":[{}],\"finish_reason\":\"{}\"{},\"usage\":{{\"prompt_tokens\":{},"
      "\"completion_tokens\":{}}}}}",
      label.id, completion.text ? ",\"text\":" : "", completion.text ? quoted(*completion.text) : "",
      fmt::join(completion.tokens, ","), reason_of(completion), scores, completion.prompt_tokens,
      completion.tokens.size());
}

// OpenAI's shape

// The bytes of a token; null if they are not whole characters.
std::string bytes_json(const std::string& text) {
  if (text.find("\xef\xbf\xbd") != std::string::npos) return "null";
  std::string bytes;
  for (const char byte : text)
    bytes += fmt::format("{}{}", bytes.empty() ? "" : ",", static_cast<unsigned char>(byte));
  return '[' + bytes + ']';
}

std::string chat_token(int32_t token, float logprob, const Tokenizer* tokenizer) {
  const std::string text = spelt(token, tokenizer);
  return fmt::format("\"token\":{},\"logprob\":{},\"bytes\":{}", quoted(text), number(logprob),
                     bytes_json(text));
}

std::string chat_scores(const Completion& completion, const Tokenizer* tokenizer) {
  if (completion.scores.empty()) return "null";
  std::string tokens;
  for (size_t i = 0; i < completion.scores.size(); ++i) {
    std::string top;
    for (const TokenLogprob& other : completion.scores[i].alternatives)
      top += fmt::format("{}{{{}}}", top.empty() ? "" : ",", chat_token(other.id, other.logprob, tokenizer));
    tokens += fmt::format("{}{{{},\"top_logprobs\":[{}]}}", i == 0 ? "" : ",",
                          chat_token(completion.tokens[i], completion.scores[i].logprob, tokenizer), top);
  }
  return fmt::format("{{\"content\":[{}],\"refusal\":null}}", tokens);
}

size_t characters(const std::string& text) {
  return static_cast<size_t>(std::ranges::count_if(text, [](char byte) { return (byte & 0xc0) != 0x80; }));
}

std::string completion_scores(const Completion& completion, const Tokenizer* tokenizer) {
  if (completion.scores.empty()) return "null";
  std::vector<std::string> tokens, logprobs, tops;
  std::vector<size_t> offsets;
  size_t offset = 0;
  for (size_t i = 0; i < completion.scores.size(); ++i) {
    const std::string text = spelt(completion.tokens[i], tokenizer);
    tokens.push_back(quoted(text));
    logprobs.push_back(number(completion.scores[i].logprob));
    offsets.push_back(offset);
    offset += characters(text);
    std::set<std::string> seen;  // two tokens may be spelt alike; the likelier one comes first
    std::string top;
    for (const TokenLogprob& other : completion.scores[i].alternatives)
      if (const std::string name = quoted(spelt(other.id, tokenizer)); seen.insert(name).second)
        top += fmt::format("{}{}:{}", top.empty() ? "" : ",", name, number(other.logprob));
    tops.push_back('{' + top + '}');
  }
  return fmt::format("{{\"tokens\":[{}],\"token_logprobs\":[{}],\"top_logprobs\":[{}],\"text_offset\":[{}]}}",
                     fmt::join(tokens, ","), fmt::join(logprobs, ","), fmt::join(tops, ","),
                     fmt::join(offsets, ","));
}

std::string choice(bool chat, const Completion& completion, const Tokenizer* tokenizer) {
  const std::string text = quoted(completion.text.value_or(""));
  if (!chat)
    return fmt::format("{{\"index\":0,\"text\":{},\"logprobs\":{},\"finish_reason\":\"{}\"}}", text,
                       completion_scores(completion, tokenizer), reason_of(completion));
  return fmt::format(
      "{{\"index\":0,\"message\":{{\"role\":\"assistant\",\"content\":{}}},\"logprobs\":{},"
      "\"finish_reason\":\"{}\"}}",
      text, chat_scores(completion, tokenizer), reason_of(completion));
}

std::string batch_line(const RequestLabel& label, const Completion& completion, const Tokenizer* tokenizer) {
  const std::string hash = fmt::format("{:016x}", request_seed(label.seed, label.id));
  const std::string head = fmt::format("{{\"id\":\"batch_req_{}\",\"custom_id\":{}", hash, label.id);
  if (!completion.error.empty())
    return head +
           fmt::format(",\"response\":null,\"error\":{{\"code\":\"invalid_request\",\"message\":{}}}}}",
                       quoted(completion.error));
  const bool chat = label.shape == RequestShape::chat;
  const size_t prompt = completion.prompt_tokens, completed = completion.tokens.size();
  return head +
         fmt::format(
             ",\"response\":{{\"status_code\":200,\"request_id\":\"req_{}\",\"body\":{{\"id\":\"{}-{}\","
             "\"object\":\"{}\",\"created\":0,\"model\":{},\"choices\":[{}],\"usage\":{{\"prompt_tokens\":{},"
             "\"completion_tokens\":{},\"total_tokens\":{}}}}}}},\"error\":null}}",
             hash, chat ? "chatcmpl" : "cmpl", hash, chat ? "chat.completion" : "text_completion",
             quoted(label.model), choice(chat, completion, tokenizer), prompt, completed, prompt + completed);
}

}  // namespace

std::string result_line(const RequestLabel& label, const Completion& completion, const Tokenizer* tokenizer) {
  return label.shape == RequestShape::plain ? plain_line(label, completion, tokenizer)
                                            : batch_line(label, completion, tokenizer);
}

}  // namespace maniple
