#include <launch/output/result_lines.hpp>
#include <runtime/text/utf8.hpp>
#include <runtime/tokenizer/token_offsets.hpp>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <cmath>
#include <functional>
#include <numeric>
#include <span>

namespace maniple {
namespace {

using json = nlohmann::ordered_json;

// The shortest number that reads back as the same float, not as the same double.
json number(float value) { return std::isfinite(value) ? json::parse(fmt::format("{}", value)) : json(); }

const char* reason_of(const Answer& answer) {
  return answer.reason == FinishReason::stop ? "stop" : "length";
}

// In OpenAI's shape, numbered.
json calls_of(const Answer& answer) {
  json calls = json::array();
  for (const ToolCall& call : answer.calls) {
    constexpr std::string_view given = "functions.";  // those of the request
    const bool is_given = call.recipient.starts_with(given);
    calls.push_back(
        {{"id", fmt::format("call_{}", calls.size())},
         {"type", "function"},
         {"function",
          {{"name", call.recipient.substr(is_given ? given.size() : 0)}, {"arguments", call.arguments}}}});
  }
  return calls;
}

size_t tokens_of(const std::vector<Answer>& answers) {
  return std::transform_reduce(answers.begin(), answers.end(), size_t{0}, std::plus<>(),
                               [](const Answer& answer) { return answer.tokens.size(); });
}

std::span<const TokenLogprob> first_of(std::span<const TokenLogprob> alternatives, size_t most) {
  return alternatives.first(std::min(alternatives.size(), most));
}

// entry(token, score) of each token of the prompt; null before the first that has a score.
json listed_prompt(const FinishedRequest& completion, auto entry) {
  json list(completion.prompt.size() - completion.prompt_scores.size(), json());
  for (const PromptScore& score : completion.prompt_scores)
    list.push_back(entry(completion.prompt[list.size()], score));
  return list;
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

json plain_score(int32_t token, const TokenScore& score, const Tokenizer* tokenizer) {
  json object = plain_token(token, score.logprob, tokenizer);
  for (const TokenLogprob& alternative : score.alternatives)
    object["top"].push_back(plain_token(alternative.id, alternative.logprob, tokenizer));
  return object;
}

json continuation_of(const FinishedRequest& completion) {
  double sum = 0;
  for (const PromptScore& score : completion.prompt_scores) sum += score.logprob;
  return {{"logprob", std::isfinite(sum) ? json(sum) : json()},
          {"tokens", completion.prompt_scores.size()},
          {"greedy", std::ranges::all_of(completion.prompt_scores, &PromptScore::greedy)}};
}

void add_answer(json& line, const Answer& answer, const Tokenizer* tokenizer) {
  if (answer.reasoning) line["reasoning"] = *answer.reasoning;
  if (answer.text) line["text"] = *answer.text;
  if (!answer.calls.empty()) line["tool_calls"] = calls_of(answer);
  line["tokens"] = answer.tokens;
  line["finish_reason"] = reason_of(answer);
  for (size_t i = 0; i < answer.scores.size(); ++i) {
    json& score = line["logprobs"].emplace_back(plain_score(answer.tokens[i], answer.scores[i], tokenizer));
    if (!tokenizer) score.erase("token");  // it is in "tokens"
  }
}

json plain_line(const RequestLabel& label, const FinishedRequest& completion, const Tokenizer* tokenizer) {
  json line = {{"id", json::parse(label.id)}};
  if (!completion.error.empty()) {
    line["error"] = completion.error;
    return line;
  }
  if (label.continuation) line["continuation"] = continuation_of(completion);
  if (label.prompt_logprobs >= 0)
    line["prompt_logprobs"] = listed_prompt(completion, [&](int32_t token, const TokenScore& score) {
      return plain_score(token, score, tokenizer);
    });
  const std::vector<Answer>& answers = completion.answers;
  if (answers.size() == 1) add_answer(line, answers.front(), tokenizer);
  if (answers.size() > 1)
    for (uint32_t i = 0; i < answers.size(); ++i) {
      line["choices"].push_back({{"index", i}, {"seed", answer_seed(label.seed, i)}});
      add_answer(line["choices"].back(), answers[i], tokenizer);
    }
  line["usage"] = {{"prompt_tokens", completion.prompt_tokens}, {"completion_tokens", tokens_of(answers)}};
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

json chat_scores(const Answer& answer, const Tokenizer* tokenizer) {
  json tokens = json::array();
  for (size_t i = 0; i < answer.scores.size(); ++i) {
    json& token = tokens.emplace_back(chat_token(answer.tokens[i], answer.scores[i].logprob, tokenizer));
    token["top_logprobs"] = json::array();
    for (const TokenLogprob& other : answer.scores[i].alternatives)
      token["top_logprobs"].push_back(chat_token(other.id, other.logprob, tokenizer));
  }
  return {{"content", tokens}, {"refusal", nullptr}};
}

// Where each token begins in `text`, in characters: those before it, which a tokenizer adds, at its front, and those behind it, as a stop token,
// at its end.
std::vector<size_t> offsets_in(const std::string& text, std::span<const int32_t> tokens,
                               bool skip_special_tokens, const Tokenizer* tokenizer) {
  if (!tokenizer) return std::vector<size_t>(tokens.size());
  std::vector<size_t> offsets = token_offsets(*tokenizer, tokens, skip_special_tokens);
  const std::string decoded = tokenizer->decode(tokens, skip_special_tokens);
  const size_t length = character_count(text);
  const bool ends = !decoded.starts_with(text) && decoded.ends_with(text);
  const size_t before = ends ? character_count(decoded) - length : 0;
  for (size_t& offset : offsets) offset = std::min(std::max(offset, before) - before, length);
  return offsets;
}

// scores: of the last tokens.
void list_tokens(json& lists, std::span<const int32_t> tokens, const auto& scores, size_t alternatives,
                 const Tokenizer* tokenizer) {
  const size_t bare = tokens.size() - scores.size();
  for (size_t i = 0; i < tokens.size(); ++i) {
    const TokenScore* score = i < bare ? nullptr : &scores[i - bare];
    lists["tokens"].push_back(spelt(tokens[i], tokenizer));
    lists["token_logprobs"].push_back(score ? number(score->logprob) : json());
    json& top = lists["top_logprobs"].emplace_back();
    if (!score) continue;
    top = json::object();
    for (const TokenLogprob& other : first_of(score->alternatives, alternatives))
      top.emplace(spelt(other.id, tokenizer), number(other.logprob));  // of two spelt alike the likelier one
  }
}

json completion_scores(const RequestLabel& label, const FinishedRequest& completion, const Answer& answer,
                       const Tokenizer* tokenizer) {
  json lists;
  const std::string echo = label.echo ? label.echo->text : "";
  const auto alternatives = static_cast<size_t>(label.echo ? label.echo->logprobs : -1);  // -1: all
  std::vector<size_t> offsets;
  if (label.echo && label.echo->logprobs >= 0) {
    list_tokens(lists, completion.prompt, completion.prompt_scores, alternatives, tokenizer);
    offsets = offsets_in(echo, completion.prompt, /*skip_special_tokens=*/false, tokenizer);
  }
  if (!answer.scores.empty()) {
    list_tokens(lists, answer.tokens, answer.scores, alternatives, tokenizer);
    for (const size_t offset :
         offsets_in(answer.text.value_or(""), answer.tokens, /*skip_special_tokens=*/true, tokenizer))
      offsets.push_back(character_count(echo) + offset);
  }
  if (!lists.is_null()) lists["text_offset"] = std::move(offsets);
  return lists;
}

// As vLLM has them: the token and its alternatives, by id.
json prompt_scores(const RequestLabel& label, const FinishedRequest& completion, const Tokenizer* tokenizer) {
  return listed_prompt(completion, [&](int32_t token, const TokenScore& score) {
    json entry;
    const auto add = [&](int32_t id, float logprob) {
      entry.emplace(fmt::format("{}", id),
                    json{{"logprob", number(logprob)}, {"decoded_token", spelt(id, tokenizer)}});
    };
    add(token, score.logprob);
    for (const TokenLogprob& other : first_of(score.alternatives, static_cast<size_t>(label.prompt_logprobs)))
      add(other.id, other.logprob);
    return entry;
  });
}

json text_or_null(const std::string& text) { return text.empty() ? json() : json(text); }

// With its thought apart: where there is no answer yet, the content is null, as in vLLM.
json message_of(const Answer& answer) {
  const std::string text = answer.text.value_or("");
  if (!answer.reasoning) return {{"role", "assistant"}, {"content", text}};
  const json thought = text_or_null(*answer.reasoning);
  json message = {{"role", "assistant"},
                  {"content", text_or_null(text)},
                  {"reasoning", thought},
                  {"reasoning_content", thought}};
  if (!answer.calls.empty()) message["tool_calls"] = calls_of(answer);
  return message;
}

json choice(const RequestLabel& label, const FinishedRequest& completion, uint32_t index,
            const Tokenizer* tokenizer) {
  const Answer& answer = completion.answers[index];
  json choice = {{"index", index}};
  if (completion.answers.size() > 1) choice["seed"] = answer_seed(label.seed, index);
  if (label.shape == RequestShape::chat) {
    choice["message"] = message_of(answer);
    choice["logprobs"] = answer.scores.empty() ? json() : chat_scores(answer, tokenizer);
  } else {
    choice["text"] = (label.echo ? label.echo->text : "") + answer.text.value_or("");
    choice["logprobs"] = completion_scores(label, completion, answer, tokenizer);
  }
  const bool calls = answer.reason == FinishReason::stop && !answer.calls.empty();
  choice["finish_reason"] = calls ? "tool_calls" : reason_of(answer);
  if (label.shape == RequestShape::completion && label.prompt_logprobs >= 0)
    choice["prompt_logprobs"] = prompt_scores(label, completion, tokenizer);
  return choice;
}

json body_of(const RequestLabel& label, const FinishedRequest& completion, const std::string& hash,
             const Tokenizer* tokenizer) {
  const bool chat = label.shape == RequestShape::chat;
  const size_t prompt = completion.prompt_tokens, completed = tokens_of(completion.answers);
  json body = {
      {"id", fmt::format("{}-{}", chat ? "chatcmpl" : "cmpl", hash)},
      {"object", chat ? "chat.completion" : "text_completion"},
      {"created", 0},
      {"model", label.model},
      {"choices", json::array()},
      {"usage",
       {{"prompt_tokens", prompt}, {"completion_tokens", completed}, {"total_tokens", prompt + completed}}}};
  for (uint32_t i = 0; i < completion.answers.size(); ++i)
    body["choices"].push_back(choice(label, completion, i, tokenizer));
  if (chat && label.prompt_logprobs >= 0)
    body["prompt_logprobs"] = prompt_scores(label, completion, tokenizer);
  return body;
}

json batch_line(const RequestLabel& label, const FinishedRequest& completion, const Tokenizer* tokenizer) {
  const std::string hash = fmt::format("{:016x}", request_seed(label.seed, label.id));
  json line = {{"id", "batch_req_" + hash}, {"custom_id", json::parse(label.id)}};
  if (!completion.error.empty()) {
    line["response"] = nullptr;
    line["error"] = {{"code", "invalid_request"}, {"message", completion.error}};
    return line;
  }
  line["response"] = {{"status_code", 200},
                      {"request_id", "req_" + hash},
                      {"body", body_of(label, completion, hash, tokenizer)}};
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
