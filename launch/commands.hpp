// All commands of the program.
#pragma once

#include <launch/start/command.hpp>

#include <span>
#include <string>

namespace maniple {

std::span<const CommandRow> commands();

// args: without the program's name. What the first word's command reads of the others; help and version without one.
Task read_command_line(std::span<const std::string> args, const Launch& launch = {});

}  // namespace maniple
