// The times of each request while it is served, as rows for a RunObserver.
#pragma once

#include <runtime/control/observer.hpp>
#include <runtime/scheduling/sequence.hpp>

#include <chrono>
#include <unordered_map>
#include <vector>

namespace maniple {

class RequestMeter {
 public:
  // observer: may be null, then nothing is kept.
  explicit RequestMeter(RunObserver* observer) : observer_(observer) {}

  // Times are those of the last call: a turn of the service's loop.
  void turn() {
    if (observer_) now_ = std::chrono::duration<double>(Clock::now() - start_).count();
  }
  void arrived(RequestId request, size_t prompt_tokens, uint32_t answers);
  // Again after each preemption.
  void admitted(const Admission& admission, uint32_t replica);
  void token(RequestId request, uint32_t answer);
  void ended(RequestId request, FinishReason reason);
  // Of a request that no step has served.
  void refused(RequestId request, size_t prompt_tokens);

 private:
  using Clock = std::chrono::steady_clock;
  struct Growing {
    uint64_t tokens = 0;
    double last_s = 0;  // when the last one arrived
  };
  struct Open {
    RequestRow row;
    std::vector<Growing> answers;
    std::vector<float> gaps;  // seconds, of all answers
    uint32_t admissions = 0;
  };

  RunObserver* observer_;
  Clock::time_point start_ = Clock::now();
  double now_ = 0;
  std::unordered_map<RequestId, Open> open_;
};

}  // namespace maniple
