// What tells a job to stop: SIGINT, SIGTERM, SIGUSR1 (Slurm's --signal) and the clock. Rank 0 alone decides;
// the other ranks end when it says so.
#pragma once

#include <kernels/support/check.hpp>
#include <runtime/control/pulse.hpp>

#include <atomic>
#include <chrono>
#include <filesystem>
#include <string>

namespace maniple {

// What main does first. Rank 0: SIGUSR1, which may come while weights are loaded, is noted, and SIGTERM ends
// it after a moment, as a launcher sends it when another rank has died, which is to be told first; the others
// ignore all three signals.
void prepare_for_stops(int rank);

// A file that goes with this process where a launcher ends it by SIGTERM, and soon by SIGKILL. The text must
// stay; null: none.
void take_along(const char* path);

// The first one that this process got: who sent it may soon send SIGKILL.
bool sigterm_is_older_than(std::chrono::milliseconds age);
// A death so long after a SIGTERM comes from it. Rank 0, where SIGTERM ends it, takes longer to die.
inline constexpr std::chrono::milliseconds sigterm_kills_after{500};

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

// On rank 0, one at a time. While it lives, a SIGTERM puts `word`, if it is there, in the place of `status`
// before anything else is done, as SIGKILL may follow soon: who reads it learns of a stop that can be
// resumed. Not where `fault` says that it was none; a fault that is told later replaces it. Where the SIGTERM
// ends this process, the exit code is `code`, and to the other ranks it has then left.
class LastWord {
 public:
  LastWord(const std::filesystem::path& word, const std::filesystem::path& status,
           const std::filesystem::path& fault, std::atomic<Phase>& phase, ExitCode code);
  ~LastWord();
  LastWord(const LastWord&) = delete;
  LastWord& operator=(const LastWord&) = delete;

  // What a signal handler may do.
  void leave() const;
  void end_process_if_left() const;

 private:
  bool is_fault() const;

  std::string word_, status_, fault_;
  std::atomic<Phase>& phase_;
  ExitCode code_;
  mutable std::atomic<bool> left_ = false;
};

// Fills closed standard streams, so that no file or socket takes their numbers: writing to such a stdout
// fails. A reader that leaves, or the limit of a file's size, makes writes fail instead of killing us.
void protect_standard_streams();
// Of a command that has nothing to tidy up: a reader that leaves ends it at once, silently, by SIGPIPE.
void end_with_the_reader();

}  // namespace maniple
