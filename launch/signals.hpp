// Ctrl-C and SIGTERM, and what must hold before main does anything.
#pragma once

#include <atomic>

namespace maniple {

// While it lives, the first SIGINT or SIGTERM stores its number in flag() and the second ends the process; or
// both are ignored, on ranks that end when rank 0 says so. Before and after, signals do what they always do.
class InterruptScope {
 public:
  enum class Reaction { note, ignore };
  explicit InterruptScope(Reaction reaction);
  ~InterruptScope();
  InterruptScope(const InterruptScope&) = delete;
  InterruptScope& operator=(const InterruptScope&) = delete;

  static const std::atomic<int>& flag();
};

// Fills closed standard streams, so that no file or socket takes their numbers: writing to such a stdout
// fails. A reader that leaves, or the limit of a file's size, makes writes fail instead of killing us.
void protect_standard_streams();

}  // namespace maniple
