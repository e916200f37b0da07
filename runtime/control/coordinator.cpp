#include <runtime/control/coordinator.hpp>
#include <runtime/control/step_codec.hpp>

#include <algorithm>

namespace maniple {

namespace {

using Clock = std::chrono::steady_clock;

}  // namespace

Coordinator::Coordinator(Mailbox& mailbox, const GridSize& grid, const SchedulerConfig& config,
                         const std::vector<uint32_t>& num_blocks)
    : mailbox_(mailbox), grid_(grid), queue_length_(config.max_num_seqs) {
  for (int data = 0; data < grid.data; ++data) {
    SchedulerConfig own = config;
    own.replica = static_cast<uint32_t>(data);
    own.num_blocks = num_blocks[static_cast<size_t>(data)];
    own.fewest_blocks = *std::ranges::min_element(num_blocks);
    replicas_.emplace_back(own, ranks_of_replica(grid, data));
  }
}

std::optional<Rejection> Coordinator::add(Request request) {
  const auto least_loaded =
      std::min_element(replicas_.begin(), replicas_.end(),
                       [](const Replica& a, const Replica& b) { return a.unfinished < b.unfinished; });
  std::optional<Rejection> rejection = least_loaded->scheduler.add(std::move(request));
  if (!rejection) ++least_loaded->unfinished;
  return rejection;
}

bool Coordinator::wants_requests() const {
  return std::any_of(replicas_.begin(), replicas_.end(), [this](const Replica& replica) {
    return replica.scheduler.counts().waiting < queue_length_;
  });
}

bool Coordinator::has_work() const {
  return std::any_of(replicas_.begin(), replicas_.end(),
                     [](const Replica& replica) { return replica.scheduler.has_work(); });
}

void Coordinator::finish(RequestId request, FinishReason reason) {
  for (Replica& replica : replicas_)
    if (replica.scheduler.finish(request, reason)) --replica.unfinished;
}

SchedulerCounts Coordinator::counts() const {
  SchedulerCounts sum;
  for (const Replica& replica : replicas_) {
    const SchedulerCounts counts = replica.scheduler.counts();
    sum.waiting += counts.waiting;
    sum.running += counts.running;
    sum.free_blocks += counts.free_blocks;
    sum.preemptions += counts.preemptions;
    sum.cached_tokens += counts.cached_tokens;
    sum.clipped += counts.clipped;
    sum.ended_by_context += counts.ended_by_context;
    sum.ended_by_cache += counts.ended_by_cache;
  }
  return sum;
}

std::optional<Stall> Coordinator::stall() const {
  const auto quietest = std::ranges::min_element(replicas_, {}, [](const Replica& replica) {
    return replica.scheduler.counts().running > 0 ? replica.active : Clock::time_point::max();
  });
  if (quietest->scheduler.counts().running == 0) return std::nullopt;
  return Stall{static_cast<int>(quietest - replicas_.begin()), quietest->ranks,
               std::chrono::duration<double>(Clock::now() - quietest->active).count()};
}

bool Coordinator::advance(const std::function<void(const TokenEvent&)>& on_token,
                          const std::function<void(RequestId)>& on_start) {
  bool busy = receive(on_token);
  for (Replica& replica : replicas_) {
    busy |= plan(replica, on_start);
    busy |= flush(replica);
  }
  return busy;
}

bool Coordinator::receive(const std::function<void(const TokenEvent&)>& on_token) {
  bool received = false;
  while (const std::optional<Message> message = mailbox_.try_receive()) {
    received = true;
    Replica& replica = replicas_[static_cast<size_t>(position_in(grid_, message->from).data)];
    replica.active = Clock::now();
    for (const TokenEvent& event : replica.scheduler.commit(decode_result(message->bytes))) {
      if (event.finish_reason != FinishReason::none) --replica.unfinished;
      on_token(event);
    }
  }
  return received;
}

bool Coordinator::plan(Replica& replica, const std::function<void(RequestId)>& on_start) {
  if (replica.scheduler.counts().running == 0) replica.active = Clock::now();
  const std::optional<StepPlan> plan = replica.scheduler.schedule();
  if (!plan) return false;
  for (const RequestId request : replica.scheduler.admitted()) on_start(request);
  post(replica, *plan);
  return true;
}

void Coordinator::post(Replica& replica, const StepPlan& plan) {
  const auto bytes = std::make_shared<const std::vector<std::byte>>(encode(plan));
  for (const int rank : replica.ranks) replica.outbox.push_back({rank, bytes});
}

bool Coordinator::flush(Replica& replica) {
  bool sent = false;
  while (!replica.outbox.empty() &&
         mailbox_.try_send(replica.outbox.front().to, *replica.outbox.front().bytes)) {
    replica.outbox.pop_front();
    sent = true;
  }
  return sent;
}

void Coordinator::stop() {
  for (Replica& replica : replicas_) post(replica, replica.scheduler.command(Command::stop));
  Backoff backoff;
  const auto pending = [](const Replica& replica) { return !replica.outbox.empty(); };
  while (std::any_of(replicas_.begin(), replicas_.end(), pending) || !mailbox_.flushed()) {
    mailbox_.try_receive();  // discards results of steps in flight
    for (Replica& replica : replicas_) flush(replica);
    backoff.pause();
  }
}

}  // namespace maniple
