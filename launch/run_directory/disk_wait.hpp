// Shows in a counter (in the activity of a rank) whether a thread waits for the disk.
#pragma once

#include <atomic>
#include <cstdint>

namespace maniple {

// Makes a counter odd while it lives; one at a time per counter. Each moved()
// changes the counter: this distinguishes much work from one wait that does not end.
class DiskWait {
 public:
  explicit DiskWait(std::atomic<uint32_t>* counter) : counter_(counter) { add(1); }  // null: nobody watches
  ~DiskWait() { add(1); }
  DiskWait(const DiskWait&) = delete;
  DiskWait& operator=(const DiskWait&) = delete;

  void moved() const { add(2); }

 private:
  void add(uint32_t count) const {
    if (counter_) *counter_ += count;
  }

  std::atomic<uint32_t>* counter_;
};

}  // namespace maniple
