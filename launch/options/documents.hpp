// Manual pages and bash completion, made from the declarations of the options. `maniple --man`,
// `maniple COMMAND --man` and `maniple --completion` print them when the program is built.
#pragma once

#include <functional>
#include <span>
#include <string>
#include <string_view>

namespace maniple {

// In roff: maniple.1. Those of the commands are maniple-COMMAND.1.
std::string overview_page(std::string_view overview, std::span<const std::string> commands);

// part_of: what `maniple COMMAND --completion` prints.
std::string completion_script(std::span<const std::string> commands,
                              const std::function<std::string(const std::string& command)>& part_of);

}  // namespace maniple
