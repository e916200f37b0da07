#include <kernels/cpu/thread_pool.hpp>
#include <kernels/support/host_memory.hpp>

#include <sched.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <exception>
#include <mutex>
#include <optional>
#include <thread>
#include <vector>

namespace maniple {

namespace {

using Clock = std::chrono::steady_clock;
constexpr auto spin_time = std::chrono::microseconds(40);
// A thread that loses its processor for a while must not hold up the others.
constexpr int parts_a_thread = 4;

cpu_set_t affinity() {
  cpu_set_t set;
  CPU_ZERO(&set);
  sched_getaffinity(0, sizeof set, &set);
  return set;
}

void confine_this_thread(std::span<const int> cpus) {
  const cpu_set_t allowed = affinity();
  cpu_set_t wanted;
  CPU_ZERO(&wanted);
  for (const int cpu : cpus) {
    if (cpu < 0 || cpu >= CPU_SETSIZE || !CPU_ISSET(static_cast<size_t>(cpu), &allowed))
      fail(ExitCode::preflight,
           "cannot bind a thread to cpu {}: the launcher gave this process {} other cpus", cpu,
           CPU_COUNT(&allowed));
    CPU_SET(static_cast<size_t>(cpu), &wanted);
  }
  sched_setaffinity(0, sizeof wanted, &wanted);
}

// Tells the processor, where it has such a hint, that this thread spins.
inline void spin_hint() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

// Spins until `value` is no longer `old`, or for spin_time.
template <typename T>
void spin_while(const std::atomic<T>& value, T old) {
  const auto end = Clock::now() + spin_time;
  do {
    for (int i = 0; i < 32; ++i) {
      if (value.load(std::memory_order_acquire) != old) return;
      spin_hint();
    }
  } while (Clock::now() < end);
}

}  // namespace

// A region: the caller sets job and pending, then advances
// generation. Every worker runs the job and counts pending down.
struct ThreadPool::State {
  alignas(64) std::atomic<int> generation{0};
  alignas(64) std::atomic<int> pending{0};
  alignas(64) std::atomic<bool> busy{false};
  std::atomic<bool> stopping{false};
  bool spins = false;
  int threads = 1;
  std::optional<FunctionRef<void(int)>> job;
  std::mutex failure_mutex;
  std::exception_ptr failure;
  std::vector<std::thread> workers;

  void run_job(int thread) {
    try {
      (*job)(thread);
    } catch (...) {
      const std::lock_guard lock(failure_mutex);
      if (!failure) failure = std::current_exception();
    }
  }

  void work(int thread) {
    for (int seen = 0;; ++seen) {
      if (spins) spin_while(generation, seen);
      generation.wait(seen, std::memory_order_acquire);
      if (stopping.load(std::memory_order_relaxed)) return;
      run_job(thread);
      if (pending.fetch_sub(1, std::memory_order_acq_rel) == 1) pending.notify_one();
    }
  }

  void wake_workers() {
    generation.fetch_add(1, std::memory_order_release);
    generation.notify_all();
  }

  void await_workers() {
    for (int left; (left = pending.load(std::memory_order_acquire)) != 0;) {
      if (spins) spin_while(pending, left);
      pending.wait(left, std::memory_order_acquire);
    }
  }

  void stop() {
    stopping = true;
    wake_workers();
    for (std::thread& worker : workers) worker.join();
  }
};

namespace {

// One region at a time: regions neither nest nor come from two threads.
class Region {
 public:
  explicit Region(std::atomic<bool>& busy) : busy_(busy) {
    require(!busy_.exchange(true, std::memory_order_acquire), "a parallel region inside another");
  }
  ~Region() { busy_.store(false, std::memory_order_release); }
  Region(const Region&) = delete;
  Region& operator=(const Region&) = delete;

 private:
  std::atomic<bool>& busy_;
};

}  // namespace

// Workers are pinned one to a CPU. The calling thread is only confined to the set: threads that it starts
// later inherit its mask and must not all land on one CPU.
ThreadPool::ThreadPool(int threads, std::span<const int> cpus) : state_(std::make_unique<State>()) {
  require(threads >= 1, "a thread pool needs a thread");
  require(cpus.empty() || cpus.size() == static_cast<size_t>(threads), "one cpu for each thread");
  if (!cpus.empty()) confine_this_thread(cpus);
  State& state = *state_;
  state.threads = threads;
  const cpu_set_t usable = affinity();
  state.spins = threads <= CPU_COUNT(&usable);
  try {
    for (int thread = 1; thread < threads; ++thread) {
      state.workers.emplace_back([&state, thread] { state.work(thread); });
      if (cpus.empty()) continue;
      cpu_set_t set;
      CPU_ZERO(&set);
      CPU_SET(static_cast<size_t>(cpus[static_cast<size_t>(thread)]), &set);
      pthread_setaffinity_np(state.workers.back().native_handle(), sizeof set, &set);
    }
  } catch (const std::system_error& error) {
    const size_t started = state.workers.size() + 1;
    state.stop();
    const std::string limit = address_limit_text();
    throw Error(
        ExitCode::preflight,
        fmt::format("only {} of {} threads could be started: {}{}", started, threads, error.what(), limit),
        "each thread needs a stack, and counts for the limit of processes (ulimit -u)",
        limit.empty() ? "" : address_limit_remedy);
  }
}

ThreadPool::~ThreadPool() { state_->stop(); }

int ThreadPool::size() const { return state_->threads; }

void ThreadPool::run(FunctionRef<void(int)> f) {
  State& state = *state_;
  const Region region(state.busy);
  if (state.threads == 1) return f(0);
  state.job = f;
  state.pending.store(state.threads - 1, std::memory_order_relaxed);
  state.wake_workers();
  state.run_job(0);
  state.await_workers();
  if (state.failure) std::rethrow_exception(std::exchange(state.failure, nullptr));
}

void ThreadPool::parallel_ranges(int64_t count, int64_t grain, FunctionRef<void(IndexRange)> f) {
  if (count <= 0) return;
  const int64_t wanted = size() == 1 ? 1 : int64_t{parts_a_thread} * size();
  const int64_t part = std::max({grain, int64_t{1}, (count + wanted - 1) / wanted});
  parallel_tasks((count + part - 1) / part, [&](int64_t index) {
    f({index * part, std::min((index + 1) * part, count)});
  });
}

void ThreadPool::parallel_tasks(int64_t count, FunctionRef<void(int64_t)> f) {
  if (count <= 0) return;
  if (count == 1) {
    const Region region(state_->busy);
    return f(0);
  }
  std::atomic<int64_t> next{0};
  run([&](int) {
    for (int64_t task; (task = next.fetch_add(1, std::memory_order_relaxed)) < count;) f(task);
  });
}

}  // namespace maniple
