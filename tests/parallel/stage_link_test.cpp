// Links between stages, each stage a thread.
#include <gtest/gtest.h>
#include <kernels/factory/make_backend.hpp>
#include <parallel/message_link.hpp>
#include <support/distant_device.hpp>
#include <support/thread_world.hpp>

#include <cstring>
#include <thread>

namespace maniple {
namespace {

constexpr int64_t width = 24, most = 50;

// Every stage of a pipeline runs f(link, rank).
void run_stages(int stages, const std::function<void(StageLink&, int)>& f,
                std::chrono::milliseconds deadline = std::chrono::seconds(60)) {
  run_ranks(
      stages,
      [&](World& world) {
        const Backend backend = make_backend({.kind = BackendKind::reference});
        const int rank = world.rank();
        const bool first = rank == 0, last = rank + 1 == stages;
        std::atomic<bool> waits = false;
        const auto link = world.make_stage_link(
            {"stage " + std::to_string(rank) + " of replica 0",
             first ? std::nullopt : std::optional(rank - 1), last ? std::nullopt : std::optional(rank + 1)},
            {most, width, DType::fp32}, *backend.device, waits);
        f(*link, rank);
        EXPECT_FALSE(waits);
      },
      deadline);
}

StageStep step_of(uint64_t number) { return {number, 1000 + number}; }

std::vector<float> rows_of(uint64_t step, int64_t rows) {
  std::vector<float> values(static_cast<size_t>(rows * width));
  for (size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(step * 10000 + i);
  return values;
}

ConstTensorView view(const std::vector<float>& values) {
  return view_of(values.data(), DType::fp32, {static_cast<int64_t>(values.size()) / width, width});
}

// Slow first, middle and last stages; every stage adds one to what it takes.
TEST(StageLink, CarriesTheRowsOfEveryStepInOrderWhicheverStageIsSlow) {
  for (int slow = 0; slow < 3; ++slow)
    run_stages(3, [slow](StageLink& link, int rank) {
      for (uint64_t step = 1; step <= 40; ++step) {
        const auto rows = static_cast<int64_t>(1 + step * 7 % most);
        if (rank == slow) std::this_thread::sleep_for(std::chrono::microseconds(300));
        link.poll();
        const std::vector<float> sent = rows_of(step, rows);
        if (rank == 0) {
          link.send(step_of(step), view(sent));
          continue;
        }
        const TensorView taken = link.take(step_of(step), rows);
        EXPECT_EQ(taken.shape, (Shape{rows, width}));
        for (int64_t i = 0; i < taken.shape.elements(); ++i)
          EXPECT_EQ(taken.as<float>()[i], sent[static_cast<size_t>(i)] + static_cast<float>(rank - 1));
        for (int64_t i = 0; i < taken.shape.elements(); ++i) taken.as<float>()[i] += 1;
        link.poll();
        if (rank == 1) link.send(step_of(step), taken);
        link.release();
      }
    });
}

// As on GPUs that share a transport of host memory.
TEST(StageLink, CarriesRowsOfADeviceWhoseMemoryTheHostCannotReach) {
  run_ranks(2, [](World& world) {
    DistantDevice device;
    std::atomic<bool> waits = false;
    const bool first = world.rank() == 0;
    const auto link = world.make_stage_link(
        {"a stage", first ? std::nullopt : std::optional(0), first ? std::optional(1) : std::nullopt},
        {most, width, DType::fp32}, device, waits);
    for (uint64_t step = 1; step <= 5; ++step) {
      const auto rows = static_cast<int64_t>(step * 3);
      const std::vector<float> sent = rows_of(step, rows);
      if (first) {
        Tensor on_device(device, DType::fp32, {rows, width});
        device.upload(on_device.view().data, view(sent).data, view(sent).bytes());
        link->send(step_of(step), on_device.view());
        continue;
      }
      const TensorView taken = link->take(step_of(step), rows);
      std::vector<float> found(sent.size());
      device.download(reinterpret_cast<std::byte*>(found.data()), taken.data, taken.bytes());
      EXPECT_EQ(found, sent);
      link->release();
    }
  });
}

TEST(StageLink, ASenderWaitsWhileTwoMessagesAreNotTaken) {
  std::atomic<int> sent = 0;
  run_stages(2, [&](StageLink& link, int rank) {
    if (rank == 0) {
      for (uint64_t step = 1; step <= 3; ++step, ++sent) link.send(step_of(step), view(rows_of(step, 2)));
      EXPECT_GT(link.seconds(), 0);
      const size_t bytes = 64 + 2 * width * sizeof(float), size_class = 8;  // 256 and more
      const CollectiveCount sends = link.counts().by_op[static_cast<size_t>(CollectiveOp::send)][size_class];
      EXPECT_EQ(sends.calls, 3u);
      EXPECT_EQ(sends.bytes, 3 * bytes);
      EXPECT_EQ(sends.seconds, link.seconds());
      return;
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    EXPECT_EQ(sent, 2);
    for (uint64_t step = 1; step <= 3; ++step) {
      link.take(step_of(step), 2);
      link.release();
    }
  });
}

std::string refusal(const StageStep& sent, int64_t rows_sent, const StageStep& due, int64_t rows_due) {
  std::string message = "accepted";
  run_stages(2, [&](StageLink& link, int rank) {
    if (rank == 0) return link.send(sent, view(rows_of(1, rows_sent)));
    try {
      link.take(due, rows_due);
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ExitCode::fault);
      message = error.what();
    }
  });
  return message;
}

TEST(StageLink, RefusesRowsOfAnotherStepSizeOrState) {
  EXPECT_EQ(refusal({811, 5}, 40, {811, 5}, 40), "accepted");
  EXPECT_EQ(refusal({812, 5}, 40, {811, 5}, 40),
            "stage 1 of replica 0 got rows of step 812 (40) and expected 811 (40)");
  EXPECT_EQ(refusal({811, 5}, 39, {811, 5}, 40),
            "stage 1 of replica 0 got rows of step 811 (39) and expected 811 (40)");
  EXPECT_NE(refusal({811, 5}, 40, {811, 6}, 40).find("state 0000000000000005 here 0000000000000006"),
            std::string::npos);
}

// What a transport of the test hands to the link as the message of step 7, three rows.
class Forged final : public StageTransport {
 public:
  explicit Forged(std::vector<std::byte> message) : message_(std::move(message)) {}
  void send(size_t, std::span<const std::byte>) override {}
  bool sent(size_t) override { return true; }
  void receive(size_t slot, std::span<std::byte> memory) override {
    if (slot == 0) std::ranges::copy(message_, memory.begin());
  }
  std::optional<size_t> received(size_t slot) override {
    return slot == 0 ? std::optional(message_.size()) : std::nullopt;
  }

 private:
  std::vector<std::byte> message_;
};

// Keeps what the link sends.
class Kept final : public StageTransport {
 public:
  explicit Kept(std::vector<std::byte>& message) : message_(message) {}
  void send(size_t, std::span<const std::byte> message) override {
    message_.assign(message.begin(), message.end());
  }
  bool sent(size_t) override { return true; }
  void receive(size_t, std::span<std::byte>) override {}
  std::optional<size_t> received(size_t) override { return std::nullopt; }

 private:
  std::vector<std::byte>& message_;
};

TEST(StageLink, RefusesAMessageWithAnyFieldOfItsHeaderWrongOrOfAnotherLength) {
  const Backend backend = make_backend({.kind = BackendKind::reference});
  std::atomic<bool> waits = false;
  const StageRows rows{most, width, DType::fp32};
  std::vector<std::byte> message;
  MessageLink(std::make_unique<Kept>(message), "stage 0", true, false, rows, *backend.device, waits)
      .send(step_of(7), view(rows_of(7, 3)));
  const auto accepted = [&](std::vector<std::byte> bytes) {
    MessageLink link(std::make_unique<Forged>(std::move(bytes)), "stage 1", false, true, rows,
                     *backend.device, waits);
    try {
      link.take(step_of(7), 3);
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ExitCode::fault);
      return false;
    }
    return true;
  };
  EXPECT_TRUE(accepted(message));
  for (size_t at = 0; at < 64; ++at) {
    std::vector<std::byte> wrong = message;
    wrong[at] ^= std::byte{0x10};
    EXPECT_FALSE(accepted(wrong)) << "byte " << at;
  }
  for (const size_t size :
       {size_t{0}, size_t{1}, size_t{63}, size_t{64}, message.size() - 1, message.size() + 1}) {
    std::vector<std::byte> wrong = message;
    wrong.resize(size);
    EXPECT_FALSE(accepted(wrong)) << size << " bytes";
  }
}

// The other stages do not wait for ever when one fails.
TEST(StageLink, AFailureOfAStageEndsTheOthers) {
  EXPECT_THROW(run_stages(3,
                          [](StageLink& link, int rank) {
                            if (rank == 0) fail(ExitCode::fault, "the first stage failed");
                            link.take(step_of(1), 1);
                          }),
               Error);
}

}  // namespace
}  // namespace maniple
