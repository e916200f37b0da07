// The threads of one rank. The calling thread works too. The others wait for work: they spin briefly, then
// sleep, so an idle rank or a machine with more ranks than cores does not burn its processors.
#pragma once

#include <kernels/tensor/shape.hpp>

#include <memory>
#include <span>
#include <type_traits>

namespace maniple {

// A borrowed callable, valid during the call it is passed to.
template <typename Signature>
class FunctionRef;
template <typename Result, typename... Args>
class FunctionRef<Result(Args...)> {
 public:
  template <typename F>
  requires(!std::is_same_v<std::remove_cvref_t<F>, FunctionRef>)
      FunctionRef(F&& f)  // NOLINT(bugprone-forwarding-reference-overload): constrained above
      : object_(const_cast<void*>(static_cast<const void*>(std::addressof(f)))),
        call_([](void* object, Args... args) -> Result {
          return (*static_cast<std::remove_reference_t<F>*>(object))(args...);
        }) {}
  Result operator()(Args... args) const { return call_(object_, args...); }

 private:
  void* object_;
  Result (*call_)(void*, Args...);
};

class ThreadPool {
 public:
  // cpus: one logical CPU for each thread, or empty for no pinning. threads >= 1.
  explicit ThreadPool(int threads, std::span<const int> cpus = {});
  ~ThreadPool();

  int size() const;
  // Runs f(thread) once on every thread, 0 being the caller, and waits for all. Rethrows the first exception.
  void run(FunctionRef<void(int)> f);
  // Splits [0, count) into contiguous parts, a few per thread, none smaller than `grain` but the last.
  // Threads take the next part as they become free.
  void parallel_ranges(int64_t count, int64_t grain, FunctionRef<void(IndexRange)> f);
  // Runs f(task) for every task in [0, count); threads take the next task as they become free.
  void parallel_tasks(int64_t count, FunctionRef<void(int64_t)> f);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace maniple
