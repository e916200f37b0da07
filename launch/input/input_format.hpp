// What kind of file an input is, by its first bytes: so that a file of another kind is named, with the
// command that makes it one of ours, instead of called wrong line by line.
#pragma once

#include <string>
#include <string_view>

namespace maniple {

// head: the first bytes of a file, unpacked, with several lines where it has them; name: "stdin" or its path.
// Fails (input) on UTF-16, files packed otherwise, and binary ones.
void refuse_foreign_bytes(std::string_view head, const std::string& name);
// Fails (input) on JSON that is no JSON lines: an array of objects, one object over several lines.
void refuse_foreign_json(std::string_view head, const std::string& name);

// .txt, perhaps packed.
bool is_called_text(std::string_view name);
// Lines of this file are prompts: it is called text, and does not begin with a request as JSON.
bool holds_prompts(std::string_view head, const std::string& name);

}  // namespace maniple
