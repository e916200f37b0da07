// A chat request's fields, as OpenAI's API and its followers name them, to the variables of a chat template.
#pragma once

#include <runtime/chat/chat_template.hpp>

#include <nlohmann/json_fwd.hpp>

#include <ctime>
#include <optional>
#include <string>

namespace maniple {

// request: "messages"; "tools", "documents", "enable_thinking", "add_generation_prompt" (true unless given)
// and "chat_template_kwargs", an object with further variables. Messages reach the template as they are, but
// for a content of several text parts where the template wants one text: these are joined by line breaks.
// Fields that say nothing about the prompt are passed over. Fails (input) on a field that is mistyped or asks
// for another prompt than the template's, and on what the template refuses.
std::string chat_prompt(const ChatTemplate& chat_template, const nlohmann::ordered_json& request,
                        std::time_t now);

// Why the content of a message can never be served: it has a part that is no text. Nothing if there is none.
std::optional<std::string> reason_against_content(const nlohmann::ordered_json& messages);

}  // namespace maniple
