#include <kernels/factory/make_backend.hpp>
#include <kernels/support/number_text.hpp>
#include <kernels/support/quantile.hpp>
#include <kernels/tensor/tensor.hpp>
#include <launch/preflight/measurements.hpp>
#include <launch/run_directory/durable_file.hpp>
#include <runtime/checkpoint/model_files.hpp>
#include <runtime/collective_phase.hpp>

#include <fmt/ranges.h>

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <functional>
#include <numeric>

namespace maniple {

namespace fs = std::filesystem;

namespace {

using Work = std::function<void()>;

double seconds_of(const Work& work) {
  const auto start = std::chrono::steady_clock::now();
  work();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

// The first call warms up caches, connections and page tables.
double median_seconds(int times, const Work& work) {
  work();
  std::vector<double> seconds;
  for (int i = 0; i < times; ++i) seconds.push_back(seconds_of(work));
  return quantile(std::move(seconds), 0.5);
}

// Half of a round trip, in us. The peer calls it at the same time; one of both is first to send.
double one_way_us(Communicator& group, const TensorView& message, int peer, bool first, int times) {
  return median_seconds(times,
                        [&] {
                          if (first) group.send(message, peer);
                          group.receive(message, peer);
                          if (!first) group.send(message, peer);
                        }) /
         2 * 1e6;
}

// Half of the round trip from rank 0, one rank after the other, through the host:
// MPI's own latency. Pairs inside a node and pairs between nodes are not comparable.
std::vector<Measurement> measure_latency(World& world, Communicator& everyone) {
  constexpr int times = 50;
  const auto size = static_cast<size_t>(world.size());
  Measurement inside{"latency from rank 0, same node", "us", false, 5, std::vector<double>(size)};
  Measurement between{"latency from rank 0, other nodes", "us", false, 5, std::vector<double>(size)};
  float word = 0;
  const TensorView message = view_of(&word, DType::fp32, {1});
  for (int other = 1; other < world.size(); ++other) {
    const bool near = world.locations()[static_cast<size_t>(other)].node == world.locations()[0].node;
    double us = 0;
    if (world.rank() == 0) us = one_way_us(everyone, message, other, true, times);
    if (world.rank() == other) one_way_us(everyone, message, 0, false, times);
    (near ? inside : between).by_rank[static_cast<size_t>(other)] = us;
  }
  return {inside, between};
}

// Half of the round trip to the same tensor rank of the next stage: all links after an even stage at the same time, then the others.
std::vector<Measurement> measure_stage_links(World& world, Communicator& everyone, const RankPlan& rank) {
  constexpr int times = 25;
  std::vector<Measurement> links;
  for (const size_t bytes : {size_t{4} << 10, size_t{1} << 20}) {
    std::vector<float> rows(bytes / sizeof(float));
    const TensorView message = view_of(rows.data(), DType::fp32, {static_cast<int64_t>(rows.size())});
    double us = 0;
    world.barrier();
    for (const int parity : {0, 1})
      if (rank.position.pipeline % 2 == parity && rank.groups.next)
        us = one_way_us(everyone, message, *rank.groups.next, true, times);
      else if (rank.position.pipeline % 2 != parity && rank.groups.previous)
        one_way_us(everyone, message, *rank.groups.previous, false, times);
    links.push_back(
        {fmt::format("{} to the next stage", bytes_text(bytes)), "us", false, 5, gather_values(world, us)});
  }
  return links;
}

// Groups work at the same time, as they do in a run.
std::vector<Measurement> sweep_all_reduce(World& world, const char* name, std::span<const int> ranks,
                                          Backend& backend, AllReduce how = AllReduce::messages) {
  const std::unique_ptr<Communicator> group = world.make_group(ranks, *backend.ops, how);
  std::vector<Measurement> sweep;
  for (size_t bytes = size_t{4} << 10; bytes <= size_t{16} << 20; bytes *= 4) {
    Tensor values(*backend.device, DType::fp32, {1, static_cast<int64_t>(bytes / sizeof(float))});
    const int calls = bytes < size_t{1} << 20 ? 20 : 1;  // a rank may be ahead of others for a few short ones
    world.barrier();
    const double seconds = median_seconds(5, [&] {
      for (int call = 0; call < calls; ++call) group->all_reduce(values);
      backend.device->synchronize();
    });
    sweep.push_back({fmt::format("all-reduce of {}, {}", bytes_text(bytes), name), "us", false, 3,
                     gather_values(world, seconds / calls * 1e6)});
  }
  return sweep;
}

// Adds arrays far larger than the caches, on all ranks at the same time: reads two, writes one.
Measurement measure_memory(World& world, Backend& backend) {
  constexpr int times = 3;
  const Shape shape{1024, 16 * 1024};
  Device& device = *backend.device;
  Tensor a(device, DType::fp32, shape), b(device, DType::fp32, shape), sum(device, DType::fp32, shape);
  world.barrier();
  const double seconds = median_seconds(times, [&] {
    backend.ops->add(a, b, sum);
    device.synchronize();
  });
  const double bytes = 3.0 * static_cast<double>(sum.view().bytes());
  return {"memory of a rank", "GB/s", true, 3, gather_values(world, bytes / seconds / 1e9)};
}

// Bytes per second from the storage, not from this node's page cache.
double read_speed(const ModelFiles& files) {
  constexpr uint64_t most = uint64_t{256} << 20, part = uint64_t{8} << 20;
  std::vector<std::byte> bytes(part);
  uint64_t done = 0;
  const double seconds = seconds_of([&] {
    for (const std::filesystem::path& path : files.weight_files()) {
      const InputFile file(path);
      const FileDescriptor cached(::open(file.path().c_str(), O_RDONLY | O_CLOEXEC));
      ::posix_fadvise(cached.get(), 0, 0, POSIX_FADV_DONTNEED);
      for (uint64_t at = 0; at < file.size() && done < most; at += part) {
        const size_t count = std::min(part, file.size() - at);
        file.read(at, std::span(bytes).first(count));
        done += count;
      }
    }
  });
  return static_cast<double>(done) / seconds;
}

// The first rank of each node, at the same time.
Measurement measure_storage(World& world, const fs::path& model) {
  double speed = 0;
  collective_phase(world, [&] {
    const bool reads = world.locations()[static_cast<size_t>(world.rank())].local_rank == 0;
    if (reads && !model.empty()) speed = read_speed(model);
  });
  return {"reading the model, each node", "GB/s", true, 3, gather_values(world, speed / 1e9)};
}

// Rank 0: time until 64 KiB are on disk, in an unlinked file, which no failure leaves behind.
Measurement measure_sync(World& world, const std::optional<fs::path>& folder) {
  constexpr int times = 10;
  constexpr size_t bytes = size_t{64} << 10;
  double seconds = 0;
  collective_phase(world, [&] {
    if (world.rank() != 0 || !folder) return;
    const fs::path path = *folder / fmt::format("maniple-doctor.{}", ::getpid());
    DurableFile file(path);
    ::unlink(path.c_str());
    seconds = median_seconds(times, [&] {
      file.append(std::string(bytes, 'x'));
      file.sync();
    });
  });
  return {"64 KiB safe in the run directory", "ms", false, 3, gather_values(world, seconds * 1e3)};
}

// Ranks that measured, the best first.
std::vector<size_t> ranking(const Measurement& series) {
  std::vector<size_t> ranks;
  for (size_t rank = 0; rank < series.by_rank.size(); ++rank)
    if (series.by_rank[rank] > 0) ranks.push_back(rank);
  std::ranges::sort(ranks, [&](size_t left, size_t right) {
    const double a = series.by_rank[left], b = series.by_rank[right];
    return series.more_is_better ? a > b : a < b;
  });
  return ranks;
}

// Of two middle ranks the better one.
double median_of(const Measurement& series, const std::vector<size_t>& ranking) {
  return series.by_rank[ranking[(ranking.size() - 1) / 2]];
}

}  // namespace

std::vector<Measurement> measure(World& world, const JobPlan& plan, Backend& backend,
                                 const std::filesystem::path& model,
                                 const std::optional<std::filesystem::path>& folder) {
  std::vector<Measurement> measured;
  const auto add = [&](std::vector<Measurement> series) {
    measured.insert(measured.end(), series.begin(), series.end());
  };
  const RankPlan rank = plan.rank(world.rank());
  const std::vector<int>& group = rank.groups.tensor;
  std::vector<int> everyone(static_cast<size_t>(world.size()));
  std::iota(everyone.begin(), everyone.end(), 0);
  Backend host = make_backend({.kind = BackendKind::reference});
  {
    const std::unique_ptr<Communicator> messages = world.make_group(everyone, *host.ops);
    add(measure_latency(world, *messages));
    if (plan.grid.pipeline > 1) add(measure_stage_links(world, *messages, rank));
  }
  if (group.size() > 1) add(sweep_all_reduce(world, "tensor groups", group, backend));
  if (group.size() > 1 && !plan.tensor_groups_span_nodes && backend.device->shares_host_memory())
    add(sweep_all_reduce(world, "in shared memory", group, backend, AllReduce::shared));
  if (everyone.size() > group.size()) add(sweep_all_reduce(world, "all ranks", everyone, backend));
  add({measure_memory(world, backend), measure_storage(world, model), measure_sync(world, folder)});
  return measured;
}

std::string measurements_text(const std::vector<Measurement>& measured,
                              const std::vector<RankLocation>& locations) {
  std::string text;
  for (const Measurement& series : measured) {
    const std::vector<size_t> ranks = ranking(series);
    if (ranks.empty()) continue;
    const auto one = [&](size_t rank) {
      return fmt::format("{} rank {} on {}", number_text(series.by_rank[rank]), rank, locations[rank].host);
    };
    text += fmt::format("{:40} {:>8} {}", series.name, number_text(median_of(series, ranks)), series.unit);
    if (ranks.size() > 1)
      text += fmt::format(" (best: {}; worst: {})", one(ranks.front()), one(ranks.back()));
    text += '\n';
  }
  return text;
}

std::vector<Finding> find_outliers(const std::vector<Measurement>& measured,
                                   const std::vector<RankLocation>& locations) {
  std::vector<Finding> findings;
  for (const Measurement& series : measured) {
    const std::vector<size_t> ranks = ranking(series);
    if (ranks.empty()) continue;
    const double usual = median_of(series, ranks);
    std::vector<std::string> bad;
    for (const size_t rank : ranks) {
      const double value = series.by_rank[rank];
      if ((series.more_is_better ? usual / value : value / usual) > series.tolerance && bad.size() < 8)
        bad.push_back(fmt::format("{} {} at rank {} on {}", number_text(value), series.unit, rank,
                                  locations[rank].host));
    }
    if (!bad.empty())
      findings.push_back({Severity::warning,
                          fmt::format("{}: {}; the median is {} {}", series.name, fmt::join(bad, ", "),
                                      number_text(usual), series.unit),
                          "a step, or loading, takes as long as on the slowest rank",
                          fmt::format("run it again; if it stays, --exclude={} and tell the site",
                                      locations[ranks.back()].host)});
  }
  return findings;
}

}  // namespace maniple
