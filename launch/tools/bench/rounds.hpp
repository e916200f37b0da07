// Repeats of a workload in one run of the engine: a round begins when the last request of the one before has ended.
#pragma once

#include <launch/tools/bench/workload.hpp>
#include <layers/models/cost.hpp>
#include <runtime/control/observer.hpp>

#include <chrono>
#include <cstdint>
#include <optional>
#include <vector>

namespace maniple {

// Sums over the steps of a round, of all replicas; see StepRow.
struct StepSums : StepWork {
  uint64_t kv_tokens = 0;
};

// The first `requests` of the workload, all at once.
struct Round {
  size_t requests = 0;
  bool counts = true;  // no warm-up
  // What was measured:
  double seconds = 0;  // from the first request to the end of the last
  std::vector<RequestRow> rows{};
  StepSums steps{};
};

// Used by the thread that serves requests, and by others after its end.
class Rounds final : public RequestSource, public CompletionSink, public RunObserver {
 public:
  // record: gets the rows of the rounds that count, with ids counted from 0; may be null. The references must outlive it.
  Rounds(const Workload& workload, std::vector<Round> rounds, RunObserver* record)
      : workload_(workload), rounds_(std::move(rounds)), record_(record) {}

  bool ready() override { return given_ < round().requests || finished_ == given_; }
  std::optional<GenerationRequest> next() override;
  // Throws Error (preflight) where the engine refuses a request.
  void finished(FinishedRequest completion) override;
  void step(const StepRow& row) override;
  void request(const RequestRow& row) override;

  const std::vector<Round>& rounds() const { return rounds_; }
  uint64_t all() const;  // requests of all rounds
  uint64_t done() const { return before_ + finished_; }

 private:
  using Clock = std::chrono::steady_clock;
  Round& round() { return rounds_[current_]; }

  const Workload& workload_;
  std::vector<Round> rounds_;
  RunObserver* record_;
  size_t current_ = 0;
  size_t given_ = 0, finished_ = 0;      // of the current round
  uint64_t before_ = 0, uncounted_ = 0;  // requests of earlier rounds; of those that do not count
  Clock::time_point began_;
};

}  // namespace maniple
