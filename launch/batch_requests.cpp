#include <launch/batch_requests.hpp>
#include <launch/json_line.hpp>

#include <iterator>
#include <sstream>

namespace maniple {

using nlohmann::json;

namespace {

using Names = std::vector<std::string>;

Names words_of(const std::string& text) {
  std::istringstream words(text);
  return {std::istream_iterator<std::string>(words), {}};
}

const Names line_fields = {"custom_id", "method", "url", "body"};
const std::string both_bodies =
    "model max_tokens temperature top_p seed stop logprobs n stream stream_options user frequency_penalty "
    "logit_bias presence_penalty top_k min_p min_tokens ignore_eos stop_token_ids ";
const Names completion_body = words_of(both_bodies + "prompt best_of echo suffix");
const Names chat_body =
    words_of(both_bodies +
             "messages max_completion_tokens top_logprobs tools tool_choice parallel_tool_calls "
             "response_format chat_template_kwargs store metadata");

// Fields that ask for what we do not do, unless they hold the value that asks for nothing.
void check_neutral(const JsonFields& body) {
  static const auto neutral = nlohmann::ordered_json::parse(R"({
      "n": 1, "best_of": 1, "stream": false, "stream_options": {}, "frequency_penalty": 0,
      "presence_penalty": 0, "logit_bias": {}, "echo": false, "suffix": "", "tool_choice": "auto",
      "parallel_tool_calls": true, "store": false, "response_format": {"type": "text"}})");
  for (const auto& [name, value] : neutral.items())
    if (const json* given = body.find(name); given && *given != json(value))
      body.refuse(name, fmt::format("{} only", value.dump()));
}

void read_completion(const JsonFields& body, RequestLine& request) {
  const json* prompt = body.find("prompt");
  if (!prompt || !(prompt->is_string() || prompt->is_array()))
    body.refuse("prompt", "a text or a list of token ids");
  if (prompt->is_string())
    request.prompt = prompt->get<std::string>();
  else
    request.tokens = body.token_ids("prompt");
  if (const auto alternatives = whole<int32_t>(body, "logprobs", request.error))
    request.sampling.logprobs = alternatives;
}

// Whether the template takes the messages, only the template can tell.
void read_chat(const JsonFields& body, RequestLine& request) {
  const json* messages = body.find("messages");
  if (!messages || !messages->is_array() || messages->empty())
    body.refuse("messages", "a list with at least one message");
  const auto longest = whole<uint32_t>(body, "max_completion_tokens", request.error);
  if (longest && request.sampling.max_tokens.value_or(*longest) != *longest)
    body.refuse("max_completion_tokens", "the same number as max_tokens, or one of both");
  if (longest) request.sampling.max_tokens = longest;
  const auto alternatives = whole<int32_t>(body, "top_logprobs", request.error);
  const bool scores = body.boolean_or("logprobs", false);
  if (alternatives && !scores) body.refuse("top_logprobs", "a number together with \"logprobs\": true");
  if (scores) request.sampling.logprobs = alternatives.value_or(0);
}

}  // namespace

bool is_batch_request(const json& object) {
  return object.is_object() && (object.contains("custom_id") || object.contains("body"));
}

RequestLine parse_batch_request(const json& object, uint64_t number, const std::string& where) {
  check_names(object, line_fields, where);
  const JsonFields line(object, where);
  RequestLine request;
  request.number = number;
  request.label.id = json(line.text("custom_id")).dump();
  if (line.text_or("method", "POST") != "POST") line.refuse("method", "POST");
  const std::string url = line.text("url");
  const bool chat = url == "/v1/chat/completions";
  if (!chat && url != "/v1/completions") line.refuse("url", "/v1/completions, /v1/chat/completions");
  request.label.shape = chat ? RequestShape::chat : RequestShape::completion;

  const JsonFields body = line.object("body");
  check_names(object["body"], chat ? chat_body : completion_body, where);
  check_neutral(body);
  request.label.model = body.text("model");
  body.text_or("user", "");
  request.sampling = sampling_of(body, request.error);
  if (chat)
    read_chat(body, request);
  else
    read_completion(body, request);
  return request;
}

}  // namespace maniple
