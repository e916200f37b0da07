// Memory that processes of a node map (POSIX shared memory, /dev/shm).
#pragma once

#include <parallel/transport.hpp>

#include <memory>
#include <string>

namespace maniple {

// Zeros at first. Null: there is no such memory. The last owner in a process unmaps it.
using SharedMemory = std::shared_ptr<std::byte>;

std::string drawn_shared_name();
// Reserves the memory at once: where /dev/shm is full, a write would otherwise end us by SIGBUS later.
SharedMemory create_shared_memory(const std::string& name, size_t bytes);
SharedMemory open_shared_memory(const std::string& name, size_t bytes);
void unlink_shared_memory(const std::string& name);

// Collective over ranks of one node: one memory of bytes_of_rank for each, one after the other, near the
// processor of each. Null on all ranks if it is not possible on one of them. Its file has no name any more
// when it takes up memory, so a rank that is killed leaves an empty file at most.
SharedMemory share_memory(Transport& ranks, size_t bytes_of_rank);

}  // namespace maniple
