// Rank 0's side of a step: one scheduler a replica; plans go out, results come back. Replicas are loose: each
// is served when it is ready.
#pragma once

#include <parallel/mailbox.hpp>
#include <parallel/process_grid.hpp>
#include <runtime/scheduling/scheduler.hpp>

#include <chrono>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

namespace maniple {

// A replica that has running requests, and for how long it has answered no plan.
struct Stall {
  int replica = 0;
  std::vector<int> ranks;
  double seconds = 0;
};

class Coordinator {
 public:
  // `config` is that of every replica; num_blocks holds one entry a replica.
  Coordinator(Mailbox& mailbox, const GridSize& grid, const SchedulerConfig& config,
              const std::vector<uint32_t>& num_blocks);

  // Queues the request on the replica with the fewest unfinished ones.
  std::optional<Rejection> add(Request request);
  // False while every replica has a full batch waiting: the input is streamed, not held.
  bool wants_requests() const;
  bool has_work() const;
  void finish(RequestId request, FinishReason reason);
  SchedulerCounts counts() const;      // of all replicas
  std::optional<Stall> stall() const;  // the longest

  // Sends plans that are due and takes results that have come; never blocks. False if there was nothing to
  // do. on_start: before a plan with the request's first step (or its first since a preemption) is sent.
  bool advance(const std::function<void(const TokenEvent&)>& on_token,
               const std::function<void(RequestId)>& on_start);
  // Tells every rank to leave its loop, after what it is doing. Returns when the messages are handed over.
  void stop();

 private:
  struct Outgoing {
    int to;
    std::shared_ptr<const std::vector<std::byte>> bytes;
  };
  struct Replica {
    Replica(const SchedulerConfig& config, std::vector<int> members)
        : scheduler(config), ranks(std::move(members)) {}
    Scheduler scheduler;
    std::vector<int> ranks;
    std::deque<Outgoing> outbox;
    size_t unfinished = 0;
    std::chrono::steady_clock::time_point active;  // it answered, or got a plan when it had none
  };

  bool receive(const std::function<void(const TokenEvent&)>& on_token);
  bool plan(Replica& replica, const std::function<void(RequestId)>& on_start);
  bool flush(Replica& replica);
  void post(Replica& replica, const StepPlan& plan);

  Mailbox& mailbox_;
  GridSize grid_;
  size_t queue_length_;
  std::deque<Replica> replicas_;
};

}  // namespace maniple
