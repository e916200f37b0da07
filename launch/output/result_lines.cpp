#include <launch/output/result_lines.hpp>
#include <runtime/text/utf8.hpp>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <cmath>

namespace maniple {
namespace {

using json = nlohmann::ordered_json;

// The shortest number that reads back as the same float, not as the same double.
json number(float value) { return std::isfinite(value) ? json::parse(fmt::format("{}", value)) : json(); }

const char* reason_of(const FinishedRequest& completion) {
  return completion.reason == FinishReason::stop ? "stop" : "length";
}

std::string spelt(int32_t token, const Tokenizer* tokenizer) {
  return tokenizer ? tokenizer->decode({&token, 1}, /*skip_special_tokens=*/false)
                   : fmt::format("token_id:{}", token);
}

// Our own shape

json plain_token(int32_t token, float logprob, const Tokenizer* tokenizer) {
  json object = {{"token", token}};
  if (tokenizer) object["text"] = spelt(token, tokenizer);
  object["logprob"] = number(logprob);
  return object;
}

// Without a tokenizer the token's id is only in "tokens".
json plain_score(int32_t token, const TokenScore& score, const Tokenizer* tokenizer) {
  json object = plain_token(token, score.logprob, tokenizer);
  if (!tokenizer) object.erase("token");
  for (const TokenLogprob& alternative : score.alternatives)
    object["top"].push_back(plain_token(alternative.id, alternative.logprob, tokenizer));
  return object;
}

json plain_line(const RequestLabel& label, const FinishedRequest& completion, const Tokenizer* tokenizer) {
  json line = {{"id", json::parse(label.id)}};
  if (!completion.error.empty()) {
    line["error"] = completion.error;
    return line;
  }
  if (completion.reasoning) line["reasoning"] = *completion.reasoning;
  if (completion.text) line["text"] = *completion.text;
  line["tokens"] = completion.tokens;
  line["finish_reason"] = reason_of(completion);
  for (size_t i = 0; i < completion.scores.size(); ++i)
    line["logprobs"].push_back(plain_score(completion.tokens[i], completion.scores[i], tokenizer));
  line["usage"] = {{"prompt_tokens", completion.prompt_tokens},
                   {"completion_tokens", completion.tokens.size()}};
  return line;
}

// OpenAI's shape

// The bytes of a token; null if they are not whole characters.
json bytes_of(const std::string& text) {
  if (text.find("\xef\xbf\xbd") != std::string::npos) return nullptr;
  return std::vector<unsigned char>(text.begin(), text.end());
}

json chat_token(int32_t token, float logprob, const Tokenizer* tokenizer) {
  const std::string text = spelt(token, tokenizer);
  return {{"token", text}, {"logprob", number(logprob)}, {"bytes", bytes_of(text)}};
}

json chat_scores(const FinishedRequest& completion, const Tokenizer* tokenizer) {
  json tokens = json::array();
  for (size_t i = 0; i < completion.scores.size(); ++i) {
    json& token =
        tokens.emplace_back(chat_token(completion.tokens[i], completion.scores[i].logprob, tokenizer));
    token["top_logprobs"] = json::array();
    for (const TokenLogprob& other : completion.scores[i].alternatives)
      token["top_logprobs"].push_back(chat_token(other.id, other.logprob, tokenizer));
  }
  return {{"content", tokens}, {"refusal", nullptr}};
}

json completion_scores(const FinishedRequest& completion, const Tokenizer* tokenizer) {
  json scores;
  size_t offset = 0;
  for (size_t i = 0; i < completion.scores.size(); ++i) {
    const std::string text = spelt(completion.tokens[i], tokenizer);
    scores["tokens"].push_back(text);
    scores["token_logprobs"].push_back(number(completion.scores[i].logprob));
    json& top = scores["top_logprobs"].emplace_back(json::object());
    for (const TokenLogprob& other : completion.scores[i].alternatives)
      top.emplace(spelt(other.id, tokenizer), number(other.logprob));  // of two spelt alike the likelier one
    scores["text_offset"].push_back(std::exchange(offset, offset + character_count(text)));
  }
  return scores;
}

json text_or_null(const std::string& text) { return text.empty() ? json() : json(text); }

// With its thought apart: where there is no answer yet, the content is null, as in vLLM.
json message_of(const FinishedRequest& completion) {
  const std::string text = completion.text.value_or("");
  if (!completion.reasoning) return {{"role", "assistant"}, {"content", text}};
  const json thought = text_or_null(*completion.reasoning);
  return {{"role", "assistant"},
          {"content", text_or_null(text)},
          {"reasoning", thought},
          {"reasoning_content", thought}};
}

json choice(bool chat, const FinishedRequest& completion, const Tokenizer* tokenizer) {
  json choice = {{"index", 0}};
  if (chat)
    choice["message"] = message_of(completion);
  else
    choice["text"] = completion.text.value_or("");
  const auto scores = chat ? chat_scores : completion_scores;
  choice["logprobs"] = completion.scores.empty() ? json() : scores(completion, tokenizer);
  choice["finish_reason"] = reason_of(completion);
  return choice;
}

json batch_line(const RequestLabel& label, const FinishedRequest& completion, const Tokenizer* tokenizer) {
  const std::string hash = fmt::format("{:016x}", request_seed(label.seed, label.id));
  json line = {{"id", "batch_req_" + hash}, {"custom_id", json::parse(label.id)}};
  if (!completion.error.empty()) {
    line["response"] = nullptr;
    line["error"] = {{"code", "invalid_request"}, {"message", completion.error}};
    return line;
  }
  const bool chat = label.shape == RequestShape::chat;
  const size_t prompt = completion.prompt_tokens, completed = completion.tokens.size();
  const json body = {
      {"id", fmt::format("{}-{}", chat ? "chatcmpl" : "cmpl", hash)},
      {"object", chat ? "chat.completion" : "text_completion"},
      {"created", 0},
      {"model", label.model},
      {"choices", json::array({choice(chat, completion, tokenizer)})},
      {"usage",
       {{"prompt_tokens", prompt}, {"completion_tokens", completed}, {"total_tokens", prompt + completed}}}};
  line["response"] = {{"status_code", 200}, {"request_id", "req_" + hash}, {"body", body}};
  line["error"] = nullptr;
  return line;
}

}  // namespace

std::string result_line(const RequestLabel& label, const FinishedRequest& completion,
                        const Tokenizer* tokenizer) {
  const auto line = label.shape == RequestShape::plain ? plain_line : batch_line;
  return line(label, completion, tokenizer).dump(-1, ' ', false, json::error_handler_t::replace);
}

}  // namespace maniple
