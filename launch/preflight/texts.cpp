#include <launch/preflight/facts.hpp>
#include <launch/preflight/texts.hpp>

#include <fmt/format.h>

#include <array>

namespace maniple {

std::string bytes_text(uint64_t bytes) {
  constexpr std::array units = {"B", "KiB", "MiB", "GiB", "TiB"};
  if (bytes == ResourceLimit::unlimited) return "unlimited";
  auto value = static_cast<double>(bytes);
  size_t unit = 0;
  for (; value >= 1024 && unit + 1 < units.size(); ++unit) value /= 1024;
  return fmt::format("{:.{}f} {}", value, value < 10 && unit > 0 ? 1 : 0, units[unit]);
}

std::string ranges_text(std::span<const int> numbers) {
  std::string text;
  for (size_t begin = 0, end = 0; begin < numbers.size(); begin = end) {
    for (end = begin + 1; end < numbers.size() && numbers[end] == numbers[end - 1] + 1;) ++end;
    text += fmt::format("{}{}", text.empty() ? "" : ",", numbers[begin]);
    if (end - begin > 1) text += fmt::format("-{}", numbers[end - 1]);
  }
  return text.empty() ? "-" : text;
}

}  // namespace maniple
