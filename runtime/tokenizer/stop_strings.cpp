#include <runtime/tokenizer/stop_strings.hpp>

#include <algorithm>
#include <functional>
#include <kernels/support/check.hpp>
#include <utility>

namespace maniple {
namespace {

size_t advance(const std::string& text, const std::vector<size_t>& fallback, size_t matched, char byte) {
  while (matched > 0 && (matched == text.size() || text[matched] != byte)) matched = fallback[matched];
  return text[matched] == byte ? matched + 1 : 0;
}

std::vector<size_t> fallback_of(const std::string& text) {
  std::vector<size_t> fallback(text.size() + 1, 0);
  for (size_t length = 2; length <= text.size(); ++length)
    fallback[length] = advance(text, fallback, fallback[length - 1], text[length - 1]);
  return fallback;
}

}  // namespace

StopStringMatcher::StopStringMatcher(std::vector<std::string> stops) {
  std::ranges::stable_sort(stops, std::greater<>(), &std::string::size);
  for (auto& stop : stops) {
    if (stop.empty()) fail(ExitCode::input, "a stop string is empty; leave it out or give it a character");
    auto fallback = fallback_of(stop);
    stops_.push_back({std::move(stop), std::move(fallback)});
  }
}

void StopStringMatcher::take(char byte) {
  held_.push_back(byte);
  for (Stop& stop : stops_) {
    stop.matched = advance(stop.text, stop.fallback, stop.matched, byte);
    if (stop.matched < stop.text.size() || stopped()) continue;
    matched_ = stop.text;
    held_.resize(held_.size() - stop.text.size());
  }
}

std::string StopStringMatcher::push(std::string_view text) {
  if (stopped()) return {};
  for (size_t i = 0; i < text.size() && !stopped(); ++i) take(text[i]);
  if (stopped()) return std::exchange(held_, {});
  size_t possible = 0;
  for (const Stop& stop : stops_) possible = std::max(possible, stop.matched);
  std::string released = held_.substr(0, held_.size() - possible);
  held_.erase(0, released.size());
  return released;
}

std::string StopStringMatcher::finish() { return std::exchange(held_, {}); }

}  // namespace maniple
