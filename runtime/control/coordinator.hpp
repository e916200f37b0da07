// Rank 0's side of a step: sends the plans of one scheduler per replica and takes the results. Replicas do
// not wait for each other.
#pragma once

#include <parallel/mailbox.hpp>
#include <parallel/process_grid.hpp>
#include <runtime/control/observer.hpp>
#include <runtime/scheduling/scheduler.hpp>

#include <chrono>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <utility>
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
  // `config` is that of every replica; num_blocks holds one entry per replica. observer: may be null.
  Coordinator(Mailbox& mailbox, const GridSize& grid, const SchedulerConfig& config,
              const std::vector<uint32_t>& num_blocks, RunObserver* observer = nullptr);

  // Queues the request on the replica with the fewest unfinished ones.
  std::optional<Rejection> add(GenerationRequest request);
  // False while max_num_seqs requests wait at every replica: the input is streamed, not stored.
  bool wants_requests() const;
  bool has_work() const;
  void finish(RequestId request, FinishReason reason, std::optional<uint32_t> index = {});  // as Scheduler's
  SchedulerCounts counts() const;                                                           // of all replicas
  std::optional<Stall> stall() const;                                                       // the longest

  // Sends plans that are due; if none was, takes one result. Plans so follow from the order of results, not from
  // their times, and a run on a GPU, whose sums depend on the batch, can be repeated. Never blocks. False if there
  // was nothing to do. Calls on_start before it sends a plan with a request's first step (or its first since a preemption).
  using OnStart = std::function<void(const Admission& admission, uint32_t replica)>;
  bool advance(const std::function<void(const TokenEvent&)>& on_token, const OnStart& on_start);
  // Sends the stop command: every rank leaves its loop after the steps it has launched. Returns when the
  // messages have left this process.
  void stop();

 private:
  using Clock = std::chrono::steady_clock;
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
    Clock::time_point active;   // the last answer, or the last time when nothing ran
    std::deque<StepRow> steps;  // for the observer: without an answer
  };

  bool receive(const std::function<void(const TokenEvent&)>& on_token);
  bool plan(Replica& replica, const OnStart& on_start);
  bool flush(Replica& replica);
  size_t post(Replica& replica, const StepPlan& plan);
  // times: when the scheduler began and had ended. bytes: of the plan's message.
  void observe_plan(Replica& replica, const StepPlan& plan,
                    std::pair<Clock::time_point, Clock::time_point> times, size_t bytes);
  void observe_answer(Replica& replica, const StepResult& result, size_t bytes);
  double seconds(Clock::time_point time) const;  // since the start

  Mailbox& mailbox_;
  GridSize grid_;
  size_t queue_length_;
  RunObserver* observer_;
  Clock::time_point start_ = Clock::now();
  std::deque<Replica> replicas_;
};

}  // namespace maniple
