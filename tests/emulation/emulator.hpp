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

// Blocks that the emulated device runs at once: few, so that kernels that take work in turns do so.
constexpr int resident_blocks = 5;

// Device memory, which the host must not touch except while a kernel runs.
class DeviceMemory {
 public:
  virtual ~DeviceMemory() = default;
  virtual void set_reachable(bool reachable) = 0;
};

// The order of blocks and threads: the n-th launch takes the n-th order from the seed on. One order in four
// is ascending, one descending by index, the others are random.
struct Order {
  uint64_t seed = 1;
  uint64_t launches = 0;
  DeviceMemory* memory = nullptr;
};

// A kernel did something that hangs or is undefined on a device. what() names block, order and place.
struct EmulationError : std::runtime_error {
  using std::runtime_error::runtime_error;
};

// Throws EmulationError, or the exception of the kernel. Shared
// memory has exactly the requested size and starts as NaN.
void run(Grid grid, int threads, size_t shared_bytes, Order& order, const std::function<void()>& kernel);

// Of the calling fiber.
int thread_index();
int block_threads();
Grid block_index();
Grid grid_size();
std::byte* shared_memory();

void block_barrier(std::source_location where);

// An operation of a whole warp: every lane passes its part;
// the last lane to arrive completes it for all 32. Usage:
//   if (auto* lanes = arrive_in_warp(&mine, where)) { ...; release_warp(); }
using Lanes = std::array<void*, 32>;
Lanes* arrive_in_warp(void* mine, std::source_location where);
void release_warp();

void copy_async(void* to_shared, const void* from_global, bool valid);
void commit_copies();
void wait_copies(int pending);

}  // namespace maniple::emulation
