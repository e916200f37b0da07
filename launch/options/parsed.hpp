// What parsing a command line gives. Every mistake is an Error (usage) that names the nearest correct option or value.
#pragma once

#include <launch/process/launcher.hpp>
#include <span>
#include <string>
#include <variant>

namespace maniple {

class Grammar;
using Words =
    std::span<const std::string>;  // of a command line, without the program's name and the command's

// Text to print on stdout: help or version.
struct Notice {
  std::string text;
};
// What a command line says.
template <typename Options>
using Parsed = std::variant<Notice, Options>;

}  // namespace maniple
