#pragma once

#include <gtest/gtest.h>
#include <kernels/support/check.hpp>
#include <runtime/chat/chat_template.hpp>

#include <nlohmann/json.hpp>

#include <string>
#include <string_view>

namespace maniple::testing {

inline constexpr std::time_t golden_time =
    1'700'000'000;  // of make_golden.py: 14 November 2023, 22:13:20 UTC

inline std::string render(std::string_view source,
                          const nlohmann::ordered_json& variables = nlohmann::ordered_json::object()) {
  return ChatTemplate::from_text(source).render(variables, golden_time);
}

// The message of the Error (input) that the action throws; empty if it throws none.
template <typename Action>
std::string refusal_of(Action action) {
  try {
    action();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ExitCode::input);
    return error.what();
  }
  return "";
}

}  // namespace maniple::testing
