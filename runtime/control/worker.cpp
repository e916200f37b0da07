#include <kernels/support/check.hpp>
#include <runtime/control/step_codec.hpp>
#include <runtime/control/worker.hpp>

#include <chrono>

namespace maniple {
namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

StepPlan next_plan(Mailbox& mailbox) {
  Backoff backoff;
  while (true) {
    if (const std::optional<Message> message = mailbox.try_receive()) return decode_plan(message->bytes);
    backoff.pause();
  }
}

void answer(Mailbox& mailbox, const StepResult& result) {
  const std::vector<std::byte> bytes = encode(result);
  Backoff backoff;
  while (!mailbox.try_send(0, bytes)) backoff.pause();
}

double prompt_share(const StepPlan& plan) {
  size_t tokens = 0;
  for (const SequenceStep& sequence : plan.sequences) tokens += sequence.query_length;
  return tokens == 0 ? 0 : static_cast<double>(plan.known_tokens.size()) / static_cast<double>(tokens);
}

}  // namespace

WorkerTimes obey_plans(Mailbox& mailbox, bool reports, const std::function<StepResult(const StepPlan&)>& run,
                       Pulse& pulse) {
  WorkerTimes times;
  while (true) {
    const Clock::time_point waiting = Clock::now();
    pulse.phase = Phase::idle;
    const StepPlan plan = next_plan(mailbox);
    times.idle += seconds_since(waiting);
    if (plan.command == Command::stop) return times;
    if (plan.command == Command::abort) fail(ExitCode::fault, "rank 0 gave the job up");

    const Clock::time_point start = Clock::now();
    pulse.step = plan.step;
    pulse.phase = Phase::step;
    const StepResult result = run(plan);
    if (reports) answer(mailbox, result);
    const double share = prompt_share(plan), seconds = seconds_since(start);
    times.prefill += share * seconds;
    times.decode += (1 - share) * seconds;
  }
}

}  // namespace maniple
