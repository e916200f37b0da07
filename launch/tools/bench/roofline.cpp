#include <kernels/support/number_text.hpp>
#include <launch/preflight/facts.hpp>
#include <launch/tools/bench/roofline.hpp>
#include <runtime/collective_phase.hpp>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <numeric>
#include <random>

namespace maniple {
namespace {

namespace fs = std::filesystem;
using Clock = std::chrono::steady_clock;

constexpr double try_seconds = 0.05, probe_seconds = 0.4;
constexpr int least_tries = 3;  // on a slow machine

double sum_of(const std::vector<double>& ranks) { return std::accumulate(ranks.begin(), ranks.end(), 0.0); }

// Rows times a packed square matrix: the product that layers make of a prompt.
class ProductProbe {
 public:
  ProductProbe(Backend& backend, DType type)
      : ops_(*backend.ops),
        weight_(ops_.make_weight({type, width(), width(), 1})),
        x_(touched(*backend.device, type, {rows(), width()})),
        out_(*backend.device, type, {rows(), width()}) {
    constexpr int64_t at_once = 64;
    std::mt19937 random;  // constant values would keep a GPU cool
    std::vector<float> raw(static_cast<size_t>(at_once * width()));
    for (int64_t row = 0; row < width(); row += at_once) {
      for (float& value : raw) value = static_cast<float>(random()) * 0x1p-32F - 0.5F;
      ops_.pack(weight_, row, {view_of(raw.data(), DType::fp32, {at_once, width()})});
    }
    ops_.prepare_matmul(x_, weight_, {}, out_);
  }
  double work() const { return 2.0 * static_cast<double>(rows() * width() * width()); }
  void operator()() { ops_.matmul(x_, weight_, {}, out_); }

 private:
  // Larger ones are no faster on CPUs.
  int64_t rows() const { return ops_.device().shares_host_memory() ? 256 : 4096; }
  int64_t width() const { return ops_.device().shares_host_memory() ? 2048 : 8192; }

  Ops& ops_;
  Weight weight_;
  Tensor x_, out_;
};

// The maxima of long rows: nothing but a read, by all threads.
class ReadProbe {
 public:
  ReadProbe(Backend& backend, uint64_t bytes)
      : ops_(*backend.ops),
        values_(touched(*backend.device, DType::fp32,
                        {static_cast<int64_t>(bytes / sizeof(float)) / columns + 1, columns})),
        maxima_(*backend.device, DType::fp32, {values_.shape()[0]}) {}
  double work() const { return static_cast<double>(values_.view().bytes()); }
  void operator()() {
    ops_.row_maxima(values_, {0, columns},
                    {maxima_.view().as<float>(), static_cast<size_t>(values_.shape()[0])});
  }

 private:
  static constexpr int64_t columns = int64_t{64} << 10;

  Ops& ops_;
  Tensor values_, maxima_;
};

struct Try {
  double rate, seconds;
};

// A rank goes on until the time is over, so that all of them are busy all the time.
template <typename Probe>
Try make_try(Device& device, Probe& probe) {
  const int calls_at_once = device.shares_host_memory() ? 1 : 8;
  const Clock::time_point start = Clock::now();
  double work = 0, seconds = 0;
  while (seconds < try_seconds) {
    for (int call = 0; call < calls_at_once; ++call, work += probe.work()) probe();
    device.synchronize();
    seconds = std::chrono::duration<double>(Clock::now() - start).count();
  }
  return {work / seconds, seconds};
}

// Collective. The rates of the ranks in the try in which all of them together did most: what other programs take is no
// property of the machine.
template <typename Probe, typename Argument>
std::optional<std::vector<double>> best_try(BenchJob& job, Backend& backend, Argument argument) {
  std::optional<Probe> probe;
  collective_phase(job.world(), [&] { probe.emplace(backend, argument); });
  std::vector<double> best;
  double spent = 0;
  for (int tries = 0; tries < least_tries || spent < probe_seconds; ++tries) {
    if (!job.goes_on()) return std::nullopt;
    std::vector<double> rates;
    double longest = 0;
    for (const Try& one : gather_values(job.world(), make_try(*backend.device, *probe))) {
      rates.push_back(one.rate);
      longest = std::max(longest, one.seconds);
    }
    if (sum_of(rates) > sum_of(best)) best = rates;
    spent += longest;
  }
  return best;
}

int count_cpus(const fs::path& list) { return std::max(static_cast<int>(cpus_in(list).size()), 1); }

}  // namespace

Ceilings Roofline::sum() const {
  Ceilings sum;
  for (const Ceilings& rank : ranks) {
    sum.flops += rank.flops;
    sum.read_bytes += rank.read_bytes;
  }
  return sum;
}

std::optional<Roofline> probe_roofline(BenchJob& job, Backend& backend, const PlacedJob& placed) {
  job.activity().phase = Phase::step;  // each try is watched as a step is
  const auto flops = best_try<ProductProbe>(job, backend, placed.agreed.plan.dtype);
  if (!flops) return std::nullopt;
  const auto read_bytes = best_try<ReadProbe>(job, backend, beyond_caches(job.world(), placed));
  if (!read_bytes) return std::nullopt;
  Roofline roofline;
  for (size_t rank = 0; rank < flops->size(); ++rank)
    roofline.ranks.push_back({(*flops)[rank], (*read_bytes)[rank]});
  return roofline;
}

double drift(const Roofline& before, const Roofline& after) {
  const Ceilings first = before.sum(), last = after.sum();
  const double flops = last.flops / first.flops - 1, read_bytes = last.read_bytes / first.read_bytes - 1;
  return std::abs(flops) > std::abs(read_bytes) ? flops : read_bytes;
}

void add_probes(BenchResult& result, const Roofline& before, const Roofline& after) {
  result.numbers["gemm_tflop_s"] = before.sum().flops / 1e12;
  result.numbers["read_gb_s"] = before.sum().read_bytes / 1e9;
  result.numbers["probe_drift"] = drift(before, after);
  result.evidence.probe_drift = drift(before, after);
  for (const auto& [when, probe] : {std::pair("before", &before), std::pair("after", &after)})
    for (size_t rank = 0; rank < probe->ranks.size(); ++rank) {
      const Ceilings& ceilings = probe->ranks[rank];
      RooflineRow& row = result.roofline.emplace_back();
      copy_text(when, row.when);
      row.rank = static_cast<int32_t>(rank);
      row.flops_per_s = ceilings.flops;
      row.read_bytes_per_s = ceilings.read_bytes;
    }
}

Utilisation utilisation_of(const ModelCost& cost, const TimedWork& timed, const Ceilings& ceilings) {
  return {flops(cost, timed.work) / timed.seconds / ceilings.flops,
          bytes_moved(cost, timed.work) / timed.seconds / ceilings.read_bytes};
}

void add_utilisation(BenchResult& result, const ModelCost& cost, const Roofline& roofline) {
  const Ceilings ceilings = roofline.sum();
  Metric mfu{"mfu", "", {}}, mbu{"mbu", "", {}};
  for (const TimedWork& timed : result.work) {
    const Utilisation utilisation = utilisation_of(cost, timed, ceilings);
    mfu.values.push_back(utilisation.mfu);
    mbu.values.push_back(utilisation.mbu);
  }
  const double flop_share = median_interval(mfu.values).median,
               byte_share = median_interval(mbu.values).median;
  result.numbers["mfu"] = flop_share;
  result.numbers["mbu"] = byte_share;
  result.samples.push_back(std::move(mfu));
  result.samples.push_back(std::move(mbu));
  result.last_line.pop_back();  // the line end
  result.last_line += fmt::format(" | MFU {} % of {} TFLOP/s  MBU {} % of {} GB/s (probe drift {:.1f} %)\n",
                                  number_text(100 * flop_share), number_text(ceilings.flops / 1e12),
                                  number_text(100 * byte_share), number_text(ceilings.read_bytes / 1e9),
                                  100 * result.evidence.probe_drift.value_or(0));
}

uint64_t beyond_caches(const World& world, const PlacedJob& placed) {
  constexpr uint64_t on_gpus = uint64_t{1} << 30;
  const int neighbours = world.locations()[static_cast<size_t>(world.rank())].local_size;
  if (placed.agreed.plan.backend.kind == BackendKind::cuda) return on_gpus;
  return 4 * cache_share(placed.place.threads, neighbours);
}

uint64_t cache_share(int threads, int ranks_of_node, const fs::path& root) {
  constexpr uint64_t where_nobody_tells = uint64_t{32} << 20;
  const fs::path cpus = root / "sys/devices/system/cpu";
  for (int index = 9; index > 0; --index) {
    const fs::path cache = cpus / fmt::format("cpu0/cache/index{}", index);
    const uint64_t kibibytes = std::strtoull(first_line(cache / "size").c_str(), nullptr, 10);  // "266240K"
    if (kibibytes == 0) continue;
    const int sharing = count_cpus(cache / "shared_cpu_list"),
              caches = std::max(count_cpus(cpus / "online") / sharing, 1);
    const auto rounded_up = [](int a, int b) { return static_cast<uint64_t>((a + b - 1) / b); };
    return kibibytes * 1024 * rounded_up(threads, sharing) / rounded_up(ranks_of_node, caches);
  }
  return where_nobody_tells;
}

void touch(Device& device, TensorView memory) {
  const std::vector<std::byte> bytes(size_t{1} << 20, std::byte{0x3c});
  for (size_t at = 0; at < memory.bytes(); at += bytes.size())
    device.upload(memory.data + at, bytes.data(), std::min(bytes.size(), memory.bytes() - at));
}

Tensor touched(Device& device, DType type, const Shape& shape) {
  Tensor tensor(device, type, shape);
  touch(device, tensor);
  return tensor;
}

}  // namespace maniple
