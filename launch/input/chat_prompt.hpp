// From the fields of a chat request, named as in OpenAI's API, to the variables of a chat template.
#pragma once

#include <runtime/chat/chat_template.hpp>

#include <nlohmann/json_fwd.hpp>

#include <ctime>
#include <optional>
#include <string>

namespace maniple {

// request: "messages"; "tools", "documents", "enable_thinking", "reasoning_effort", "add_generation_prompt" (true unless
// given) and "chat_template_kwargs", an object with further variables. Of messages the template sees no null
// field, "thinking" and "reasoning_content" where it has one of these or "reasoning", and a content of several
// text parts as one text, joined by line breaks, if it wants one text; all else unchanged. Ignores fields that do not concern the prompt. Fails (input) on a mistyped field, on
// a field that asks for another prompt than the template's, and if the template refuses the request.
std::string chat_prompt(const ChatTemplate& chat_template, const nlohmann::ordered_json& request,
                        std::time_t now);

// In OpenAI's shape the arguments of earlier tool calls are JSON in a text. Templates want the object, and get it, as in vLLM; a text
// that is no object stays, and an empty one means no arguments.
void read_arguments(nlohmann::ordered_json& messages);

// Why the content of a message can never be served: it has a part that is no text. Nothing: it can be served.
std::optional<std::string> reason_against_content(const nlohmann::ordered_json& messages);

}  // namespace maniple
