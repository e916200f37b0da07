#include <runtime/control/step_codec.hpp>
#include <runtime/control/worker.hpp>

#include <algorithm>
#include <chrono>
#include <deque>
#include <thread>
#include <utility>

namespace maniple {
namespace {

using Clock = std::chrono::steady_clock;

void answer(Mailbox& mailbox, const StepResult& result) {
  const std::vector<std::byte> bytes = encode(result);
  Backoff backoff;
  while (!mailbox.try_send(0, bytes)) backoff.pause();
}

// A query of one token counts as decoding: the plans of a pipeline do not tell the two apart.
double prompt_share(const StepPlan& plan) {
  size_t tokens = 0, of_prompts = 0;
  for (const SequenceStep& sequence : plan.sequences) {
    tokens += sequence.query_length;
    if (sequence.query_length > 1) of_prompts += sequence.query_length;
  }
  return tokens == 0 ? 0 : static_cast<double>(of_prompts) / static_cast<double>(tokens);
}

class Worker {
 public:
  Worker(Mailbox& mailbox, bool sends_results, StepRunner& runner, RankActivity& activity)
      : mailbox_(mailbox), sends_results_(sends_results), runner_(runner), activity_(activity) {}

  WorkerTimes run() {
    Backoff backoff;
    while (true) {
      // Before the next plan: where a launch computes the whole step, a result would wait for all plans that lie here.
      if (!prompt_shares_.empty() && runner_.ready()) {
        collect();
      } else if (const std::optional<Message> message = mailbox_.try_receive()) {
        const StepPlan plan = decode_plan(message->bytes);
        if (plan.command == Command::stop) break;
        launch(plan);
        backoff.reset();
      } else if (prompt_shares_.empty()) {
        backoff.pause();
      } else {
        std::this_thread::yield();  // a sleep could outlast the step
      }
    }
    while (!prompt_shares_.empty()) collect();
    times_.idle += elapsed();
    return times_;
  }

 private:
  void launch(const StepPlan& plan) {
    if (prompt_shares_.empty()) times_.idle += elapsed();
    show(plan);
    prompt_shares_.push_back(prompt_share(plan));
    runner_.launch(plan);
  }

  void show(const StepPlan& plan) {
    for (const Admission& admission : plan.admissions) {
      requests_.resize(std::max<size_t>(requests_.size(), admission.seat + 1));
      requests_[admission.seat] = admission.request;
    }
    const size_t shown = std::min(plan.sequences.size(), activity_.first.size());
    for (size_t index = 0; index < shown; ++index) {
      const Seat seat = plan.sequences[index].seat;
      activity_.first[index] = seat < requests_.size() ? requests_[seat] : 0;  // launch() checks the seat
    }
    activity_.running = static_cast<uint32_t>(plan.sequences.size());
    activity_.step = plan.step;
    activity_.phase = Phase::step;
  }

  // Time that two steps in flight share counts for the older one.
  void collect() {
    const StepResult result = runner_.collect();
    if (sends_results_) answer(mailbox_, result);
    const double share = prompt_shares_.front(), seconds = elapsed();
    prompt_shares_.pop_front();
    times_.prefill += share * seconds;
    times_.decode += (1 - share) * seconds;
    if (result.times.communication != StepTimes::unknown)
      activity_.communication += result.times.communication;
    show_totals();
    if (prompt_shares_.empty()) activity_.phase = Phase::idle;
  }

  void show_totals() {
    const auto microseconds = [](double seconds) { return static_cast<uint64_t>(seconds * 1e6); };
    ++activity_.steps;
    activity_.prefill = microseconds(times_.prefill);
    activity_.decode = microseconds(times_.decode);
    activity_.idle = microseconds(times_.idle);
  }

  double elapsed() {
    const Clock::time_point now = Clock::now();
    return std::chrono::duration<double>(now - std::exchange(counted_until_, now)).count();
  }

  Mailbox& mailbox_;
  bool sends_results_;
  StepRunner& runner_;
  RankActivity& activity_;
  std::vector<uint64_t> requests_;    // by seat
  std::deque<double> prompt_shares_;  // of the steps in flight
  Clock::time_point counted_until_ = Clock::now();
  WorkerTimes times_;
};

}  // namespace

WorkerTimes run_worker_loop(Mailbox& mailbox, bool sends_results, StepRunner& runner,
                            RankActivity& activity) {
  activity.phase = Phase::idle;
  return Worker(mailbox, sends_results, runner, activity).run();
}

}  // namespace maniple
