#include <launch/writer_thread.hpp>

#include <chrono>
#include <utility>

namespace maniple {

WriterThread::WriterThread(Task idle, std::atomic<uint32_t>* at_work)
    : idle_(std::move(idle)), at_work_(at_work), thread_([this] { work(); }) {}

WriterThread::~WriterThread() {
  {
    const std::lock_guard lock(mutex_);
    leaving_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

void WriterThread::post(Task task) {
  {
    const std::lock_guard lock(mutex_);
    rethrow();
    tasks_.push_back(std::move(task));
  }
  changed_.notify_all();
}

void WriterThread::drain() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [this] { return failure_ || (tasks_.empty() && !busy_); });
  rethrow();
}

size_t WriterThread::waiting() const {
  const std::lock_guard lock(mutex_);
  return tasks_.size();
}

void WriterThread::rethrow() {
  if (failure_) std::rethrow_exception(failure_);
}

void WriterThread::count() {
  if (at_work_) ++*at_work_;
}

void WriterThread::work() {
  std::unique_lock lock(mutex_);
  while (!leaving_ && !failure_) {
    changed_.wait_for(lock, std::chrono::milliseconds(500), [this] { return leaving_ || !tasks_.empty(); });
    std::deque<Task> tasks = std::exchange(tasks_, {});
    busy_ = true;
    lock.unlock();
    count();
    std::exception_ptr failure;
    try {
      for (const Task& task : tasks) task();
      idle_();
    } catch (...) {
      failure = std::current_exception();
    }
    tasks.clear();
    count();
    lock.lock();
    busy_ = false;
    failure_ = failure;
    changed_.notify_all();
  }
}

}  // namespace maniple
