// Independent pieces of work on a few threads.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

namespace maniple {

struct WorkDone {
  size_t number = 0;  // of the piece
  std::vector<uint64_t> hashes;
};

// Runs piece(number) for all numbers. Gives what is done to `record` on this thread, at least once a second and at the end,
// also before it throws the first exception of a piece.
void work_on(std::vector<size_t> numbers, unsigned threads,
             const std::function<std::vector<uint64_t>(size_t)>& piece,
             const std::function<void(std::vector<WorkDone>)>& record);

// 0: as many as the machine has, at most 8.
unsigned threads_of(unsigned asked);

}  // namespace maniple
