// Messages to a prompt: the model's own chat template, a text in the Jinja language, rendered as Hugging Face
// transformers do it. README.md says what of the language is there.
#pragma once

#include <runtime/checkpoint/model_files.hpp>

#include <nlohmann/json_fwd.hpp>

#include <ctime>
#include <map>
#include <memory>
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
  // From chat_template.jinja, else chat_template.json, else tokenizer_config.json, which may hold several by
  // name; the special tokens of tokenizer_config.json are variables. Fails (input) without any, or on one
  // that is not supported, with its line.
  static ChatTemplate load(const ModelFiles& files);
  static ChatTemplate from_text(std::string_view source);

  // variables: an object with "messages" and whatever else the template knows ("tools", "documents",
  // "add_generation_prompt", "enable_thinking", ...), which comes before special tokens. now: what
  // strftime_now shows. With several templates, "tool_use" serves requests with tools. Fails (input) with the
  // template's line when the template refuses the messages or cannot be evaluated on them.
  std::string render(const nlohmann::ordered_json& variables, std::time_t now) const;

  // Whether it prints the texts of a content that is a list of parts, [{"type": "text", "text": ...}, ...],
  // in messages of this role. Most templates want one text instead.
  bool takes_parts(std::string_view role) const { return roles_with_parts_.contains(role); }

 private:
  ChatTemplate(std::map<std::string, std::shared_ptr<const jinja::Program>, std::less<>> programs,
               std::map<std::string, std::string> special_tokens);
  bool shows_parts(std::string_view role) const;

  std::map<std::string, std::shared_ptr<const jinja::Program>, std::less<>> programs_;  // by name
  std::map<std::string, std::string> special_tokens_;
  std::set<std::string, std::less<>> roles_with_parts_;
};

}  // namespace maniple
