// A chat request's fields, as OpenAI's API and its followers name them, to the variables of a chat template.
#pragma once

#include <runtime/chat/chat_template.hpp>

#include <nlohmann/json_fwd.hpp>

#include <ctime>
#include <string>

namespace maniple {

// request: "messages"; "tools", "documents", "enable_thinking", "add_generation_prompt" (true unless given)
// and "chat_template_kwargs", an object with further variables. Messages reach the template as they are.
// Fields that say nothing about the prompt are passed over. Fails (input) on a field that is mistyped or asks
// for another prompt than the template's, and on what the template refuses.
std::string chat_prompt(const ChatTemplate& chat_template, const nlohmann::ordered_json& request,
                        std::time_t now);

}  // namespace maniple
