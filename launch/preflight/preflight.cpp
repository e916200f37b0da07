#include <kernels/factory/make_backend.hpp>
#include <kernels/support/counted.hpp>
#include <launch/preflight/preflight.hpp>
#include <runtime/collective_phase.hpp>
#include <runtime/start/start.hpp>

#include <fmt/format.h>

#include <algorithm>

namespace maniple {
namespace {

std::optional<double> seconds_left(const TimeLimit& limit) {
  constexpr std::chrono::seconds patience{2};
  const auto asked = asked_end(limit, patience);
  const auto end = asked ? asked : presumed_end(limit);
  if (!end) return std::nullopt;
  return std::chrono::duration<double>(time_to_stop(limit, *end) - WallClock::now()).count();
}

std::string device_of(const JobFacts& job, size_t rank) {
  if (!job.on_gpus()) return "cpu";
  const GpuFacts* gpu = job.gpu_of(rank);
  return gpu ? fmt::format("{} {}", gpu->bus, gpu->uuid) : "no GPU";
}

}  // namespace

std::vector<std::vector<int>> masks_of(const JobFacts& job) {
  std::vector<std::vector<int>> masks;
  for (const RankFacts& facts : job.ranks) masks.push_back(facts.cpus);
  return masks;
}

Preflight run_preflight(World& world, const JobOptions& options, const JobPlan& plan,
                        uint64_t results_bytes) {
  Preflight preflight{
      {.options = options, .plan = plan, .locations = world.locations(), .cuda_build = has_cuda_backend()},
      {}};
  JobFacts& job = preflight.job;
  RankFacts mine;
  collective_phase(world, [&] {
    if (job.on_gpus() && visible_gpus() > 0) {  // loaded before the versions of loaded libraries are compared
      open_gpu_libraries();
      world.open_gpu_transport();
    }
    mine = read_facts();
    mine.versions["MPI"] = world.description();
    if (options.run_dir) mine.run_dir = read_storage(*options.run_dir);
    if (plan.needs.empty() || !options.loads_model) return;
    const RankNeeds& needs = plan.needs_of(world.rank());
    mine.weight_bytes = needs.weight_bytes;
    // Without --kv-memory the cache takes the free memory; it needs at least one block.
    mine.kv_bytes = options.engine.kv_memory.value_or(KvBlocks{1, 1}.bytes(needs.kv));
  });
  mine.clock = read_clock(world);
  job.ranks = gather_facts(world, mine);
  if (world.rank() != 0) return preflight;
  job.results_bytes = results_bytes;
  job.seconds_left = seconds_left(options.time_limit);
  preflight.results = run_checks(job);
  return preflight;
}

std::string rank_table(const JobFacts& job, size_t most) {
  const std::vector<std::vector<int>> masks = masks_of(job);
  const int hosts = static_cast<int>(std::ranges::max(job.locations, {}, [](const RankLocation& location) {
                                       return location.host.size();
                                     }).host.size());
  const GridSize& grid = job.plan.grid;
  const bool stages = grid.pipeline > 1, contexts = grid.context > 1, experts = grid.expert > 1;
  std::string table = fmt::format("rank  {:{}}  tp  {}{}{}dp  CPUs    device\n", "node", hosts,
                                  contexts ? "cp  " : "", experts ? "ep  " : "", stages ? "pp  " : "");
  for (size_t rank = 0; rank < std::min(job.size(), most); ++rank) {
    const auto number = static_cast<int>(rank);
    const RankPlace place = share_cpus(masks, job.locations, number, job.options.engine.threads);
    const GridPosition position = position_in(job.plan.grid, number);
    table += fmt::format("{:4}  {:{}}  {:2}  {}{}{}{:2}  {:6}  {}\n", rank, job.locations[rank].host, hosts,
                         position.tensor,
                         contexts ? fmt::format("{:2}  ", job.plan.rank(number).context().owner) : "",
                         experts ? fmt::format("{:2}  ", job.plan.rank(number).expert().rank) : "",
                         stages ? fmt::format("{:2}  ", position.pipeline) : "", position.data,
                         ranges_text(place.cpus.empty() ? masks[rank] : place.cpus), device_of(job, rank));
  }
  if (job.size() > most) table += fmt::format("({} more)\n", job.size() - most);
  return table;
}

std::string preflight_text(const std::vector<CheckResult>& results, bool quiet) {
  std::string text;
  size_t counts[3] = {};
  for (const auto& [name, finding] : results) {
    if (!finding) continue;
    ++counts[static_cast<size_t>(finding->severity)];
    if (finding->severity == Severity::warning) text += "maniple: " + finding_block(*finding);
  }
  const auto [notes, warnings, refusals] = counts;
  if (quiet) return text;
  return text + fmt::format("maniple: preflight: {} ok, {}{}\n",
                            counted(results.size() - warnings - refusals, "check"),
                            counted(warnings, "warning"),
                            refusals > 1 ? fmt::format(", {} refusals; the first:", refusals) : "");
}

}  // namespace maniple
