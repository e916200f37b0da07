// Which ranks of this node have started, before MPI can tell. Each rank writes its state into shared
// memory, into the entry with its number on the node, and locks that entry. The system releases the lock
// when the process ends, for whatever reason, in containers too. The memory has a name only until all ranks
// of the node have started. SIGKILL of all ranks before that leaves it behind; a later start removes it.
#pragma once

#include <kernels/support/file_descriptor.hpp>
#include <launch/process/launcher.hpp>

#include <sys/types.h>

#include <cstdint>
#include <filesystem>
#include <string>

namespace maniple {

class RollCall {
 public:
  // Enters this rank. If the launcher does not name the job step,
  // or there is no shared memory, nothing is known of the ranks.
  explicit RollCall(const Launch& launch, const std::filesystem::path& folder = "/dev/shm");
  ~RollCall();
  RollCall(const RollCall&) = delete;
  RollCall& operator=(const RollCall&) = delete;

  void joined();    // this rank is past MPI_Init
  void reported();  // this rank has reported for its node, and ends: nobody takes over
  void forget_name() const;

  // Whether this rank reports for its node: the lowest that is alive
  // and not stopped does. If nothing is known, every rank does.
  bool reports() const;
  // Lines that list the node's ranks by state.
  std::string text() const;

 private:
  // in_init and joined: alive and not stopped. watched and reported outlast the process.
  enum class State : int32_t { absent, died, stopped, watched, in_init, joined, reported };
  struct Entry {
    int64_t since = 0;  // 0: no rank came
    int32_t process = 0;
    int32_t rank = 0;
    State state = State::absent;
  };
  static constexpr off_t offset_of(int index) { return static_cast<off_t>(sizeof(Entry)) * index; }
  Entry entry(int index) const;  // as it is now
  bool write(State state);       // false if there is no room

  const Launch launch_;
  const int index_;
  const std::string path_;
  FileDescriptor file_;
  Entry mine_;
  bool known_ = false;  // false: nothing is known
};

}  // namespace maniple
