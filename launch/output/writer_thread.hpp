// Runs tasks that may wait for a disk, in order, on a separate thread, so the caller never waits.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <exception>
#include <functional>
#include <mutex>
#include <thread>

namespace maniple {

class WriterThread {
 public:
  using Task = std::function<void()>;

  // idle: called when all tasks are done, and about twice a second. at_work (may be
  // null): a DiskWait counter, odd from the first task to the idle after the last. The end drops waiting tasks.
  explicit WriterThread(Task idle, std::atomic<uint32_t>* at_work = nullptr);

  // Throws what an earlier task threw; no task runs after that one.
  void post(Task task);
  // Returns when all tasks are done, idle included. Throws like post.
  void drain();
  size_t waiting() const;

 private:
  void work(const std::stop_token& leaving);
  void run(std::deque<Task> tasks);
  void rethrow();

  Task idle_;
  std::atomic<uint32_t>* at_work_;
  mutable std::mutex mutex_;
  std::condition_variable_any changed_;
  std::deque<Task> tasks_;
  bool busy_ = false;
  std::exception_ptr failure_;
  std::jthread thread_;  // last: it uses the others
};

}  // namespace maniple
