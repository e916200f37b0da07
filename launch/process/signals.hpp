// What stops a job: SIGINT, SIGTERM, SIGUSR1 (Slurm's --signal) and the
// clock. Rank 0 alone decides; the other ranks end when rank 0 tells them.
#pragma once

#include <kernels/support/check.hpp>
#include <runtime/control/rank_activity.hpp>

#include <atomic>
#include <chrono>
#include <filesystem>
#include <string>

namespace maniple {

// Call first in main. Rank 0 notes SIGUSR1, which may come while weights are loaded.
// SIGTERM ends rank 0 after a moment: a launcher sends it when another rank has died,
// whose peers report the death first. The other ranks ignore all three signals.
void prepare_for_stops(int rank);

// Removes this file on SIGTERM, because a launcher that sends it soon
// sends SIGKILL. The text must live until the next call; null: none.
void remove_on_sigterm(const char* path);

// Whether the first SIGTERM came longer than `age` ago. Its sender may soon send SIGKILL.
bool sigterm_is_older_than(std::chrono::milliseconds age);
// A death this long after a SIGTERM is due to the SIGTERM. Rank 0 takes longer to die of one.
inline constexpr std::chrono::milliseconds sigterm_kills_after{500};

// Rank 0 only. While it lives, SIGINT and SIGTERM are noted too, and a second one ends the
// process. Before and after, SIGINT ends the process, and prepare_for_stops() handles SIGTERM.
class InterruptScope {
 public:
  InterruptScope();
  ~InterruptScope();
  InterruptScope(const InterruptScope&) = delete;
  InterruptScope& operator=(const InterruptScope&) = delete;

  // 0, or the signal that asked for a stop; SIGALRM stands for the clock.
  static const std::atomic<int>& flag();
  static void stop_by_clock();

  static std::string cause();          // "SIGUSR1", for messages
  static ExitCode interrupted_code();  // of a run that cannot be resumed: 130 after SIGINT, else 143
};

// Rank 0 only, one at a time. While it lives, SIGTERM first renames the file `marker`, if there is
// one, to `status`, because SIGKILL may follow soon: readers then see a stop that can be resumed. It
// does not rename if the file `fault` exists; a later fault report replaces `status`. If the SIGTERM
// ends this process, the exit code is `code`, and `phase` tells the other ranks that it has left.
class StoppedMarker {
 public:
  StoppedMarker(const std::filesystem::path& marker, const std::filesystem::path& status,
                const std::filesystem::path& fault, std::atomic<Phase>& phase, ExitCode code);
  ~StoppedMarker();
  StoppedMarker(const StoppedMarker&) = delete;
  StoppedMarker& operator=(const StoppedMarker&) = delete;

  // Both are safe in a signal handler.
  void put_in_place() const;
  void end_process_if_in_place() const;

 private:
  bool is_fault() const;

  std::string marker_, status_, fault_;
  std::atomic<Phase>& phase_;
  ExitCode code_;
  mutable std::atomic<bool> in_place_ = false;
};

// Opens closed standard streams, so no file or socket takes their numbers; writing to such
// a stdout fails. Ignores SIGPIPE and SIGXFSZ: then a write fails instead of killing us.
void protect_standard_streams();
// For a command without cleanup: a closed pipe ends it at once, silently, by SIGPIPE.
void end_on_closed_pipe();

}  // namespace maniple
