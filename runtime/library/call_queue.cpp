#include <runtime/library/call_queue.hpp>

#include <utility>

namespace maniple {

void CallQueue::put(GenerationRequest request) {
  const std::lock_guard lock(mutex_);
  waiting_.push_back(std::move(request));
}

FinishedRequest CallQueue::take(RequestId first) {
  std::unique_lock lock(mutex_);
  while (true) {
    changed_.wait(lock, [this] { return failure_ || !done_.empty(); });
    if (failure_) throw Error(*failure_);
    FinishedRequest done = std::move(done_.front());
    done_.pop_front();
    if (done.id >= first) return done;
  }
}

void CallQueue::drop() {
  const std::lock_guard lock(mutex_);
  waiting_.clear();
}

void CallQueue::close() {
  const std::lock_guard lock(mutex_);
  closed_ = true;
}

void CallQueue::fail(const Error& error) {
  const std::lock_guard lock(mutex_);
  failure_ = error;
  changed_.notify_all();
}

bool CallQueue::ready() {
  const std::lock_guard lock(mutex_);
  return closed_ || !waiting_.empty();
}

std::optional<GenerationRequest> CallQueue::next() {
  const std::lock_guard lock(mutex_);
  if (waiting_.empty()) return std::nullopt;
  GenerationRequest request = std::move(waiting_.front());
  waiting_.pop_front();
  return request;
}

void CallQueue::finished(FinishedRequest done) {
  const std::lock_guard lock(mutex_);
  done_.push_back(std::move(done));
  changed_.notify_one();
}

}  // namespace maniple
