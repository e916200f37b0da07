// Command lines for tests.
#pragma once

#include <kernels/support/check.hpp>
#include <launch/commands.hpp>
#include <launch/commands/commands.hpp>

#include <gtest/gtest.h>

#include <algorithm>

namespace maniple {

using Args = std::vector<std::string>;

// A complete command line of generate, with more options.
inline Args generate_line(const Args& more) {
  Args args{"generate", "--model", "m", "--prompt", "p"};
  args.insert(args.end(), more.begin(), more.end());
  return args;
}

// The options that a command line gives its command.
template <auto parse>
auto options_of(const Args& args) {
  const auto command = std::ranges::find(commands(), args.at(0), &CommandRow::name);
  return std::get<1>(read_options<parse>(*command, std::span(args).subspan(1), {}));
}

inline GenerateOptions generate(const Args& more) { return options_of<parse_generate>(generate_line(more)); }

inline Error refusal(const Args& args) {
  try {
    read_command_line(args);
  } catch (const Error& error) {
    return error;
  }
  ADD_FAILURE() << "was not refused";
  return {ExitCode::complete, ""};
}

inline Error generate_refusal(const Args& more) { return refusal(generate_line(more)); }

}  // namespace maniple
