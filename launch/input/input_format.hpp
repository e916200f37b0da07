// Recognises the kind of an input file by its first bytes. A foreign file gets
// one error with the command that converts it, instead of an error for each line.
#pragma once

#include <string>
#include <string_view>

namespace maniple {

// head: the first bytes of a file, unpacked, several lines if possible. name: "stdin"
// or its path. Fails (input) on UTF-16, on other packings and on binary files.
void refuse_foreign_bytes(std::string_view head, const std::string& name);
// Fails (input) on JSON that is no JSON lines: an array of objects, one object over several lines.
void refuse_foreign_json(std::string_view head, const std::string& name);

// Whether the name ends with .txt, perhaps packed.
bool is_called_text(std::string_view name);
// True if its lines are prompts: it is called text, and does not begin with a request as JSON.
bool holds_prompts(std::string_view head, const std::string& name);

}  // namespace maniple
