// Runs the threads of a block as fibers of the calling thread, in an order that changes from launch to
// launch.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <source_location>
#include <span>
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
  bool dry = false;  // launches are judged and do not run
};

// A kernel did something that hangs or is undefined on a device. what() names block, order and place.
struct EmulationError : std::runtime_error {
  using std::runtime_error::runtime_error;
};

// Learns what the threads of each launch do, as the fibers do it. Threads are those of the running block; `where`: in the kernel.
class Observer {
 public:
  virtual ~Observer() = default;
  virtual void begin_launch(int threads, std::span<const std::byte> stacks) = 0;
  virtual void begin_block(Grid index, std::span<const std::byte> shared) = 0;
  virtual void end_block() = 0;   // its threads have returned
  virtual void judge() = 0;       // a whole launch: throws EmulationError
  virtual void end_launch() = 0;  // or it failed
  // Threads first, first + 1, ... have come to a barrier, of the block or of a warp.
  virtual void met(int first, int count, std::source_location where) = 0;
  virtual void fenced(int thread, std::source_location where) = 0;
  // from: null where the copy is not valid. caller: an address in the kernel.
  virtual void copies(int thread, const void* to, const void* from, const void* caller) = 0;
  virtual void committed(int thread) = 0;
  virtual void waited(int thread, int pending, std::source_location where) = 0;
  // Until `end`, accesses are those of an atomic operation, or another thread's of the running one's warp.
  virtual void begin_atomic(const void* place) = 0;
  virtual void end_atomic() = 0;
  virtual void begin_acting(int lane) = 0;
  virtual void end_acting() = 0;
};
inline Observer* observer = nullptr;

// Whether every GPU takes such a launch: of 8.6 and 8.9, which have the least shared memory, too. An empty grid launches nothing.
constexpr bool is_possible(const Grid& grid, int threads, size_t shared_bytes) {
  return grid.x >= 0 && 0 <= grid.y && grid.y <= 65535 && 0 <= grid.z && grid.z <= 65535 && 0 < threads &&
         threads <= 1024 && threads % 32 == 0 && shared_bytes <= size_t{99} << 10;
}

// Throws EmulationError, or the exception of the kernel. Shared
// memory has exactly the requested size and starts as NaN.
void run(Grid grid, int threads, size_t shared_bytes, Order& order, const std::function<void()>& kernel);

// A thread of a kernel that may start before the one before it has ended. kernel(waited) sets *waited.
template <typename Kernel>
void run_waiting(Kernel kernel) {
  bool waited = false;
  kernel(&waited);
  if (!waited) throw EmulationError("a thread has ended and has not waited for the kernel before");
}

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
void warp_barrier(std::source_location where);  // by the lane that completes it

void memory_fence(std::source_location where);
void copy_async(void* to_shared, const void* from_global, bool valid);
void commit_copies();
void wait_copies(int pending, std::source_location where);

}  // namespace maniple::emulation
