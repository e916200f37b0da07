#include <kernels/support/check.hpp>
#include <launch/chat_prompt.hpp>

#include <nlohmann/json.hpp>

namespace maniple {

using nlohmann::ordered_json;

namespace {

using Type = ordered_json::value_t;

// The field, where it is given and not null.
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

}  // namespace

std::string chat_prompt(const ChatTemplate& chat_template, const ordered_json& request, std::time_t now) {
  refuse_another_prompt(request);
  const ordered_json* messages = find(request, "messages", Type::array, "a list of messages");
  if (!messages || messages->empty()) fail(ExitCode::input, "messages is missing or empty");
  const ordered_json* further = find(request, "chat_template_kwargs", Type::object, "an object");
  ordered_json variables = further ? *further : ordered_json::object();
  variables["messages"] = *messages;
  if (!variables.contains("add_generation_prompt")) variables["add_generation_prompt"] = true;
  for (const char* name : {"tools", "documents"})
    if (const ordered_json* list = find(request, name, Type::array, "a list")) variables[name] = *list;
  for (const char* name : {"enable_thinking", "add_generation_prompt"})
    if (const ordered_json* choice = find(request, name, Type::boolean, "true or false"))
      variables[name] = *choice;
  return chat_template.render(variables, now);
}

}  // namespace maniple
