#include <gtest/gtest.h>

#include <deque>
#include <functional>
#include <kernels/support/check.hpp>
#include <parallel/self/memory_mailbox.hpp>
#include <runtime/control/step_codec.hpp>
#include <runtime/control/worker.hpp>

namespace maniple {
namespace {

// A worker on this thread, and rank 0's end of its channel. Records what the worker runs.
class Rehearsal final : private StepRunner {
 public:
  void send(uint64_t step, Command command = Command::run) {
    StepPlan plan;
    plan.step = step;
    plan.command = command;
    send(plan);
  }
  void send(const StepPlan& plan) { ASSERT_TRUE(channel_.root->try_send(0, encode(plan))); }

  std::string run(bool sends_results = true) {
    run_worker_loop(*channel_.leaves[0], sends_results, *this, activity);
    return log_;
  }

  std::vector<uint64_t> answers() {
    std::vector<uint64_t> steps;
    while (const auto message = channel_.root->try_receive())
      steps.push_back(decode_result(message->bytes).step);
    return steps;
  }

  std::function<bool()> is_ready = [] { return true; };
  RankActivity activity;

 private:
  void launch(const StepPlan& plan) override {
    log_ += "launch " + std::to_string(plan.step) + ", ";
    launched_.push_back(plan.step);
  }
  bool ready() const override { return is_ready(); }
  StepResult collect() override {
    StepResult result;
    result.step = launched_.front();
    launched_.pop_front();
    log_ += "collect " + std::to_string(result.step) + ", ";
    return result;
  }

  MemoryChannel channel_ = make_memory_channel(1);
  std::deque<uint64_t> launched_;
  std::string log_;
};

TEST(Worker, LaunchesWhatIsThereAndAnswersInOrderBeforeItStops) {
  Rehearsal rehearsal;
  rehearsal.is_ready = [] { return false; };
  rehearsal.send(1);
  rehearsal.send(2);
  rehearsal.send(3, Command::stop);
  EXPECT_EQ(rehearsal.run(), "launch 1, launch 2, collect 1, collect 2, ");
  EXPECT_EQ(rehearsal.answers(), (std::vector<uint64_t>{1, 2}));
}

TEST(Worker, AnswersAReadyStepBeforeItLaunchesTheNextPlan) {
  Rehearsal rehearsal;
  rehearsal.send(1);
  rehearsal.send(2);
  rehearsal.send(3, Command::stop);
  EXPECT_EQ(rehearsal.run(), "launch 1, collect 1, launch 2, collect 2, ");
}

TEST(Worker, LaunchesAPlanThatComesWhileTheOneBeforeItRuns) {
  Rehearsal rehearsal;
  int polls = 0;
  rehearsal.is_ready = [&] {
    ++polls;
    if (polls == 3) rehearsal.send(2);
    if (polls == 6) rehearsal.send(3, Command::stop);
    return polls == 5;
  };
  rehearsal.send(1);
  EXPECT_EQ(rehearsal.run(), "launch 1, launch 2, collect 1, collect 2, ");
}

TEST(Worker, AnswersOnlyWhereItReports) {
  Rehearsal rehearsal;
  rehearsal.send(1);
  rehearsal.send(2, Command::stop);
  EXPECT_EQ(rehearsal.run(false), "launch 1, collect 1, ");
  EXPECT_TRUE(rehearsal.answers().empty());
}

TEST(Worker, ShowsTheRequestsOfItsStep) {
  Rehearsal rehearsal;
  StepPlan plan;
  plan.step = 1;
  plan.admissions = {{3, 0, {}, {}, 70}, {0, 0, {}, {}, 41}};
  plan.sequences = {{.seat = 0}, {.seat = 3}};
  rehearsal.send(plan);
  rehearsal.send(2, Command::stop);
  rehearsal.run();
  EXPECT_EQ(rehearsal.activity.heartbeat().requests(), (std::vector<uint64_t>{}));
  rehearsal.activity.phase = Phase::step;
  EXPECT_EQ(rehearsal.activity.heartbeat().requests(), (std::vector<uint64_t>{41, 70}));
}

}  // namespace
}  // namespace maniple
