#include <parallel/collectives.hpp>
#include <parallel/self/memory_mailbox.hpp>
#include <parallel/self/self_communicator.hpp>
#include <parallel/self/self_world.hpp>
#include <parallel/shared_communicator.hpp>
#include <support/thread_world.hpp>

#include <algorithm>
#include <array>
#include <condition_variable>
#include <cstring>
#include <deque>
#include <map>
#include <mutex>
#include <thread>

namespace maniple {

namespace {

// State that the threads share, under one mutex, which is enough for a
// test. A lane holds the messages from one rank to another of one group.
class Job {
 public:
  Job(int ranks, std::chrono::milliseconds deadline) : ranks_(ranks), deadline_(deadline) {}

  using Group = std::pair<std::vector<int>,
                          int>;  // world ranks, and how many groups of the same ranks were made before
  using Lane = std::tuple<Group, int, int>;  // group, from, to

  void send(const Lane& lane, std::span<const std::byte> bytes) {
    const std::lock_guard lock(mutex_);
    lanes_[lane].emplace_back(bytes.begin(), bytes.end());
    changed_.notify_all();
  }

  std::vector<std::byte> receive(const Lane& lane) {
    std::unique_lock lock(mutex_);
    std::deque<std::vector<std::byte>>& messages = lanes_[lane];
    const auto ready = [&] { return !messages.empty() || failure_; };
    if (!changed_.wait_until(lock, std::chrono::steady_clock::now() + deadline_, ready))
      fail(ExitCode::fault, "rank {} of a group waited too long for rank {}", std::get<2>(lane),
           std::get<1>(lane));
    if (messages.empty()) fail(ExitCode::fault, "another rank failed");
    std::vector<std::byte> bytes = std::move(messages.front());
    messages.pop_front();
    return bytes;
  }

  std::optional<std::vector<std::byte>> try_receive(const Lane& lane) {
    const std::lock_guard lock(mutex_);
    if (failure_) fail(ExitCode::fault, "another rank failed");
    std::deque<std::vector<std::byte>>& messages = lanes_[lane];
    if (messages.empty()) return std::nullopt;
    std::vector<std::byte> bytes = std::move(messages.front());
    messages.pop_front();
    ++taken_[lane];
    return bytes;
  }
  void check() {
    const std::lock_guard lock(mutex_);
    if (failure_) fail(ExitCode::fault, "another rank failed");
  }
  // Messages that try_receive has returned.
  uint64_t taken(const Lane& lane) {
    const std::lock_guard lock(mutex_);
    if (failure_) fail(ExitCode::fault, "another rank failed");
    return taken_[lane];
  }

  Channel take_channel(int number, int rank) {
    const std::lock_guard lock(mutex_);
    while (static_cast<int>(channels_.size()) <= number) channels_.push_back(make_memory_channel(ranks_));
    MemoryChannel& channel = channels_[number];
    return {rank == 0 ? std::move(channel.root) : nullptr, std::move(channel.leaves[rank])};
  }

  void report(std::exception_ptr failure) {
    const std::lock_guard lock(mutex_);
    if (!failure_) failure_ = std::move(failure);
    changed_.notify_all();
  }
  std::exception_ptr failure() const { return failure_; }

 private:
  const int ranks_;
  const std::chrono::milliseconds deadline_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::map<Lane, std::deque<std::vector<std::byte>>> lanes_;
  std::map<Lane, uint64_t> taken_;
  std::vector<MemoryChannel> channels_;
  std::exception_ptr failure_;
};

class ThreadTransport : public Transport {
 public:
  ThreadTransport(Job& job, Job::Group group, int rank) : job_(job), group_(std::move(group)), rank_(rank) {}

  int rank() const override { return rank_; }
  int size() const override { return static_cast<int>(group_.first.size()); }

  void exchange(std::span<const Outgoing> outgoing, std::span<const Incoming> incoming) override {
    for (const Outgoing& message : outgoing)
      if (!message.bytes.empty()) job_.send({group_, rank_, message.to}, message.bytes);
    for (const Incoming& message : incoming) {
      if (message.bytes.empty()) continue;
      const std::vector<std::byte> bytes = job_.receive({group_, message.from, rank_});
      if (bytes.size() != message.bytes.size())
        fail(ExitCode::fault, "rank {} sent {} bytes where {} were expected", message.from, bytes.size(),
             message.bytes.size());
      std::memcpy(message.bytes.data(), bytes.data(), bytes.size());
    }
  }
  void poll() override { job_.check(); }

 private:
  Job& job_;
  const Job::Group group_;
  const int rank_;
};

// A lane of its own in each direction; a slot is free when the receiver has taken its message.
class ThreadStageTransport final : public StageTransport {
 public:
  ThreadStageTransport(Job& job, int rank, std::optional<int> previous, std::optional<int> next)
      : job_(job), in_(stages, previous.value_or(-1), rank), out_(stages, rank, next.value_or(-1)) {}

  void send(size_t slot, std::span<const std::byte> message) override {
    job_.send(out_, message);
    sends_[slot] = ++sent_;
  }
  bool sent(size_t slot) override { return job_.taken(out_) >= sends_[slot]; }
  void receive(size_t slot, std::span<std::byte> memory) override {
    receives_[slot] = {memory, std::nullopt};
  }
  std::optional<size_t> received(size_t slot) override {
    auto& [memory, size] = receives_[slot];
    if (size) return size;
    if (const auto bytes = job_.try_receive(in_)) {
      if (bytes->size() > memory.size()) fail(ExitCode::fault, "a message is larger than its slot");
      std::ranges::copy(*bytes, memory.begin());
      size = bytes->size();
    }
    return size;
  }

 private:
  inline static const Job::Group stages{{}, -2};
  Job& job_;
  const Job::Lane in_, out_;
  std::array<uint64_t, slots> sends_{};
  uint64_t sent_ = 0;
  std::array<std::pair<std::span<std::byte>, std::optional<size_t>>, slots> receives_;
};

std::vector<int> counted(int ranks) {
  std::vector<int> all;
  for (int rank = 0; rank < ranks; ++rank) all.push_back(rank);
  return all;
}

constexpr SumWays mixed_ways{{SumWay::one_shot, SumWay::two_shot, SumWay::messages, SumWay::two_shot,
                              SumWay::one_shot, SumWay::two_shot}};

class ThreadWorld : public World {
 public:
  ThreadWorld(Job& job, int rank, int ranks, const MakeGroup& make_group)
      : job_(job), control_(job, {counted(ranks), -1}, rank), make_group_(make_group) {
    for (int local = 0; local < ranks; ++local)
      locations_.push_back({.host = host_name(), .node = 0, .local_rank = local, .local_size = ranks});
  }

  int rank() const override { return control_.rank(); }
  int size() const override { return control_.size(); }
  const std::vector<RankLocation>& locations() const override { return locations_; }
  std::string description() const override { return "threads"; }

  Channel make_channel() override { return job_.take_channel(channels_made_++, rank()); }

  Transport& transport() override { return control_; }

  // A thread must not end the process of the test: this
  // rank throws, and the other ranks throw when they wait.
  [[noreturn]] void abort(int exit_code) override {
    fail(ExitCode{exit_code}, "rank {} aborted the job", rank());
  }

 private:
  std::unique_ptr<StageTransport> make_stage_transport(std::optional<int> previous,
                                                       std::optional<int> next) override {
    return std::make_unique<ThreadStageTransport>(job_, rank(), previous, next);
  }
  std::unique_ptr<Communicator> form_group(std::span<const int> ranks, Ops& ops, AllReduce how) override {
    const std::vector<int> members(ranks.begin(), ranks.end());
    const auto me = std::find(members.begin(), members.end(), rank());
    require(me != members.end(), "a rank makes a group that it is not in");
    const Job::Group group{members, groups_made_[members]++};
    std::unique_ptr<Transport> transport =
        std::make_unique<ThreadTransport>(job_, group, static_cast<int>(me - members.begin()));
    if (make_group_)
      if (auto made = make_group_(rank(), transport, ranks, ops)) return made;
    if (members.size() == 1) return std::make_unique<SelfCommunicator>(ops);
    if (how == AllReduce::automatic && ops.device().shares_host_memory())  // all ways, without a measurement
      if (SharedMemory memory = share_memory(*transport, SharedCommunicator::bytes_of_rank))
        return std::make_unique<SharedCommunicator>(std::move(transport), ops, std::move(memory),
                                                    Backoff::Spin::no, mixed_ways);
    return make_host_communicator(std::move(transport), ops, how, Backoff::Spin::no);
  }

  Job& job_;
  ThreadTransport control_;
  const MakeGroup& make_group_;
  std::vector<RankLocation> locations_;
  std::map<std::vector<int>, int> groups_made_;
  int channels_made_ = 0;
};

void run_threads(int ranks, Job& job, const std::function<void(int rank)>& f) {
  const auto run = [&](int rank) {
    try {
      f(rank);
    } catch (...) {
      job.report(std::current_exception());
    }
  };
  std::vector<std::thread> threads;
  for (int rank = 0; rank < ranks; ++rank) threads.emplace_back(run, rank);
  for (std::thread& thread : threads) thread.join();
  if (job.failure()) std::rethrow_exception(job.failure());
}

}  // namespace

void run_ranks(int ranks, const std::function<void(World&)>& f, std::chrono::milliseconds deadline,
               const MakeGroup& make_group) {
  Job job(ranks, deadline);
  run_threads(ranks, job, [&](int rank) {
    ThreadWorld world(job, rank, ranks, make_group);
    f(world);
  });
}

void run_transports(int ranks, const std::function<void(Transport&)>& f) {
  Job job(ranks, std::chrono::seconds(60));
  run_threads(ranks, job, [&](int rank) {
    ThreadTransport transport(job, {counted(ranks), 0}, rank);
    f(transport);
  });
}

}  // namespace maniple
