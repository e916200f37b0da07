// What tells a job to stop: SIGINT, SIGTERM, SIGUSR1 (Slurm's --signal) and the clock. Rank 0 alone decides;
// the other ranks end when it says so.
#pragma once

#include <kernels/support/check.hpp>
#include <runtime/control/rank_activity.hpp>

#include <atomic>
#include <chrono>
#include <filesystem>
#include <string>

namespace maniple {

// What main does first. On rank 0 SIGUSR1, which may come while weights are loaded, is noted, and SIGTERM ends
// the process after a moment: a launcher sends it when another rank has died, and that is reported first. The
// other ranks ignore all three signals.
void prepare_for_stops(int rank);

// A file that is removed on SIGTERM, as a launcher that sends it soon sends SIGKILL. The text must outlive the
// call; null: none.
void remove_on_sigterm(const char* path);

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

// On rank 0, one at a time. While it lives, a SIGTERM first of all renames the file `marker`, where there is one,
// to `status`, as SIGKILL may follow soon: whoever reads it learns of a stop that can be resumed. Not where the
// file `fault` exists; a fault that is reported later replaces it. Where the SIGTERM ends this process, the exit
// code is `code`, and `phase` tells the other ranks that it has left.
class StoppedMarker {
 public:
  StoppedMarker(const std::filesystem::path& marker, const std::filesystem::path& status,
                const std::filesystem::path& fault, std::atomic<Phase>& phase, ExitCode code);
  ~StoppedMarker();
  StoppedMarker(const StoppedMarker&) = delete;
  StoppedMarker& operator=(const StoppedMarker&) = delete;

  // Both may be called in a signal handler.
  void put_in_place() const;
  void end_process_if_in_place() const;

 private:
  bool is_fault() const;

  std::string marker_, status_, fault_;
  std::atomic<Phase>& phase_;
  ExitCode code_;
  mutable std::atomic<bool> in_place_ = false;
};

// Fills closed standard streams, so that no file or socket takes their numbers: writing to such a stdout
// fails. A reader that leaves, or the limit of a file's size, makes writes fail instead of killing us.
void protect_standard_streams();
// For a command that has nothing to tidy up: a closed pipe ends it at once, silently, by SIGPIPE.
void end_on_closed_pipe();

}  // namespace maniple
