// The contract for tensors in GPU memory, under MPI: groups of one rank use NCCL, larger ones the job's
// --transport. For up to two ranks even NCCL's sums have the bits of the tree, because a + b = b + a.
#include "contract.hpp"

#include <gtest/gtest.h>
#include <kernels/backend.hpp>
#include <kernels/factory/make_backend.hpp>
#include <parallel/nccl/nccl_groups.hpp>
#include <parallel/self/self_communicator.hpp>
#include <support/mpi_main.hpp>

#include <cstdlib>
#include <functional>
#include <numeric>
#include <optional>
#include <span>
#include <vector>

namespace maniple {

namespace {

// Takes tensors in host memory, as the contract does, and works on copies in the device's memory.
class MirroredCommunicator : public Communicator {
 public:
  MirroredCommunicator(std::unique_ptr<Communicator> group, Device& device)
      : group_(std::move(group)), device_(device) {}

  int rank() const override { return group_->rank(); }
  int size() const override { return group_->size(); }
  bool captures() const override { return group_->captures(); }
  void all_reduce(TensorView x) override {
    mirrored(x, [&](TensorView copy) { group_->all_reduce(copy); });
  }
  void all_gatherv(ConstTensorView in, TensorView out, std::span<const int64_t> rows) override {
    const Tensor source = uploaded(in);
    mirrored(out, [&](TensorView copy) { group_->all_gatherv(source, copy, rows); });
  }
  void reduce_scatterv(ConstTensorView in, TensorView out, std::span<const int64_t> rows) override {
    const Tensor source = uploaded(in);
    mirrored(out, [&](TensorView copy) { group_->reduce_scatterv(source, copy, rows); });
  }
  void all_to_all(ConstTensorView in, TensorView out) override {
    const Tensor source = uploaded(in);
    mirrored(out, [&](TensorView copy) { group_->all_to_all(source, copy); });
  }
  void broadcast(TensorView x, int root) override {
    mirrored(x, [&](TensorView copy) { group_->broadcast(copy, root); });
  }
  void send(ConstTensorView x, int to) override { group_->send(uploaded(x), to); }
  void receive(TensorView x, int from) override {
    mirrored(x, [&](TensorView copy) { group_->receive(copy, from); });
  }

 private:
  Tensor uploaded(ConstTensorView host) {
    Tensor copy(device_, host.dtype, host.shape);
    if (!host.empty()) device_.upload(copy.view().data, host.data, host.bytes());
    return copy;
  }
  void mirrored(TensorView host, const std::function<void(TensorView)>& work) {
    Tensor copy = uploaded(host);
    work(copy);
    if (!host.empty()) device_.download(host.data, copy.view().data, host.bytes());
    device_.synchronize();
  }

  std::unique_ptr<Communicator> group_;
  Device& device_;
};

// Uses the GPU of this rank's number, or else the first GPU: ranks may share one.
Backend gpu_backend(int local_rank) {
  try {
    return make_backend({.kind = BackendKind::cuda, .gpu = local_rank});
  } catch (const Error&) {
    return make_backend({.kind = BackendKind::cuda, .gpu = 0});
  }
}

// The world of the test, but its groups work on the GPU, and groups of one rank use NCCL too.
class GpuWorld : public World {
 public:
  int rank() const override { return world_.rank(); }
  int size() const override { return world_.size(); }
  const std::vector<RankLocation>& locations() const override { return world_.locations(); }
  std::string description() const override { return world_.description(); }
  Channel make_channel() override { return world_.make_channel(); }
  Transport& transport() override { return world_.transport(); }
  std::optional<std::string> fault() override { return world_.fault(); }
  [[noreturn]] void abort(int exit_code) override {
    world_.abort(exit_code);
    end_process(exit_code);  // for compilers that forget [[noreturn]] in virtual calls
  }

 private:
  std::unique_ptr<StageTransport> make_stage_transport(std::optional<int>, std::optional<int>) override {
    fail(ExitCode::internal, "the contract has no stages");
  }
  std::unique_ptr<Communicator> form_group(std::span<const int> ranks, Ops& ops, AllReduce how) override {
    if (!ops.device().shares_host_memory()) return world_.make_group(ranks, ops, how);
    SelfTransport alone;
    auto group = ranks.size() == 1 ? of_one_.make(alone, ranks, *backend_.device)
                                   : world_.make_group(ranks, *backend_.ops, how);
    return std::make_unique<MirroredCommunicator>(std::move(group), *backend_.device);
  }

  World& world_ = mpi_test_world();
  Backend backend_ = gpu_backend(world_.locations()[world_.rank()].local_rank);
  NcclGroups of_one_{make_nccl_api(), GpuTransport::nccl};
};

class GpuContract : public testing::TestWithParam<ContractCase> {};

TEST_P(GpuContract, Holds) {
  std::optional<GpuWorld> world;
  try {
    world.emplace();
  } catch (const Error& error) {
    GTEST_SKIP() << "no GPU: " << error.what();
  }
  world->barrier();
  GetParam().run(*world);
}

// A captured all-reduce of all ranks sums what is in its memory at each replay, as a graph of decode steps does.
TEST(GpuGroup, ACapturedSumIsReplayedWithOtherInputs) {
  World& world = mpi_test_world();
  std::optional<Backend> backend;
  try {
    backend.emplace(gpu_backend(world.locations()[world.rank()].local_rank));
  } catch (const Error& error) {
    GTEST_SKIP() << "no GPU: " << error.what();
  }
  std::vector<int> everyone(world.size());
  std::iota(everyone.begin(), everyone.end(), 0);
  NcclGroups alone(make_nccl_api(), GpuTransport::nccl);
  SelfTransport self;
  const auto group = world.size() == 1 ? alone.make(self, everyone, *backend->device)
                                       : world.make_group(everyone, *backend->ops);
  if (!group->captures()) return;  // through the host
  Device& device = *backend->device;
  constexpr int64_t count = 5000;
  Tensor x(device, DType::fp32, {count});
  std::vector<float> values(count);
  const auto summed_with = [&](float first, const auto& sum) {
    for (int64_t i = 0; i < count; ++i)
      values[i] = first * static_cast<float>(world.rank() + 1) + static_cast<float>(i);
    device.upload(x.view().data, std::as_writable_bytes(std::span(values)).data(), x.view().bytes());
    sum();
    device.download(std::as_writable_bytes(std::span(values)).data(), x.view().data, x.view().bytes());
    const float ranks = static_cast<float>(world.size()), firsts = first * ranks * (ranks + 1) / 2;
    int64_t wrong = 0;
    for (int64_t i = 0; i < count; ++i) wrong += values[i] != firsts + ranks * static_cast<float>(i);
    EXPECT_EQ(wrong, 0) << "of " << count << " sums from " << first << " on";
  };
  summed_with(1, [&] { group->all_reduce(x); });
  const std::unique_ptr<Graph> graph = device.capture([&] { group->all_reduce(x); });
  for (const float first : {3.0f, 8.0f}) summed_with(first, [&] { graph->replay(); });
  world.barrier();
}

INSTANTIATE_TEST_SUITE_P(parallel, GpuContract, testing::ValuesIn(contract_cases()),
                         [](const auto& test) { return test.param.name; });

}  // namespace

}  // namespace maniple
