#include <kernels/support/check.hpp>
#include <launch/input/chat_prompt.hpp>
#include <runtime/checkpoint/json_fields.hpp>

#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

namespace maniple {

using nlohmann::ordered_json;

namespace {

using Type = ordered_json::value_t;

// Null if the field is absent or null.
const ordered_json* find(const ordered_json& request, const char* name, Type type, const char* form) {
  const auto field = request.find(name);
  if (field == request.end() || field->is_null()) return nullptr;
  if (field->type() != type) fail(ExitCode::input, "{} must be {}", name, form);
  return &*field;
}

void refuse_another_prompt(const ordered_json& request) {
  for (const char* name : {"chat_template", "continue_final_message", "functions", "function_call"})
    if (request.contains(name) && request[name] != false && !request[name].is_null())
      fail(ExitCode::input,
           "{} is not supported: the prompt is what the model's own template makes of messages and tools",
           name);
}

bool has_parts(const ordered_json& message) {
  return message.is_object() && message.contains("content") && message["content"].is_array();
}

// By line breaks, as vLLM does.
std::string joined(const ordered_json& parts) {
  std::vector<std::string> texts;
  for (const ordered_json& part : parts) texts.push_back(part["text"]);
  return fmt::format("{}", fmt::join(texts, "\n"));
}

// As transformers do: null means absent, and templates find a thought under the names that they read, whichever it came by.
ordered_json normalised(const ordered_json& message) {
  if (!message.is_object()) return message;
  ordered_json fields = ordered_json::object();
  for (const auto& [name, value] : message.items())
    if (!value.is_null()) fields[name] = value;
  for (const char* name : {"reasoning_content", "thinking", "reasoning"}) {
    if (!fields.contains(name)) continue;
    ordered_json aliased = {{"thinking", fields[name]}};
    aliased.update(fields);
    aliased["reasoning_content"] = fields[name];
    return aliased;
  }
  return fields;
}

ordered_json messages_for(const ChatTemplate& chat_template, ordered_json messages) {
  for (ordered_json& message : messages) {
    message = normalised(message);
    if (!has_parts(message)) continue;
    const std::string role = message.contains("role") && message["role"].is_string() ? message["role"] : "";
    if (!chat_template.takes_parts(role)) message["content"] = joined(message["content"]);
  }
  return messages;
}

}  // namespace

std::optional<std::string> reason_against_content(const ordered_json& messages) {
  for (const ordered_json& message : messages) {
    if (!has_parts(message)) continue;
    for (const ordered_json& part : message["content"]) {
      const ordered_json type = part.is_object() ? part.value("type", ordered_json()) : ordered_json();
      if (type != "text")
        return fmt::format("content has a part of type {}; supported: text", shown(nlohmann::json(type)));
      if (!part.contains("text") || !part["text"].is_string())
        return "content has a part of type \"text\" without a text";
    }
  }
  return std::nullopt;
}

void read_arguments(ordered_json& messages) {
  const auto read = [](ordered_json& call) {
    if (!call.is_object() || !call.contains("function") || !call["function"].is_object()) return;
    const auto arguments = call["function"].find("arguments");
    if (arguments == call["function"].end() || !arguments->is_string()) return;
    const std::string text = arguments->get<std::string>();
    try {
      ordered_json parsed = text.empty() ? ordered_json::object() : parse_ordered_json(text, "arguments");
      if (parsed.is_object()) *arguments = std::move(parsed);
    } catch (const Error&) {  // the text stays
    }
  };
  if (!messages.is_array()) return;
  for (ordered_json& message : messages)
    if (message.is_object() && message.contains("tool_calls") && message["tool_calls"].is_array())
      for (ordered_json& call : message["tool_calls"]) read(call);
}

std::string chat_prompt(const ChatTemplate& chat_template, const ordered_json& request, std::time_t now) {
  refuse_another_prompt(request);
  const ordered_json* messages = find(request, "messages", Type::array, "a list of messages");
  if (!messages || messages->empty()) fail(ExitCode::input, "messages is missing or empty");
  const ordered_json* further = find(request, "chat_template_kwargs", Type::object, "an object");
  ordered_json variables = further ? *further : ordered_json::object();
  if (const std::optional<std::string> reason = reason_against_content(*messages))
    fail(ExitCode::input, "{}", *reason);
  variables["messages"] = messages_for(chat_template, *messages);
  if (!variables.contains("add_generation_prompt")) variables["add_generation_prompt"] = true;
  for (const char* name : {"tools", "documents"})
    if (const ordered_json* list = find(request, name, Type::array, "a list")) variables[name] = *list;
  for (const char* name : {"enable_thinking", "add_generation_prompt"})
    if (const ordered_json* choice = find(request, name, Type::boolean, "true or false"))
      variables[name] = *choice;
  if (const ordered_json* effort = find(request, "reasoning_effort", Type::string, "a text"))
    variables["reasoning_effort"] = *effort;
  return chat_template.render(variables, now);
}

}  // namespace maniple
