// Which ranks of this node have come, while MPI cannot tell: each says in shared memory how far it is.
#pragma once

#include <kernels/support/file_descriptor.hpp>
#include <launch/launcher.hpp>

#include <filesystem>
#include <string>

namespace maniple {

// One process. Its place in the memory is its number on the node, which it holds locked: the system lets go
// of a lock when a process ends, whatever it dies of, and in containers too. The memory has a name only until
// all ranks of the node have come. Only SIGKILL of all before that leaves it behind, for a later start to
// remove.
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
  struct Place;
  // The last two take part.
  enum class State { absent, died, stopped, watched, in_init, joined };
  State state(int place) const;
  int places_known() const;
  void enter();

  const Launch launch_;
  const int mine_;
  const std::string path_;
  FileDescriptor file_;
  Place* places_ = nullptr;  // null: nothing is known
};

}  // namespace maniple
