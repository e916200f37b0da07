// Finds races in the launches of kernels by happens-before, whatever the order of fibers: two accesses of a byte, one of them a write,
// that nothing orders (Flanagan, Freund: FastTrack, 2009). Exact for shared and global memory of a launch. Also finds reads of shared
// memory that nobody wrote, and copies that nobody waits for before the block ends.
//
// The kernels are compiled with -fsanitize=thread, so that each access calls a function, and linked with this file's functions of
// these names instead of the sanitizer's. What orders:
//   a barrier: all threads of the block; synchronize_warp: the lanes of the warp. Other warp operations do not, as the
//     CUDA C++ Programming Guide says of shuffles and votes ("do not imply a memory barrier").
//   a wait for copies: the copies before it and the waiting thread. Each thread's copies are those of another thread.
//   a fence, then an atomic operation on global memory, then in another block one on the same address, then a fence. Barriers may stand
//     between these and the accesses, so the threads of a block may share them: a fence covers what its thread knew.
//   two atomic operations on one address do not race, and what their thread does there later follows both.
#pragma once

#include <emulation/emulator.hpp>

#include <compare>
#include <memory>
#include <set>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

namespace maniple::emulation {

// A place of a kernel that orders something. kind: barrier, warp barrier, wait or fence.
struct Site {
  std::string function, kind;
  uint32_t line = 0;
  auto operator<=>(const Site&) const = default;
};

// Observes all launches of its lifetime. Theirs is one thread of the host. A launch with a race throws EmulationError.
class RaceDetector : public Observer {
 public:
  // names_lines: in messages, by addr2line, which takes a moment.
  explicit RaceDetector(bool names_lines = true) : names_lines_(names_lines) { observer = this; }
  ~RaceDetector() override { observer = nullptr; }
  RaceDetector(const RaceDetector&) = delete;
  RaceDetector& operator=(const RaceDetector&) = delete;

  // Where the launches so far came.
  const std::set<Site>& sites() const { return sites_; }
  // Threads meet or wait at this site as ever, but it orders nothing.
  void ignore(Site site) { ignored_ = std::move(site); }

  void begin_launch(int threads, std::span<const std::byte> stacks) override;
  void begin_block(Grid index, std::span<const std::byte> shared) override;
  void end_block() override;
  void judge() override;
  void end_launch() override { launched_ = false; }
  void met(int first, int count, std::source_location where) override;
  void fenced(int thread, std::source_location where) override;
  void copies(int thread, const void* to, const void* from, const void* caller) override;
  void committed(int thread) override { ++threads_[static_cast<size_t>(thread)].groups; }
  void waited(int thread, int pending, std::source_location where) override;
  void begin_atomic(const void* place) override;
  void end_atomic() override { atomic_ = false; }
  void begin_acting(int lane) override { acting_ = thread_index() / 32 * 32 + lane; }
  void end_acting() override { acting_ = -1; }

  // Of the running thread, by an instruction of a kernel at `caller`.
  virtual void access(const void* place, size_t bytes, bool writes, const void* caller);

 private:
  using Time = uint32_t;  // 0: never
  // By id. Each block of a launch has two ids for each thread: its own, then the one of its copies, whose times are groups.
  using Times = std::vector<Time>;
  struct Knowledge {
    Times here, earlier;  // of this block and of those before
  };
  using Known = std::shared_ptr<const Knowledge>;  // by many threads after a barrier
  struct Thread {
    Known known;    // of others
    Time time = 1;  // its own
    Time groups = 0, arrived = 0, last_copied = 0;
    Known published;  // by a fence
    Known acquired;   // by an atomic operation, until a fence
  };
  struct Access {
    uint32_t id = 0;
    Time time : 31 = 0;
    bool atomic : 1 = false;
    const void* caller = nullptr;
  };
  struct Cell {
    Access write, read;
    std::unique_ptr<std::vector<Access>> reads;  // the first beside `read`, where no order has one last
  };
  using Page = std::vector<Cell>;

  bool counts(const char* kind, std::source_location where);
  bool precedes(const Access& access, size_t thread) const;
  Knowledge all_known(size_t thread) const;
  void access(size_t thread, const Access& mine, const void* place, size_t bytes, bool writes);
  void read(size_t thread, const Access& mine, Cell& cell, const void* place);
  void write(size_t thread, const Access& mine, Cell& cell, const void* place);
  Cell& cell_of(const std::byte* place);
  bool is_shared(const void* place) const;
  void found(const char* earlier, const Access& before, const char* later, const Access& now,
             const void* place);
  std::string name_of(const Access& access) const;

  const bool names_lines_;
  std::set<Site> sites_;
  Site ignored_;
  std::set<std::string> races_;
  bool launched_ = false, atomic_ = false;
  int acting_ = -1;
  std::span<const std::byte> stacks_, shared_;
  std::vector<Grid> blocks_;  // in the order in which they ran
  uint32_t first_id_ = 0;
  std::vector<Thread> threads_;
  Page shared_cells_;
  std::unordered_map<uintptr_t, Page> pages_;
  std::unordered_map<const void*, Times> published_;  // at the addresses of atomic operations
};

}  // namespace maniple::emulation
