// Runs the threads of a block as fibers of the calling thread, in an order that changes from launch to
// launch.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <source_location>
#include <stdexcept>

namespace maniple::emulation {

struct Grid {
  int x = 1;
  int y = 1;
  int z = 1;
};

// What a device is said to run at once: few, so that a kernel that takes work in turns does so.
constexpr int resident_blocks = 5;

// Memory of a device that the host must not touch, but while a kernel runs.
class DeviceMemory {
 public:
  virtual ~DeviceMemory() = default;
  virtual void set_reachable(bool reachable) = 0;
};

// Decides in which order blocks and threads run: the n-th launch takes the n-th order from the seed on. One
// order in four goes by ascending, one by descending index, the others are random.
struct Order {
  uint64_t seed = 1;
  uint64_t launches = 0;
  DeviceMemory* memory = nullptr;
};

// A kernel did what hangs or is undefined on a device. what() names block, place and seed.
struct EmulationError : std::runtime_error {
  using std::runtime_error::runtime_error;
};

// Throws EmulationError, and what the kernel throws. Shared memory is exactly as large as asked for and
// begins as NaN.
void run(Grid grid, int threads, size_t shared_bytes, Order& order, const std::function<void()>& kernel);

// Of the fiber that asks.
int thread_index();
int block_threads();
Grid block_index();
Grid grid_size();
std::byte* shared_memory();

void block_barrier(std::source_location where);

// An operation of a whole warp: every lane brings its part; the last to come completes it for all 32. Usage:
//   if (auto* lanes = arrive_in_warp(&mine, where)) { ...; release_warp(); }
using Lanes = std::array<void*, 32>;
Lanes* arrive_in_warp(void* mine, std::source_location where);
void release_warp();

void copy_async(void* to_shared, const void* from_global, bool valid);
void commit_copies();
void wait_copies(int pending);

}  // namespace maniple::emulation
