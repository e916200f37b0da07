#include <kernels/support/counted.hpp>
#include <launch/input/chat_prompt.hpp>
#include <launch/input/json_line.hpp>
#include <launch/input/requests.hpp>
#include <runtime/chat/text.hpp>

#include <xxhash.h>

#include <iterator>
#include <sstream>
#include <unordered_map>

namespace maniple {

using nlohmann::json;

namespace {

using Names = std::vector<std::string>;

Names words_of(const std::string& text) {
  std::istringstream words(text);
  return {std::istream_iterator<std::string>(words), {}};
}

std::string sampling_names() {
  std::string names;
  const auto add = [&](auto name, auto&&...) { names += name + std::string(" "); };
  for_sampling_fields(add);
  for_sampling_lists(add);
  return names;
}

const std::string plain_fields = "id prompt tokens messages continuation reasoning " + sampling_names();
const Names known_fields = words_of(plain_fields);
const Names known_beside_messages =
    words_of(plain_fields +
             "tools documents enable_thinking reasoning_effort add_generation_prompt chat_template_kwargs");
// Of lines in the shape of OpenAI's batch files.
const Names line_fields = {"custom_id", "method", "url", "body"};
// They decide how an answer travels, who pays and when it is computed: ignored.
const std::string without_effect =
    "user metadata store stream stream_options service_tier safety_identifier prompt_cache_key "
    "prompt_cache_retention prediction priority request_id cache_salt ";
const Names ignored_fields = words_of(without_effect);
// Of features that are not there: OpenAI's, then vLLM's. check_neutral has the values that change nothing.
const std::string both_bodies =
    without_effect + sampling_names() +
    "model echo response_format use_beam_search length_penalty "
    "include_stop_str_in_output skip_special_tokens spaces_between_special_tokens return_token_ids "
    "return_tokens_as_token_ids truncate_prompt_tokens logits_processors structured_outputs guided_json "
    "guided_regex guided_choice guided_grammar guided_decoding_backend guided_whitespace_pattern ";
const Names completion_body = words_of(both_bodies + "prompt best_of suffix prompt_embeds");
const Names chat_body =
    words_of(both_bodies +
             "messages max_completion_tokens top_logprobs reasoning reasoning_effort tools tool_choice "
             "parallel_tool_calls "
             "documents add_generation_prompt chat_template_kwargs modalities audio functions function_call "
             "web_search_options continue_final_message include_reasoning chat_template");

std::string id_of(const JsonFields& fields, uint64_t line) {
  const json* id = fields.find("id");
  if (!id) return std::to_string(line);
  if (!id->is_string() && !id->is_number_integer()) fields.refuse("id", "a text or a whole number");
  return id->dump();
}

std::optional<std::string> reasoning_of(const JsonFields& fields) {
  if (!fields.find("reasoning")) return std::nullopt;
  std::optional<std::string> name = reasoning_name(fields.text("reasoning"));
  if (!name) fields.refuse("reasoning", fmt::format("{} or split", fmt::join(reasoning_names(), ", ")));
  return name;
}

// complaints: the first of `count`.
void refuse_bad_lines(const std::string& name, const std::vector<std::string>& complaints, size_t count) {
  if (count == 0) return;
  const size_t more = count - complaints.size();
  throw Error(
      ExitCode::input,
      fmt::format("{} has {}:\n    {}{}", name, counted(count, "bad line"), fmt::join(complaints, "\n    "),
                  more > 0 ? fmt::format("\n    and {} more", more) : ""),
      "the whole input is checked before anything is loaded or computed", "correct these lines");
}

// Whether the field only says that there are no tools to call.
bool calls_nothing(const JsonFields& body, std::string_view name) {
  return name == "tool_choice" && *body.find(name) == "none" && body.is_neutral("tools", {});
}

// Refuses fields for unsupported features, unless they hold the value that changes nothing.
void check_neutral(const JsonFields& body) {
  static const auto neutral = nlohmann::ordered_json::parse(R"({
      "suffix": "", "tool_choice": "auto", "parallel_tool_calls": true, "response_format": {"type": "text"},
      "modalities": ["text"], "audio": null, "functions": null, "function_call": null,
      "web_search_options": null, "use_beam_search": false, "length_penalty": 1,
      "include_stop_str_in_output": false, "skip_special_tokens": true, "spaces_between_special_tokens": true,
      "return_token_ids": false, "return_tokens_as_token_ids": false, "truncate_prompt_tokens": null,
      "logits_processors": null, "structured_outputs": null, "guided_json": null, "guided_regex": null,
      "guided_choice": null, "guided_grammar": null, "guided_decoding_backend": null,
      "guided_whitespace_pattern": null, "prompt_embeds": null, "continue_final_message": false,
      "include_reasoning": true, "chat_template": null})");
  for (const auto& [name, value] : neutral.items())
    if (const json* given = body.find(name); given && *given != json(value) && !calls_nothing(body, name))
      body.refuse(name, fmt::format("{} only", value.dump()));
}

// Those of the fields without effect that ask for something.
Names ignored_in(const JsonFields& body) {
  Names ignored;
  for (const std::string& name : ignored_fields)
    if (const json* given = body.find(name); given && *given != false) ignored.push_back(name);
  return ignored;
}

// OpenAI's limit, of ours the sampler's own.
void check_alternatives(const char* name, std::optional<int32_t> count, std::string& error) {
  constexpr int32_t most = 20;
  if (count && (*count < 0 || *count > most))
    error = fmt::format("{} ({}) must be from 0 to {}", name, *count, most);
}

void read_completion(const JsonFields& body, RequestLine& request, const std::string& where) {
  constexpr std::string_view form = "a text or a list of token ids, or a list with one of these";
  const json* prompt = body.find("prompt");
  if (prompt && prompt->is_array() && prompt->size() == 1 && !(*prompt)[0].is_number())
    prompt = &(*prompt)[0];
  if (!prompt || !(prompt->is_string() || prompt->is_array())) body.refuse("prompt", form);
  if (prompt->is_string()) {
    request.prompt = prompt->get<std::string>();
  } else {
    if (std::ranges::any_of(*prompt, [](const json& id) { return !id.is_number(); }))
      body.refuse("prompt", form);
    const json alone{{"prompt", *prompt}};
    request.tokens = JsonFields(alone, where, "body").token_ids("prompt");
  }
  check_alternatives("logprobs", request.sampling.logprobs, request.error);
  const auto best_of = whole<uint32_t>(body, "best_of", request.error);
  if (best_of && *best_of != request.sampling.n.value_or(1))
    request.error = fmt::format("best_of ({}) must be n ({}): none of the answers is left out", *best_of,
                                request.sampling.n.value_or(1));
  if (body.boolean_or("echo", false)) request.label.echo.emplace(Echo{request.prompt.value_or("")});
}

// Checks only the form: whether the template takes the messages, and what an effort means, it decides itself.
void check_chat(const JsonFields& fields) {
  static const Names efforts = words_of("none minimal low medium high xhigh");  // OpenAI's
  if (fields.find("reasoning_effort") && std::ranges::count(efforts, fields.text("reasoning_effort")) == 0)
    fields.refuse("reasoning_effort", fmt::format("{}", fmt::join(efforts, ", ")));
  const json* messages = fields.find("messages");
  if (!messages || !messages->is_array() || messages->empty())
    fields.refuse("messages", "a list with at least one message");
}

void read_chat(const JsonFields& body, RequestLine& request) {
  check_chat(body);
  if (body.boolean_or("echo", false)) body.refuse("echo", "false only");
  request.reasoning = reasoning_of(body);
  const auto longest = whole<uint32_t>(body, "max_completion_tokens", request.error);
  if (longest && request.sampling.max_tokens.value_or(*longest) != *longest)
    body.refuse("max_completion_tokens", "the same number as max_tokens, or one of both");
  if (longest) request.sampling.max_tokens = longest;
  const auto alternatives = whole<int32_t>(body, "top_logprobs", request.error);
  check_alternatives("top_logprobs", alternatives, request.error);
  const bool scores = body.boolean_or("logprobs", false);
  if (alternatives.value_or(0) > 0 && !scores)
    body.refuse("top_logprobs", "a number together with \"logprobs\": true");
  if (scores) request.sampling.logprobs = alternatives.value_or(0);
}

bool is_batch_request(const json& object) {
  return object.is_object() && (object.contains("custom_id") || object.contains("body"));
}

// Every field of a body is honoured, or accepted with the one value that changes nothing, or refused by name.
RequestLine parse_batch_request(const json& object, const std::string& where) {
  check_names(object, line_fields, where);
  const JsonFields line(object, where);
  RequestLine request;
  request.label.id = json(line.text("custom_id")).dump();
  if (line.text_or("method", "POST") != "POST") line.refuse("method", "POST");
  const std::string url = line.text("url");
  const bool chat = url == "/v1/chat/completions";
  if (!chat && url != "/v1/completions") line.refuse("url", "/v1/completions, /v1/chat/completions");
  request.label.shape = chat ? RequestShape::chat : RequestShape::completion;

  const JsonFields body = line.object("body");
  check_names(object["body"], chat ? chat_body : completion_body, where);
  check_neutral(body);
  request.ignored = ignored_in(body);
  request.label.model = body.text_or("model", "");
  body.text_or("user", "");
  request.sampling = sampling_of(body, request.error, /*except=*/chat ? "logprobs" : "");
  check_alternatives("prompt_logprobs", request.sampling.prompt_logprobs, request.error);
  if (chat)
    read_chat(body, request);
  else
    read_completion(body, request, where);
  return request;
}

// The one field of the three that is given.
std::string source_of(const JsonFields& fields, const std::string& where) {
  std::string source;
  for (const char* name : {"prompt", "tokens", "messages"}) {
    if (!fields.find(name)) continue;
    if (!source.empty())
      fail(ExitCode::input, "{}: both {} and {} are given; leave one out", where, source, name);
    source = name;
  }
  if (source.empty()) fail(ExitCode::input, "{}: neither prompt nor tokens nor messages are given", where);
  return source;
}

// Blanks at the end of the prompt belong to it: tokenizers put them in front of words.
void read_continuation(const JsonFields& fields, RequestLine& request) {
  const json* given = fields.find("continuation");
  if (!given) return;
  const bool is_text = given->is_string();
  if (is_text ? !request.prompt : !fields.find("tokens"))
    fields.refuse("continuation", "a text beside prompt, or token ids beside tokens");
  request.label.continuation = true;
  if (!request.sampling.max_tokens) request.sampling.max_tokens = 0;
  bool empty = false;
  if (is_text) {
    const auto& text = given->get_ref<const std::string&>();
    const std::string prompt = jinja::strip(*request.prompt, {}, jinja::Side::right);
    request.continuation = request.prompt->substr(prompt.size()) + text;
    request.prompt = prompt;
    empty = text.empty();
  } else {
    const std::vector<int32_t> ids = fields.token_ids("continuation");
    request.continued_from = request.tokens.size();
    request.tokens.insert(request.tokens.end(), ids.begin(), ids.end());
    empty = ids.empty();
  }
  if (empty) request.error = "continuation is empty: there is nothing to score";
}

RequestLine parse_plain_request(const json& object, uint64_t number, const std::string& where) {
  const JsonFields fields(object, where);
  check_names(object, fields.find("messages") ? known_beside_messages : known_fields, where);
  RequestLine request;
  request.label.id = id_of(fields, number);
  const std::string source = source_of(fields, where);
  if (source == "messages") check_chat(fields);
  if (source == "prompt") request.prompt = fields.text("prompt");
  request.tokens = fields.token_ids("tokens");
  request.sampling = sampling_of(fields, request.error);
  request.reasoning = reasoning_of(fields);
  read_continuation(fields, request);
  return request;
}

}  // namespace

RequestLine parse_request(const LineReader::Line& line) {
  nlohmann::ordered_json ordered = parse_ordered_json_line(line.text, line.where);
  const json object = ordered;  // to find fields by name
  const bool batch = is_batch_request(object);
  RequestLine request =
      batch ? parse_batch_request(object, line.where) : parse_plain_request(object, line.number, line.where);
  nlohmann::ordered_json& asked = batch ? ordered["body"] : ordered;
  const auto messages = asked.find("messages");
  if (messages == asked.end() || messages->is_null()) return request;
  if (batch) read_arguments(*messages);
  if (const std::optional<std::string> reason = reason_against_content(*messages))
    fail(ExitCode::input, "{}: {}", line.where, *reason);
  request.chat = std::make_shared<nlohmann::ordered_json>(std::move(asked));
  return request;
}

std::string request_of_text(const LineReader::Line& text, bool chat,
                            const std::optional<std::string>& system) {
  check_utf8(text.text, text.where);
  if (!chat) return json{{"prompt", text.text}}.dump();
  nlohmann::ordered_json messages;
  if (system) messages.push_back({{"role", "system"}, {"content", *system}});
  messages.push_back({{"role", "user"}, {"content", text.text}});
  return nlohmann::ordered_json{{"messages", messages}}.dump();
}

InputSummary validate_requests(LineReader& reader) {
  constexpr size_t max_shown = 10;
  InputSummary summary;
  std::vector<std::string> complaints;
  size_t bad_lines = 0;
  const auto complain = [&](std::string complaint) {
    if (++bad_lines <= max_shown) complaints.push_back(std::move(complaint));
  };
  std::unordered_map<uint64_t, uint64_t> lines;  // line of each hashed id
  std::string model;                             // of the first body that names one
  while (const std::optional<LineReader::Line> line = reader.next()) {
    try {
      const RequestLine request = parse_request(*line);
      const RequestLabel& label = request.label;
      const auto [first, fresh] = lines.emplace(request_seed(0, label.id), line->number);
      if (!fresh)
        complain(fmt::format("{}: the id {} is that of {}", line->where, label.id,
                             reader.where_of(first->second)));
      const bool batch = label.shape != RequestShape::plain;
      if (model.empty()) model = label.model;
      if (!label.model.empty() && label.model != model)
        complain(fmt::format("{}: the model is {}, but {} before; a run has one model", line->where,
                             shown(json(label.model)), shown(json(model))));
      const auto note_first = [&](std::string& place, bool is_one) {
        if (place.empty() && is_one) place = line->where;
      };
      note_first(summary.first_text, request.prompt || request.chat || request.sampling.stop ||
                                         request.sampling.bad_words || batch);
      note_first(summary.first_chat, request.chat != nullptr);
      note_first(summary.first_prompt, request.prompt && !label.continuation);
      ++summary.requests;
      if (request.chat && !request.sampling.max_tokens) ++summary.unlimited_chats;
    } catch (const Error& error) {
      complain(error.what());
    }
  }
  refuse_bad_lines(reader.name(), complaints, bad_lines);
  if (summary.requests == 0) fail(ExitCode::input, "{} holds no request", reader.name());
  reader.rewind();
  return summary;
}

GenerationRequest default_request(const GenerationConfig& suggested, const StatedSampling& stated) {
  GenerationRequest request;
  request.sampling.temperature = 0;
  apply_stated(suggested.sampling, request.sampling);
  apply_stated(stated, request.sampling);
  return request;
}

uint64_t request_seed(uint64_t run_seed, std::string_view id) {
  return XXH3_64bits_withSeed(id.data(), id.size(), run_seed);
}

}  // namespace maniple
