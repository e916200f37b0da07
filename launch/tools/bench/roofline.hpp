// What the ranks of a job can do at most: the products and the reads of memory that they were seen to make. The ceilings of
// MFU and MBU.
#pragma once

#include <kernels/backend.hpp>
#include <kernels/tensor/tensor.hpp>
#include <launch/start/start.hpp>
#include <launch/tools/bench/bench_job.hpp>

#include <filesystem>
#include <optional>
#include <vector>

namespace maniple {

// A second.
struct Ceilings {
  double flops = 0;       // of a product of matrices
  double read_bytes = 0;  // from memory
};

// Of each rank, while all of them work.
struct Roofline {
  std::vector<Ceilings> ranks;

  Ceilings sum() const;
};

// Collective, about a second. Nothing after a stop.
std::optional<Roofline> probe_roofline(BenchJob& job, Backend& backend, const PlacedJob& placed);

// The shares of the ceilings that some steps reached in so many seconds: model FLOP and bandwidth utilisation.
struct Utilisation {
  double mfu = 0, mbu = 0;
};
Utilisation utilisation_of(const ModelCost& cost, const TimedWork& timed, const Ceilings& ceilings);
// Into a result with the work of its repeats, after add_probes(): samples, medians, and words on its last line. cost: of the whole
// model.
void add_utilisation(BenchResult& result, const ModelCost& cost, const Roofline& roofline);

// Into a result: the first probe's sums, the drift as evidence, a row for each rank.
void add_probes(BenchResult& result, const Roofline& before, const Roofline& after);
// By how much the ranks' sums changed, as a share of the first; the one that changed more.
double drift(const Roofline& before, const Roofline& after);

// Bytes that a rank must read so that none of them come from a cache: four times its share of the last-level caches.
uint64_t beyond_caches(const World& world, const PlacedJob& placed);
// root: the folder of /sys.
uint64_t cache_share(int threads, int ranks_of_node, const std::filesystem::path& root = "/");

// Writes every page: the system maps those that nobody wrote to a single one, which is always in the cache. The values are
// small numbers in every type.
void touch(Device& device, TensorView memory);
Tensor touched(Device& device, DType type, const Shape& shape);

}  // namespace maniple
