#include <launch/tools/convert/work.hpp>

#include <algorithm>
#include <exception>
#include <mutex>
#include <thread>
#include <vector>

namespace maniple {

void work_on(size_t count, unsigned threads, const std::function<void(size_t)>& piece) {
  if (threads == 0) threads = std::clamp(std::thread::hardware_concurrency(), 1U, 8U);
  std::mutex mutex;
  size_t next = 0;
  std::exception_ptr failure;
  const auto work = [&] {
    std::unique_lock lock(mutex);
    while (next < count && !failure) {
      const size_t number = next++;
      lock.unlock();
      std::exception_ptr own;
      try {
        piece(number);
      } catch (...) {
        own = std::current_exception();
      }
      lock.lock();
      if (!failure) failure = own;
    }
  };
  {
    std::vector<std::jthread> workers;
    for (unsigned i = 0; i < threads; ++i) workers.emplace_back(work);
  }
  if (failure) std::rethrow_exception(failure);
}

}  // namespace maniple
