#include <kernels/support/number_text.hpp>

#include <fmt/core.h>

#include <array>
#include <cmath>

namespace maniple {

std::string number_text(double number) {
  const double size = std::abs(number);
  if (std::isnan(number)) return "-";
  if (size >= 1000) return fmt::format("{:.0f}", number);
  if (size >= 100) return fmt::format("{:.1f}", number);
  if (size >= 1) return fmt::format("{:.2f}", number);
  return fmt::format("{:.3g}", number);
}

std::string bytes_text(double bytes) {
  constexpr std::array units = {"B", "KiB", "MiB", "GiB", "TiB"};
  if (std::isnan(bytes)) return "-";
  if (bytes >= 0x1p64) return "unlimited";
  size_t unit = 0;
  for (; bytes >= 1024 && unit + 1 < units.size(); ++unit) bytes /= 1024;
  return fmt::format("{:.{}g} {}", bytes, bytes < 999.5 ? 3 : 4, units[unit]);
}

}  // namespace maniple
