#include <kernels/support/check.hpp>
#include <launch/options/values.hpp>

#include <string_view>

namespace maniple {

void refuse(const std::string& what, const std::string& remedy, const std::string& why) {
  throw Error(ExitCode::usage, what, why, remedy);
}

size_t parse_bytes(const std::string& text) {
  constexpr std::string_view units = "KMGT";
  size_t value = 0;
  const char* end = text.data() + text.size();
  const auto [stopped, error] = std::from_chars(text.data(), end, value);
  const std::string unit(stopped, end);
  const size_t power = unit.empty() ? 0 : units.find(unit[0]) + 1;  // npos + 1: 0
  const bool known =
      unit.empty() || (power > 0 && (unit.size() == 1 || unit.substr(1) == "iB" || unit.substr(1) == "B"));
  const size_t base = unit.size() == 2 ? 1000 : 1024;
  bool fits = error == std::errc{} && value > 0 && known;
  for (size_t i = 0; fits && i < power; ++i) fits = !__builtin_mul_overflow(value, base, &value);
  if (!fits)
    refuse(fmt::format("\"{}\" is not a number of bytes", text),
           "write it like 512M, 4G or 4GiB (powers of 1024), or 4GB (powers of 1000)");
  return value;
}

std::chrono::milliseconds parse_duration(const std::string& text) {
  double value = 0;
  const char* end = text.data() + text.size();
  const auto [stopped, error] = std::from_chars(text.data(), end, value);
  const std::string_view unit(stopped, end);
  const double seconds = unit.empty() || unit == "s" ? 1 : unit == "m" ? 60 : unit == "h" ? 3600 : 0;
  if (error != std::errc{} || seconds == 0 || !(value >= 0 && value <= 1e6))
    refuse(fmt::format("\"{}\" is not a time", text), "write it like 5, 0.5s, 3m or 2h");
  return std::chrono::milliseconds(static_cast<int64_t>(value * seconds * 1000));
}

}  // namespace maniple
