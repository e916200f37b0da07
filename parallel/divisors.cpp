#include <fmt/core.h>
#include <parallel/divisors.hpp>

namespace maniple {

std::vector<int> small_divisors(int64_t n) {
  std::vector<int> divisors;
  for (int d = 1; d <= 64 && d <= n && divisors.size() < 8; ++d)
    if (n % d == 0) divisors.push_back(d);
  return divisors;
}

std::string alternatives(const std::vector<int>& numbers) {
  std::string text;
  for (size_t i = 0; i < numbers.size(); ++i) {
    const char* separator = i == 0 ? "" : i + 1 < numbers.size() ? ", " : " or ";
    text += fmt::format("{}{}", separator, numbers[i]);
  }
  return text;
}

}  // namespace maniple
