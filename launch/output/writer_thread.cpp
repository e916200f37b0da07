#include <launch/output/writer_thread.hpp>
#include <launch/run_directory/disk_wait.hpp>

#include <chrono>
#include <utility>

namespace maniple {
namespace {

constexpr std::chrono::milliseconds idle_interval{500};

}  // namespace

WriterThread::WriterThread(Task idle, std::atomic<uint32_t>* at_work)
    : idle_(std::move(idle)),
      at_work_(at_work),
      thread_([this](const std::stop_token& leaving) { work(leaving); }) {}

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

void WriterThread::run(std::deque<Task> tasks) {
  using Clock = std::chrono::steady_clock;
  const DiskWait wait(at_work_);
  Clock::time_point idled = Clock::now();
  for (; !tasks.empty(); tasks.pop_front()) {
    tasks.front()();
    wait.moved();
    if (Clock::now() - idled < idle_interval) continue;
    idle_();
    wait.moved();
    idled = Clock::now();
  }
  idle_();
}

void WriterThread::work(const std::stop_token& leaving) {
  std::unique_lock lock(mutex_);
  while (!leaving.stop_requested() && !failure_) {
    changed_.wait_for(lock, leaving, idle_interval, [this] { return !tasks_.empty(); });
    std::deque<Task> tasks = std::exchange(tasks_, {});
    busy_ = true;
    lock.unlock();
    std::exception_ptr failure;
    try {
      run(std::move(tasks));
    } catch (...) {
      failure = std::current_exception();
    }
    lock.lock();
    busy_ = false;
    failure_ = failure;
    changed_.notify_all();
  }
}

}  // namespace maniple
