#include <launch/convert/work.hpp>

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <exception>
#include <mutex>
#include <thread>
#include <utility>

namespace maniple {
namespace {

struct Shared {
  std::mutex mutex;
  std::condition_variable changed;
  size_t next = 0, working = 0;
  std::vector<WorkDone> done;
  std::exception_ptr failure;
};

void work(const std::vector<size_t>& numbers, Shared& shared,
          const std::function<std::vector<uint64_t>(size_t)>& piece) {
  std::unique_lock lock(shared.mutex);
  while (shared.next < numbers.size() && !shared.failure) {
    const size_t number = numbers[shared.next++];
    lock.unlock();
    WorkDone done{number, {}};
    std::exception_ptr failure;
    try {
      done.hashes = piece(number);
    } catch (...) {
      failure = std::current_exception();
    }
    lock.lock();
    if (failure)
      shared.failure = failure;
    else
      shared.done.push_back(std::move(done));
  }
  --shared.working;
  shared.changed.notify_one();
}

}  // namespace

void work_on(std::vector<size_t> numbers, unsigned threads,
             const std::function<std::vector<uint64_t>(size_t)>& piece,
             const std::function<void(std::vector<WorkDone>)>& record) {
  Shared shared;
  shared.working = threads;
  std::vector<std::jthread> workers;
  for (unsigned i = 0; i < threads; ++i) workers.emplace_back([&] { work(numbers, shared, piece); });
  std::unique_lock lock(shared.mutex);
  for (bool all = false; !all;) {
    all = shared.changed.wait_for(lock, std::chrono::seconds(1), [&] { return shared.working == 0; });
    std::vector<WorkDone> done = std::exchange(shared.done, {});
    lock.unlock();
    try {
      if (!done.empty()) record(std::move(done));
    } catch (...) {
      const std::lock_guard again(shared.mutex);
      shared.failure = std::current_exception();
    }
    lock.lock();
  }
  lock.unlock();
  if (shared.failure) std::rethrow_exception(shared.failure);
}

unsigned threads_of(unsigned asked) {
  return asked > 0 ? asked : std::clamp(std::thread::hardware_concurrency(), 1U, 8U);
}

}  // namespace maniple
