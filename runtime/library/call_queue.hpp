// What calls of the library give to the service that runs behind them, and what they get back. Every function may be called by any thread.
#pragma once

#include <kernels/support/error.hpp>
#include <runtime/requests.hpp>

#include <condition_variable>
#include <deque>
#include <mutex>

namespace maniple {

class CallQueue final : public RequestSource, public CompletionSink {
 public:
  void put(GenerationRequest request);
  // Waits for the next that has ended; drops those before `first`, of a call that was given up. Throws Error when the service has failed.
  FinishedRequest take(RequestId first);
  void drop();   // what has not begun
  void close();  // no call will come: the service ends
  void fail(const Error& error);

  bool ready() override;
  std::optional<GenerationRequest> next() override;
  void finished(FinishedRequest done) override;

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<GenerationRequest> waiting_;
  std::deque<FinishedRequest> done_;
  bool closed_ = false;
  std::optional<Error> failure_;
};

}  // namespace maniple
