#include <kernels/support/check.hpp>
#include <launch/results.hpp>

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include <cmath>

namespace maniple {

namespace {

std::string quoted(const std::string& text) {
  return nlohmann::json(text).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

std::string number(float value) { return std::isfinite(value) ? fmt::format("{}", value) : "null"; }

std::string score_json(const TokenScore& score) {
  std::string text = fmt::format("{{\"logprob\":{}", number(score.logprob));
  const char* separator = ",\"top\":[";
  for (const TokenLogprob& alternative : score.alternatives) {
    text += fmt::format("{}{{\"token\":{},\"logprob\":{}}}", separator, alternative.id,
                        number(alternative.logprob));
    separator = ",";
  }
  return text + (score.alternatives.empty() ? "}" : "]}");
}

std::string logprobs_json(const std::vector<TokenScore>& scores) {
  std::vector<std::string> parts;
  parts.reserve(scores.size());
  for (const TokenScore& score : scores) parts.push_back(score_json(score));
  return fmt::format(",\"logprobs\":[{}]", fmt::join(parts, ","));
}

}  // namespace

std::string result_line(const std::string& id, const Completion& completion, bool with_text) {
  if (!completion.error.empty())
    return fmt::format("{{\"id\":{},\"error\":{}}}", id, quoted(completion.error));
  return fmt::format(
      "{{\"id\":{}{}{},\"tokens\":[{}],\"finish_reason\":\"{}\"{},\"usage\":{{\"prompt_tokens\":{},"
      "\"completion_tokens\":{}}}}}",
      id, with_text ? ",\"text\":" : "", with_text ? quoted(completion.text) : "",
      fmt::join(completion.tokens, ","), completion.reason == FinishReason::stop ? "stop" : "length",
      completion.scores.empty() ? "" : logprobs_json(completion.scores), completion.prompt_tokens,
      completion.tokens.size());
}

void ResultWriter::refuse(RequestId request, const std::string& reason) {
  Completion refused;
  refused.id = request;
  refused.error = reason;
  finished(std::move(refused));
}

void ResultWriter::finished(Completion completion) {
  const auto id = ids_.extract(completion.id);
  require(!id.empty(), "a request ended that was not expected, or ended twice");
  ++done_;
  if (!completion.error.empty()) {
    ++failed_;
    last_error_ = completion.error;
  }
  held_.emplace(completion.id, rendered(id.mapped(), completion));
  for (; !held_.empty() && held_.begin()->first == turn_; ++turn_)
    file_.write(held_.extract(held_.begin()).mapped());
}

void ResultWriter::write_held() {
  while (!held_.empty()) file_.write(held_.extract(held_.begin()).mapped());
}

std::string ResultWriter::rendered(const std::string& id, const Completion& completion) const {
  if (format_.json) return result_line(id, completion, format_.with_text) + '\n';
  return completion.error.empty() ? completion.text + '\n' : "";
}

}  // namespace maniple
