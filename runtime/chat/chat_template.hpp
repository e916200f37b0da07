// Messages to a prompt: renders the model's chat template, a text in the Jinja language, as Hugging Face
// transformers do. README.md lists the supported part of the language.
#pragma once

#include <runtime/checkpoint/model_files.hpp>

#include <nlohmann/json_fwd.hpp>

#include <ctime>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>

namespace maniple {

namespace jinja {
struct Program;
}

// Constant and safe to use from several threads once built.
class ChatTemplate {
 public:
  // Reads chat_template.jinja and additional_chat_templates/NAME.jinja, else tokenizer_config.json, which may hold several
  // templates by name, else chat_template.json. name: the one to use, whatever the request; absent: "default", and "tool_use",
  // if there is one, for requests with tools. Named special tokens (token_settings.hpp) are variables. Throws Error (input)
  // without that template, or with the line of an unsupported tag.
  static ChatTemplate load(const ModelFiles& files, const std::optional<std::string>& name = {});
  static ChatTemplate from_text(std::string_view source);

  // variables: an object with "messages" and the other variables of the template ("tools", "documents",
  // "add_generation_prompt", "enable_thinking", ...), which override special tokens. now: the time for
  // strftime_now. Throws Error (input), with the template's line, when the template refuses the messages or cannot be evaluated on them.
  std::string render(const nlohmann::ordered_json& variables, std::time_t now) const;

  // Whether a content in messages of this role may be a list of parts, [{"type": "text", "text": ...}, ...],
  // whose texts the template prints. Most templates need one text instead.
  bool takes_parts(std::string_view role) const { return roles_with_parts_.contains(role); }

 private:
  ChatTemplate(std::map<std::string, std::shared_ptr<const jinja::Program>, std::less<>> programs,
               std::map<std::string, std::string> special_tokens, std::optional<std::string> name);
  bool shows_parts(std::string_view role) const;

  std::map<std::string, std::shared_ptr<const jinja::Program>, std::less<>> programs_;  // by name
  std::map<std::string, std::string> special_tokens_;
  std::optional<std::string> name_;
  std::set<std::string, std::less<>> roles_with_parts_;
};

}  // namespace maniple
