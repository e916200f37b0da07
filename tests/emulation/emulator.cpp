#include <emulation/emulator.hpp>

#include <fmt/format.h>
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
#include <sys/mman.h>

#include <algorithm>
#include <cstring>
#include <deque>
#include <exception>
#include <map>
#include <memory>
#include <numeric>
#include <random>
#include <span>
#include <string>
#include <utility>
#include <vector>

// Saves the callee-saved registers on the old stack, leaves its end
// in *from, continues where `to` was left. (System V ABI for x86-64)
extern "C" void maniple_switch_stack(void** from, void* to);
asm(R"(
.pushsection .text
.type maniple_switch_stack, @function
maniple_switch_stack:
  pushq %rbp
  pushq %rbx
  pushq %r12
  pushq %r13
  pushq %r14
  pushq %r15
  movq %rsp, (%rdi)
  movq %rsi, %rsp
  popq %r15
  popq %r14
  popq %r13
  popq %r12
  popq %rbx
  popq %rbp
  ret
.size maniple_switch_stack, .-maniple_switch_stack
.popsection
)");

namespace maniple::emulation {

namespace {

#ifdef __SANITIZE_ADDRESS__
constexpr size_t stack_bytes = 256 << 10;
#else
constexpr size_t stack_bytes = 64 << 10;
#endif
constexpr size_t page = 4096;
constexpr int max_threads = 1024;

// The address sanitizer must know which stack is in use.
void begin_switch([[maybe_unused]] void** saved, [[maybe_unused]] const void* bottom,
                  [[maybe_unused]] size_t bytes) {
#ifdef __SANITIZE_ADDRESS__
  __sanitizer_start_switch_fiber(saved, bottom, bytes);
#endif
}
void end_switch([[maybe_unused]] void* saved, [[maybe_unused]] const void** bottom,
                [[maybe_unused]] size_t* bytes) {
#ifdef __SANITIZE_ADDRESS__
  __sanitizer_finish_switch_fiber(saved, bottom, bytes);
#endif
}

// Stacks of all fibers, each with a page in front that faults.
class Stacks {
 public:
  Stacks() {
    void* const memory = mmap(nullptr, max_threads * stack_bytes, PROT_READ | PROT_WRITE,
                              MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory == MAP_FAILED) throw std::bad_alloc();
    memory_ = static_cast<std::byte*>(memory);
    for (int i = 0; i < max_threads; ++i) mprotect(bottom(i), page, PROT_NONE);
  }
  ~Stacks() { munmap(memory_, max_threads * stack_bytes); }
  Stacks(const Stacks&) = delete;
  Stacks& operator=(const Stacks&) = delete;

  std::span<const std::byte> all() const { return {memory_, max_threads * stack_bytes}; }
  std::byte* bottom(int index) const { return memory_ + static_cast<size_t>(index) * stack_bytes; }

 private:
  std::byte* memory_;
};

struct Copy {
  void* to;
  const void* from;
  bool valid;
};

struct Thread {
  int index = 0;
  void* stack = nullptr;  // where it continues
  void* saved = nullptr;  // of the address sanitizer
  bool finished = false;
  std::source_location where;             // of the barrier or warp operation that it waits for
  std::vector<std::vector<Copy>> groups;  // committed, oldest first
  std::vector<Copy> open;
};

struct Warp {
  Lanes lanes{};
  int arrived = 0;
  std::source_location where;
};

std::string name_of(std::source_location where) {
  return fmt::format(
      "{}:{}",
      std::string_view(where.file_name()).substr(std::string_view(where.file_name()).find_last_of('/') + 1),
      where.line());
}
bool same_place(std::source_location a, std::source_location b) {
  return a.line() == b.line() && a.column() == b.column() && std::strcmp(a.file_name(), b.file_name()) == 0;
}

class Block;
constinit thread_local Block* current_block = nullptr;

class Block {
 public:
  Block(Grid grid, int threads, std::span<std::byte> shared, const std::function<void()>& kernel)
      : grid_(grid),
        threads_(static_cast<size_t>(threads)),
        warps_(threads_.size() / 32),
        shared_(shared),
        kernel_(kernel) {}

  void run(Grid index, uint64_t order) {
    index_ = index;
    order_ = order;
    random_.seed(order);
    std::memset(shared_.data(), 0xff, shared_.size());
    if (observer) observer->begin_block(index, shared_);
    start_threads();
    while (!runnable_.empty()) resume(next());
    if (std::any_of(threads_.begin(), threads_.end(), [](const Thread& t) { return !t.finished; })) stuck();
    if (observer) observer->end_block();
  }

  // --- on a fiber ---
  const Thread& running() const { return *running_; }
  int threads() const { return static_cast<int>(threads_.size()); }
  Grid index() const { return index_; }
  Grid grid() const { return grid_; }
  std::byte* shared() const { return shared_.data(); }
  static Stacks& stacks() {
    static thread_local Stacks all;
    return all;
  }

  void barrier(std::source_location where) {
    check_place(where, at_barrier_, barrier_where_);
    if (++at_barrier_ < threads_.size()) return wait(where);
    at_barrier_ = 0;
    if (observer) observer->met(0, threads(), where);
    for (Thread& thread : threads_)
      if (&thread != running_) runnable_.push_back(&thread);
  }

  Lanes* arrive_in_warp(void* mine, std::source_location where) {
    Warp& warp = warp_of(*running_);
    check_place(where, static_cast<size_t>(warp.arrived), warp.where);
    warp.lanes[static_cast<size_t>(running_->index % 32)] = mine;
    if (++warp.arrived == 32) return &warp.lanes;
    wait(where);
    return nullptr;
  }
  void release_warp() {
    warp_of(*running_).arrived = 0;
    const size_t first = static_cast<size_t>(running_->index / 32 * 32);
    for (size_t i = first; i < first + 32; ++i)
      if (&threads_[i] != running_) runnable_.push_back(&threads_[i]);
  }

  // The destination is NaN until the wait: the device may write it at any time in between.
  void copy_async(const Copy& copy) {
    if ((reinterpret_cast<uintptr_t>(copy.to) | reinterpret_cast<uintptr_t>(copy.from)) % 16 != 0)
      fail("an asynchronous copy between addresses that are no multiples of 16");
    if (copy.to < shared_.data() || static_cast<std::byte*>(copy.to) + 16 > shared_.data() + shared_.size())
      fail("an asynchronous copy to outside of the shared memory");
    std::memset(copy.to, 0xff, 16);
    running_->open.push_back(copy);
  }
  void commit_copies() { running_->groups.push_back(std::exchange(running_->open, {})); }
  void wait_copies(size_t pending) {
    auto& groups = running_->groups;
    while (groups.size() > pending) {
      for (const Copy& copy : groups.front())
        if (copy.valid)
          std::memcpy(copy.to, copy.from, 16);
        else
          std::memset(copy.to, 0, 16);
      groups.erase(groups.begin());
    }
  }

 private:
  void start_threads() {
    runnable_.clear();
    at_barrier_ = 0;
    std::fill(warps_.begin(), warps_.end(), Warp{});
    for (size_t i = 0; i < threads_.size(); ++i) {
      threads_[i] = Thread{};
      threads_[i].index = static_cast<int>(i);
      threads_[i].stack = fresh_stack(threads_[i].index);
      runnable_.push_back(&threads_[i]);
    }
  }

  // A stack as maniple_switch_stack leaves it: six registers, then the return address. At the entry of a
  // function the stack pointer is 8 past a multiple of 16.
  void* fresh_stack(int index) {
    ASAN_UNPOISON_MEMORY_REGION(stacks_.bottom(index) + page, stack_bytes - page);
    void** const top = reinterpret_cast<void**>(stacks_.bottom(index) + stack_bytes) - 8;
    std::fill_n(top, 8, nullptr);
    top[6] = reinterpret_cast<void*>(&Block::thread_main);
    return top;
  }

  static void thread_main() {
    Block& block = *current_block;
    end_switch(nullptr, &block.main_bottom_, &block.main_bytes_);
    try {
      block.kernel_();
    } catch (...) {
      block.error_ = std::current_exception();
    }
    block.running_->finished = true;
    begin_switch(nullptr, block.main_bottom_, block.main_bytes_);
    maniple_switch_stack(&block.running_->stack, block.main_stack_);
  }

  Thread& next() {
    size_t place = 0;
    if (order_ % 4 == 1) place = runnable_.size() - 1;
    if (order_ % 4 > 1) place = random_() % runnable_.size();
    Thread& chosen = *runnable_[place];
    runnable_[place] = runnable_.front();
    if (order_ % 4 == 1)
      runnable_.pop_back();
    else
      runnable_.pop_front();
    return chosen;
  }

  void resume(Thread& thread) {
    running_ = &thread;
    void* saved = nullptr;
    begin_switch(&saved, stacks_.bottom(thread.index), stack_bytes);
    maniple_switch_stack(&main_stack_, thread.stack);
    end_switch(saved, nullptr, nullptr);
    if (error_) std::rethrow_exception(std::exchange(error_, nullptr));
  }

  void wait(std::source_location where) {
    running_->where = where;
    Thread& self = *running_;
    begin_switch(&self.saved, main_bottom_, main_bytes_);
    maniple_switch_stack(&self.stack, main_stack_);
    end_switch(self.saved, &main_bottom_, &main_bytes_);
  }

  Warp& warp_of(const Thread& thread) { return warps_[static_cast<size_t>(thread.index / 32)]; }

  // All threads that meet must be at one place of the source.
  void check_place(std::source_location where, size_t arrived, std::source_location& first) const {
    if (arrived == 0) first = where;
    if (!same_place(where, first))
      fail(fmt::format("thread {} came to {} while others wait at {}", running_->index, name_of(where),
                       name_of(first)));
  }

  [[noreturn]] void stuck() const {
    std::map<std::string, int> waiting;
    int returned = 0;
    for (const Thread& thread : threads_) thread.finished ? ++returned : ++waiting[name_of(thread.where)];
    std::string text = fmt::format("{} of {} threads returned", returned, threads_.size());
    for (const auto& [place, count] : waiting) text += fmt::format(", {} wait at {}", count, place);
    fail(text);
  }

  [[noreturn]] void fail(const std::string& what) const {
    throw EmulationError(
        fmt::format("block ({}, {}, {}), order {}: {}", index_.x, index_.y, index_.z, order_, what));
  }

  Stacks& stacks_ = stacks();

  Grid grid_, index_;
  uint64_t order_ = 0;
  std::minstd_rand random_;
  std::vector<Thread> threads_;
  std::vector<Warp> warps_;
  std::span<std::byte> shared_;
  const std::function<void()>& kernel_;
  std::deque<Thread*> runnable_;
  size_t at_barrier_ = 0;
  std::source_location barrier_where_;
  Thread* running_ = nullptr;
  void* main_stack_ = nullptr;
  const void* main_bottom_ = nullptr;
  size_t main_bytes_ = 0;
  std::exception_ptr error_;
};

std::vector<Grid> blocks_of(Grid grid, uint64_t order) {
  std::vector<Grid> blocks;
  for (int z = 0; z < grid.z; ++z)
    for (int y = 0; y < grid.y; ++y)
      for (int x = 0; x < grid.x; ++x) blocks.push_back({x, y, z});
  if (order % 4 == 1) std::reverse(blocks.begin(), blocks.end());
  if (order % 4 > 1)
    std::shuffle(blocks.begin(), blocks.end(), std::minstd_rand(static_cast<uint32_t>(order)));
  return blocks;
}

struct AlignedDelete {
  void operator()(std::byte* memory) const { ::operator delete[](memory, std::align_val_t{128}); }
};

}  // namespace

void run(Grid grid, int threads, size_t shared_bytes, Order& order, const std::function<void()>& kernel) {
  if (!is_possible(grid, threads, shared_bytes))
    throw EmulationError(fmt::format("a launch of {} x {} x {} blocks of {} threads and {} bytes", grid.x,
                                     grid.y, grid.z, threads, shared_bytes));
  const uint64_t number = order.seed + order.launches++;
  if (order.dry) return;
  const std::unique_ptr<std::byte, AlignedDelete> shared(
      static_cast<std::byte*>(::operator new[](shared_bytes, std::align_val_t{128})));
  Block block(grid, threads, {shared.get(), shared_bytes}, kernel);
  struct Running {
    Running(Block& block, DeviceMemory* memory) : memory_(memory) {
      current_block = &block;
      if (memory_) memory_->set_reachable(true);
      if (observer) observer->begin_launch(block.threads(), Block::stacks().all());
    }
    ~Running() {
      if (observer) observer->end_launch();
      if (memory_) memory_->set_reachable(false);
      current_block = nullptr;
    }
    DeviceMemory* memory_;
  } running(block, order.memory);
  for (const Grid& index : blocks_of(grid, number)) block.run(index, number);
  if (observer) observer->judge();
}

int thread_index() { return current_block->running().index; }
int block_threads() { return current_block->threads(); }
Grid block_index() { return current_block->index(); }
Grid grid_size() { return current_block->grid(); }
std::byte* shared_memory() { return current_block->shared(); }

void block_barrier(std::source_location where) { current_block->barrier(where); }
Lanes* arrive_in_warp(void* mine, std::source_location where) {
  return current_block->arrive_in_warp(mine, where);
}
void release_warp() { current_block->release_warp(); }
void warp_barrier(std::source_location where) {
  if (observer) observer->met(thread_index() / 32 * 32, 32, where);
}

void memory_fence(std::source_location where) {
  if (observer) observer->fenced(thread_index(), where);
}
void copy_async(void* to_shared, const void* from_global, bool valid) {
  current_block->copy_async({to_shared, from_global, valid});
  if (observer)
    observer->copies(thread_index(), to_shared, valid ? from_global : nullptr, __builtin_return_address(0));
}
void commit_copies() {
  current_block->commit_copies();
  if (observer) observer->committed(thread_index());
}
void wait_copies(int pending, std::source_location where) {
  current_block->wait_copies(static_cast<size_t>(pending));
  if (observer) observer->waited(thread_index(), pending, where);
}

}  // namespace maniple::emulation
