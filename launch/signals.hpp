// What tells a job to stop: SIGINT, SIGTERM, SIGUSR1 (Slurm's --signal) and the clock. Rank 0 alone decides;
// the other ranks end when it says so.
#pragma once

#include <kernels/support/check.hpp>

#include <atomic>
#include <chrono>
#include <string>

namespace maniple {

// What main does first. Rank 0: SIGUSR1, which may come while weights are loaded, is noted, and SIGTERM ends
// it after a moment, as a launcher sends it when another rank has died, which is to be told first; the others
// ignore all three signals.
void prepare_for_stops(int rank);

// The first one that this process got: who sent it may soon send SIGKILL.
bool sigterm_is_older_than(std::chrono::milliseconds age);

// On rank 0. While it lives, SIGINT and SIGTERM are noted too, and a second of them ends the process; before
// and after, they do what they always do.
class InterruptScope {
 public:
  InterruptScope();
  ~InterruptScope();
  InterruptScope(const InterruptScope&) = delete;
  InterruptScope& operator=(const InterruptScope&) = delete;

  // 0, or the signal to stop for; SIGALRM stands for the clock.
  static const std::atomic<int>& flag();
  static void stop_by_clock();

  static std::string cause();          // "SIGUSR1", for messages
  static ExitCode interrupted_code();  // of a run that cannot be resumed: 130 after SIGINT, else 143
};

// Fills closed standard streams, so that no file or socket takes their numbers: writing to such a stdout
// fails. A reader that leaves, or the limit of a file's size, makes writes fail instead of killing us.
void protect_standard_streams();

}  // namespace maniple
