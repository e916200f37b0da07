// Texts of the command line to values.
#pragma once

#include <fmt/format.h>

#include <charconv>
#include <chrono>
#include <cstddef>
#include <string>
#include <type_traits>

namespace maniple {

// Throws an Error (usage). The remedy is what to type instead.
[[noreturn]] void refuse(const std::string& what, const std::string& remedy, const std::string& why = {});

// Fails (usage) on anything but a number in this range; `name` is the option's, for the message.
template <typename T>
T parse_number(const std::string& name, const std::string& text, T smallest, T largest) {
  T value{};
  const char* end = text.data() + text.size();
  const auto [stopped, error] = std::from_chars(text.data(), end, value);
  if (error != std::errc{} || stopped != end || !(value >= smallest && value <= largest))
    refuse(fmt::format("--{} ({}) must be a {}number from {} to {}", name, text,
                       std::is_integral_v<T> ? "whole " : "", smallest, largest),
           "give another number, or leave the option out");
  return value;
}

// "512", "64K" and "64KiB" (2^10), "64KB" (10^3), up to T. Fails (usage) on anything else.
size_t parse_bytes(const std::string& text);

// "5", "0.5s", "3m", "2h". Fails (usage) on anything else.
std::chrono::milliseconds parse_duration(const std::string& text);

}  // namespace maniple
