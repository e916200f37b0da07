// Command lines for tests.
#pragma once

#include <kernels/support/check.hpp>
#include <launch/options/options.hpp>

#include <gtest/gtest.h>

namespace maniple {

using Args = std::vector<std::string>;

// A complete command line of generate, with more options.
inline Args generate_line(const Args& more) {
  Args args{"generate", "--model", "m", "--prompt", "p"};
  args.insert(args.end(), more.begin(), more.end());
  return args;
}

inline GenerateOptions generate(const Args& more) {
  return std::get<GenerateOptions>(parse_arguments(generate_line(more)));
}

inline Error refusal(const Args& args) {
  try {
    parse_arguments(args);
  } catch (const Error& error) {
    return error;
  }
  ADD_FAILURE() << "was not refused";
  return {ExitCode::complete, ""};
}

inline Error generate_refusal(const Args& more) { return refusal(generate_line(more)); }

}  // namespace maniple
