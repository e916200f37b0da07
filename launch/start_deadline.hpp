// Until the ranks watch each other nobody does: a rank that never comes would let the others wait for ever,
// within MPI_Init or in what they agree on before the watch.
#pragma once

#include <kernels/support/file_descriptor.hpp>
#include <launch/launcher.hpp>
#include <parallel/world.hpp>
#include <runtime/control/watchdog.hpp>

#include <sys/types.h>

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <string>

namespace maniple {

// Which ranks of this node have come, while MPI cannot tell: each says in shared memory how far it is.
// This is one of them. Its place in the memory is its number on the node, which it holds locked: the system
// lets go of a lock when a process ends, whatever it dies of, and in containers too. The memory has a name
// only until all ranks of the node have come. Only SIGKILL of all before that leaves it behind, for a later
// start to remove.
class RollCall {
 public:
  // Where the launcher does not name the job step, or no memory can be had, nothing is known.
  explicit RollCall(const Launch& launch, const std::filesystem::path& folder = "/dev/shm");
  ~RollCall();
  RollCall(const RollCall&) = delete;
  RollCall& operator=(const RollCall&) = delete;

  void joined();  // it is past MPI_Init
  void forget_name() const;

  // One rank of a node: the lowest that is there and does not stand still. All, where nothing is known.
  bool speaks() const;
  // Lines that say which of the node's ranks are where.
  std::string text() const;

 private:
  // The last two take part.
  enum class State : int32_t { absent, died, stopped, watched, in_init, joined };
  struct Place {
    int64_t since = 0;  // 0: nobody came
    int32_t process = 0;
    int32_t rank = 0;
    State state = State::absent;
  };
  static constexpr off_t offset_of(int index) { return static_cast<off_t>(sizeof(Place)) * index; }
  Place place(int index) const;  // as it stands now
  bool tell(State state);        // false where there is no room

  const Launch launch_;
  const int index_;
  const std::string path_;
  FileDescriptor file_;
  Place mine_;
  bool known_ = false;  // otherwise nothing is
};

// Unless destroyed in time, says after a fifth of `limit`, a minute at most, which ranks of this node are
// missing, and ends this process by `on_fault` with ExitCode::fault. Rank 0 does so first; the others wait a
// little longer, so that it is said once. On other nodes one rank speaks.
class StartDeadline {
 public:
  StartDeadline(const Launch& launch, FaultHandler on_fault, std::chrono::milliseconds limit);
  void joined() { ranks_.joined(); }  // MPI_Init is over

 private:
  RollCall ranks_;
  Watchdog notice_;
  Watchdog end_;
};

}  // namespace maniple
