// Helpers of the tests in this folder.
#pragma once

#include <kernels/support/check.hpp>

#include <gtest/gtest.h>
#include <unistd.h>
#include <support/temp_directory.hpp>
#include <support/test_data.hpp>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <string_view>

namespace maniple {

inline std::filesystem::path model_directory(std::string_view name) { return test_data() / "models" / name; }

inline void write_file(const std::filesystem::path& path, std::string_view text) {
  std::ofstream file(path, std::ios::binary);
  file << text;
  ASSERT_TRUE(file.flush()) << path;
}

inline std::string read_file(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

// Runs an action that must fail with ExitCode::input. Returns its message.
template <typename Action>
std::string input_error_of(Action action) {
  try {
    action();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ExitCode::input) << error.what();
    return error.what();
  }
  ADD_FAILURE() << "nothing was refused";
  return {};
}

// The same, of an error that also says why it matters and what to do.
template <typename Action>
std::string refusal_of(Action action) {
  return input_error_of([&] {
    try {
      action();
    } catch (const Error& error) {
      EXPECT_NE(error.why(), "") << error.what();
      EXPECT_NE(error.remedy(), "") << error.what();
      throw;
    }
  });
}

inline void expect_contains(const std::string& text, const std::string& part) {
  EXPECT_NE(text.find(part), std::string::npos) << "\"" << text << "\" does not contain \"" << part << "\"";
}

}  // namespace maniple
