#include <runtime/control/coordinator.hpp>
#include <runtime/control/step_codec.hpp>

#include <algorithm>
#include <cmath>

namespace maniple {

Coordinator::Coordinator(Mailbox& mailbox, const GridSize& grid, const SchedulerConfig& config,
                         const std::vector<uint32_t>& num_blocks, RunObserver* observer)
    : mailbox_(mailbox), grid_(grid), queue_length_(config.max_num_seqs), observer_(observer) {
  for (int data = 0; data < grid.data; ++data) {
    SchedulerConfig own = config;
    own.replica = static_cast<uint32_t>(data);
    own.num_blocks = num_blocks[static_cast<size_t>(data)];
    own.fewest_blocks = *std::ranges::min_element(num_blocks);
    replicas_.emplace_back(own, ranks_of_replica(grid, data));
  }
}

std::optional<Rejection> Coordinator::add(GenerationRequest request) {
  const auto least_loaded = std::ranges::min_element(replicas_, {}, &Replica::unfinished);
  const size_t answers = request.sampling.n;
  std::optional<Rejection> rejection = least_loaded->scheduler.add(std::move(request));
  if (!rejection) least_loaded->unfinished += answers;
  return rejection;
}

bool Coordinator::wants_requests() const {
  return std::ranges::any_of(replicas_, [this](const Replica& replica) {
    return replica.scheduler.counts().waiting < queue_length_;
  });
}

bool Coordinator::has_work() const {
  return std::ranges::any_of(replicas_, &Scheduler::has_work, &Replica::scheduler);
}

void Coordinator::finish(RequestId request, FinishReason reason, std::optional<uint32_t> index) {
  for (Replica& replica : replicas_) replica.unfinished -= replica.scheduler.finish(request, reason, index);
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

bool Coordinator::advance(const std::function<void(const TokenEvent&)>& on_token, const OnStart& on_start) {
  bool planned = false, sent = false;
  for (Replica& replica : replicas_) {
    planned |= plan(replica, on_start);
    sent |= flush(replica);
  }
  return (!planned && receive(on_token)) || planned || sent;
}

bool Coordinator::receive(const std::function<void(const TokenEvent&)>& on_token) {
  const std::optional<Message> message = mailbox_.try_receive();
  if (!message) return false;
  Replica& replica = replicas_[static_cast<size_t>(position_in(grid_, message->from).data)];
  replica.active = Clock::now();
  const StepResult result = decode_result(message->bytes);
  const std::vector<TokenEvent> events = replica.scheduler.commit(result);
  if (observer_) observe_answer(replica, result, message->bytes.size());
  for (const TokenEvent& event : events) {
    if (event.finish_reason != FinishReason::none) --replica.unfinished;
    on_token(event);
  }
  return true;
}

bool Coordinator::plan(Replica& replica, const OnStart& on_start) {
  if (replica.scheduler.counts().running == 0) replica.active = Clock::now();
  const Clock::time_point began = observer_ ? Clock::now() : Clock::time_point();
  const std::optional<StepPlan> plan = replica.scheduler.schedule();
  if (!plan) return false;
  const Clock::time_point scheduled = observer_ ? Clock::now() : Clock::time_point();
  for (const Admission& admission : plan->admissions) on_start(admission, plan->replica);
  const size_t bytes = post(replica, *plan);
  if (observer_) observe_plan(replica, *plan, {began, scheduled}, bytes);
  return true;
}

double Coordinator::seconds(Clock::time_point time) const {
  return std::chrono::duration<double>(time - start_).count();
}

void Coordinator::observe_plan(Replica& replica, const StepPlan& plan,
                               std::pair<Clock::time_point, Clock::time_point> times, size_t bytes) {
  const SchedulerCounts counts = replica.scheduler.counts();
  const KvUse kv = replica.scheduler.kv_use();
  StepRow row{.step = plan.step,
              .replica = plan.replica,
              .planned_s = seconds(times.first),
              .schedule_s = seconds(times.second) - seconds(times.first),
              .sequences = plan.sequences.size(),
              .prompt_tokens = replica.scheduler.prompt_tokens(),
              .context = replica.scheduler.context(),
              .attended = replica.scheduler.attended(),
              .plan_bytes = bytes,
              .waiting = counts.waiting,
              .running = counts.running,
              .free_blocks = counts.free_blocks,
              .held_blocks = kv.held_blocks,
              .held_window_blocks = kv.held_window_blocks,
              .kv_tokens = kv.tokens,
              .preemptions = counts.preemptions};
  for (const SequenceStep& sequence : plan.sequences) {
    row.tokens += sequence.query_length;
    row.sampled += sequence.rows();
  }
  replica.steps.push_back(row);
}

void Coordinator::observe_answer(Replica& replica, const StepResult& result, size_t bytes) {
  const auto seconds_of = [](uint32_t microseconds) {
    return microseconds == StepTimes::unknown ? std::nan("") : microseconds * 1e-6;
  };
  StepRow row = replica.steps.front();
  replica.steps.pop_front();
  row.answered_s = seconds(replica.active);
  row.forward_s = seconds_of(result.times.forward);
  row.sample_s = seconds_of(result.times.sample);
  row.comm_s = seconds_of(result.times.communication);
  row.transit_s = row.answered_s - row.planned_s - row.schedule_s - row.forward_s - row.sample_s;
  row.result_bytes = bytes;
  observer_->step(row);
}

size_t Coordinator::post(Replica& replica, const StepPlan& plan) {
  const auto bytes = std::make_shared<const std::vector<std::byte>>(encode(plan));
  for (const int rank : replica.ranks) replica.outbox.push_back({rank, bytes});
  return bytes->size();
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
  while (std::ranges::any_of(replicas_, pending) || !mailbox_.flushed()) {
    mailbox_.try_receive();  // discards results of steps in flight
    for (Replica& replica : replicas_) flush(replica);
    backoff.pause();
  }
}

}  // namespace maniple
