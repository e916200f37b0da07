// Ends generated text before the first stop string, however the text is cut into pushes.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace maniple {

// The match that is complete first wins; of several that end together, the longest. Text and stop strings are
// UTF-8. The caller pushes whole characters; the released text then consists of whole characters too.
// Constant time per byte and stop string (Knuth-Morris-Pratt).
class StopStringMatcher {
 public:
  explicit StopStringMatcher(std::vector<std::string> stops);  // throws Error (input) on an empty stop string

  // Returns text in which no stop string can begin any more. After a match: empty.
  std::string push(std::string_view text);
  std::string finish();  // what was held back, unless stopped

  bool stopped() const { return !matched_.empty(); }
  const std::string& matched() const { return matched_; }  // empty before a match

 private:
  struct Stop {
    std::string text;
    std::vector<size_t> fallback;  // by length of a matched prefix: the next shorter one that also fits
    size_t matched = 0;            // how much of it the text now ends with
  };
  void take(char byte);

  std::vector<Stop> stops_;  // longest first
  std::string held_;
  std::string matched_;
};

}  // namespace maniple
