#include <kernels/support/counted.hpp>
#include <launch/tools/analysis/summary_text.hpp>
#include <launch/tools/bench/load.hpp>
#include <runtime/collective_phase.hpp>
#include <runtime/start/start.hpp>

#include <fcntl.h>

namespace maniple {
namespace {

// The system keeps pages that it still has to write, or that a program has mapped.
void drop_from_page_cache(const WeightIndex& index) {
  for (const IndexedFile& file : index.files) {
    const FileDescriptor descriptor(::open(file.path.c_str(), O_RDONLY | O_CLOEXEC));
    if (descriptor) ::posix_fadvise(descriptor.get(), 0, 0, POSIX_FADV_DONTNEED);
  }
}

uint64_t bytes_of(const WeightIndex& index) {
  uint64_t bytes = 0;
  for (const auto& [name, tensor] : index.tensors) bytes += tensor.info.byte_size;
  return bytes;
}

}  // namespace

std::optional<BenchResult> bench_load(BenchJob& job, const PlacedJob& placed) {
  World& world = job.world();
  const EngineOptions& engine = job.options().engine;
  const WeightIndex index = share_index(world, *placed.agreed.model);
  const bool drops =
      job.options().cold && world.locations()[static_cast<size_t>(world.rank())].local_rank == 0;
  size_t turn = 0;
  uint64_t mine = 0;
  const auto load_once = [&] {
    job.progress(turn++,
                 static_cast<size_t>(job.options().warmup) + static_cast<size_t>(job.options().repeats),
                 "load " + engine.model.string());
    if (drops) drop_from_page_cache(index);
    world.barrier();
    const EngineInfo info = load(world, engine, placed.agreed, placed.place, job.activity()).model().info();
    mine = info.bytes_read;
    return info.load_seconds;
  };
  const std::optional<std::vector<double>> times = job.repeat(load_once);
  if (!times) return std::nullopt;
  const Interval seconds = median_interval(*times);
  const uint64_t bytes = job.sum(mine), size = bytes_of(index);
  const double factor = static_cast<double>(bytes) / static_cast<double>(size);
  const double speed = static_cast<double>(bytes) / seconds.median / 1e9;
  job.print(fmt::format(
      "# load {}: {} bytes in {}, {}, page cache {}; times of the slowest rank; {}, median [95 % CI]\n"
      "#{:>14} {:>7} {:>9}  {:20} {:>7}\n"
      "{:>15} {:>7.3f} {:>9}  {:20} {:>7.3f}\n",
      engine.model.string(), size, counted(index.files.size(), "file"),
      counted(static_cast<uint64_t>(world.size()), "rank"), job.options().cold ? "dropped" : "warm",
      counted(static_cast<uint64_t>(job.options().repeats), "repeat"), "bytes", "factor", "time(s)", "[CI]",
      "GB/s", bytes, factor, number_text(seconds.median), limits_text(seconds), speed));
  BenchResult result;
  result.numbers = {{"model", engine.model.string()},
                    {"model_bytes", size},
                    {"files", index.files.size()},
                    {"cold", job.options().cold},
                    {"bytes", bytes},
                    {"factor", factor},
                    {"time_s", seconds.median},
                    {"ci_low_s", seconds.low},
                    {"ci_high_s", seconds.high},
                    {"gb_s", speed},
                    {"fom", {{"metric", "load"}, {"value", speed}, {"unit", "GB/s"}}}};
  result.last_line = fmt::format("# fom: load = {:.3f} GB/s\n", speed);
  result.evidence.results = {{"load", seconds}};
  result.samples = {{"load_s", "s", *times}, {"load_gb_per_s", "GB/s", {}}};
  for (const double time : *times)
    result.samples[1].values.push_back(static_cast<double>(bytes) / time / 1e9);
  return result;
}

}  // namespace maniple
