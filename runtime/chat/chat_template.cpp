#include <runtime/chat/chat_template.hpp>
#include <runtime/chat/lexer.hpp>
#include <runtime/chat/program.hpp>
#include <runtime/checkpoint/json_fields.hpp>
#include <runtime/checkpoint/token_settings.hpp>
#include <runtime/text/utf8.hpp>

#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

namespace maniple {

namespace jinja {
struct Program {
  Body body;
};
}  // namespace jinja

namespace {

using nlohmann::json;
using nlohmann::ordered_json;

using Programs = std::map<std::string, std::shared_ptr<const jinja::Program>, std::less<>>;

std::shared_ptr<const jinja::Program> compiled(std::string_view source) {
  if (first_invalid_utf8(source) != source.npos)
    fail(ExitCode::input, "the chat template is not valid UTF-8");
  return std::make_shared<const jinja::Program>(jinja::Program{jinja::parse(source)});
}

json read_object(const ModelFiles& files, std::string_view name) {
  return files.has(name) ? parse_json(files.text(name), files.where(name)) : json::object();
}

// "chat_template": a template, or a list of {"name", "template"}.
Programs programs_of(const JsonFields& fields, std::string_view where) {
  Programs programs;
  const json* found = fields.find("chat_template");
  if (!found) return programs;
  if (!found->is_array()) {
    programs["default"] = compiled(fields.text("chat_template"));
    return programs;
  }
  for (const json& each : *found) {
    const JsonFields named(each, where, "chat_template");
    programs[named.text("name")] = compiled(named.text("template"));
  }
  return programs;
}

// The files of templates, where there are any, else what tokenizer_config.json or chat_template.json holds. As in transformers.
Programs find_programs(const ModelFiles& files) {
  Programs programs;
  if (files.has("chat_template.jinja")) programs["default"] = compiled(files.text("chat_template.jinja"));
  for (const std::string& name : files.names())
    if (name.starts_with(templates_folder))
      programs[std::filesystem::path(name).stem()] = compiled(files.text(name));
  for (const std::string_view name : {"tokenizer_config.json", "chat_template.json"}) {
    if (!programs.empty()) return programs;
    const json object = read_object(files, name);
    programs = programs_of(JsonFields(object, name), name);
  }
  return programs;
}

// A conversation that may contain a message of this role.
ordered_json conversation_with(std::string_view role, const ordered_json& content) {
  const ordered_json user = {{"role", "user"}, {"content", "a"}},
                     message = {{"role", role}, {"content", content}};
  if (role == "user") return ordered_json::array({message});
  if (role == "assistant") return ordered_json::array({user, message, user});
  if (role != "tool") return ordered_json::array({message, user});
  ordered_json answer = message;
  answer["tool_call_id"] = "abcdefghi";
  const ordered_json function = {{"name", "f"}, {"arguments", ordered_json::object()}};
  const ordered_json call = {{"id", "abcdefghi"}, {"type", "function"}, {"function", function}};
  const ordered_json caller = {
      {"role", "assistant"}, {"content", ""}, {"tool_calls", ordered_json::array({call})}};
  return ordered_json::array({user, caller, answer});
}

}  // namespace

ChatTemplate ChatTemplate::from_text(std::string_view source) {
  return {{{"default", compiled(source)}}, {}, {}};
}

ChatTemplate ChatTemplate::load(const ModelFiles& files, const std::optional<std::string>& name) {
  Programs programs = find_programs(files);
  if (const std::string wanted = name.value_or("default"); !programs.contains(wanted)) {
    std::vector<std::string_view> there;
    for (const auto& [each, program] : programs) there.push_back(each);
    if (name || !there.empty())
      throw Error(
          ExitCode::input, fmt::format("{} holds no chat template \"{}\"", files.where(), wanted),
          fmt::format("it holds {}", there.empty() ? "none" : fmt::format("{}", fmt::join(there, ", "))),
          there.empty() ? "leave --chat-template out, or use the instruct model"
                        : fmt::format("--chat-template {}", there[0]));
    throw Error(ExitCode::input, fmt::format("{} holds no chat template", files.where()),
                "without one, chat messages do not become a prompt",
                "use the instruct model, or put the template into chat_template.jinja beside tokenizer.json");
  }
  std::map<std::string, std::string> tokens;
  for (const auto& [token, setting] : read_token_settings(files).named) tokens[token] = setting.content;
  return {std::move(programs), std::move(tokens), name};
}

// Tests the support for content parts here, once, and not for each message.
ChatTemplate::ChatTemplate(std::map<std::string, std::shared_ptr<const jinja::Program>, std::less<>> programs,
                           std::map<std::string, std::string> special_tokens, std::optional<std::string> name)
    : programs_(std::move(programs)), special_tokens_(std::move(special_tokens)), name_(std::move(name)) {
  for (const char* role : {"system", "developer", "user", "assistant", "tool", "function", "ipython"})
    if (shows_parts(role)) roles_with_parts_.insert(role);
}

std::string ChatTemplate::render(const ordered_json& variables, std::time_t now) const {
  const auto tools = variables.find("tools");
  const bool has_tools = tools != variables.end() && !tools->is_null();
  const bool for_tools = has_tools && !name_ && programs_.contains("tool_use");
  const auto& program = programs_.at(for_tools ? "tool_use" : name_.value_or("default"));
  jinja::Run run;
  std::string prompt;
  try {
    const auto scope = std::make_shared<jinja::Scope>(jinja::Scope{nullptr, jinja::globals(now)});
    for (const auto& [name, token] : special_tokens_) scope->names[name] = token;
    for (const char* name : {"tools", "documents"}) scope->names[name] = jinja::None{};
    scope->names["add_generation_prompt"] = false;
    for (const auto& [name, value] : variables.items()) scope->names[name] = jinja::Value::from_json(value);
    jinja::Frame frame{scope, prompt, run};
    jinja::run_body(program->body, frame);
  } catch (const jinja::TemplateError& error) {
    jinja::refuse_template(run.line(), error.what());
  }
  return prompt;
}

// A template without support for parts fails, or prints them as a list with all their fields.
bool ChatTemplate::shows_parts(std::string_view role) const {
  constexpr const char* unread = "what only a printed list would show";
  ordered_json parts;
  for (const char* text : {"the first text", "the second text"})
    parts.push_back({{"type", "text"}, {"text", text}, {"unread", unread}});
  try {
    const std::string prompt = render({{"messages", conversation_with(role, parts)}}, 0);
    const auto shows = [&](const std::string& text) { return prompt.find(text) != prompt.npos; };
    return shows(parts[0]["text"]) && shows(parts[1]["text"]) && !shows(unread);
  } catch (const Error&) {
    return false;
  }
}

}  // namespace maniple
