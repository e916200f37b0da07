#include <launch/output/report.hpp>
#include <launch/run_directory/manifest.hpp>
#include <launch/run_directory/run_directory.hpp>
#include <launch/start/start.hpp>
#include <runtime/collective_phase.hpp>

namespace maniple {

std::optional<DType> begun_type(World& world, const JobOptions& options) {
  std::optional<DType> type;
  collective_phase(world, [&] {
    if (world.rank() != 0 || !options.run_dir || options.engine.dtype) return;
    const std::optional<Manifest> there = binding_manifest(*options.run_dir);
    const std::string* const name = there ? there->find("dtype") : nullptr;
    if (name && *name == name_of(DType::bf16)) type = DType::bf16;
  });
  return type;
}

std::optional<PlacedJob> start(World& world, const JobOptions& options, const BetweenSteps& between) {
  PlacedJob job;
  job.agreed = agree(world, options.engine, begun_type(world, options));
  const std::optional<uint64_t> results_bytes = between.agreed(job.agreed);
  if (!results_bytes) return std::nullopt;
  job.preflight = run_preflight(world, options, job.agreed.plan, *results_bytes);
  if (!between.checked) report_checks(world, job.preflight, options.quiet);
  if (between.checked && !between.checked(job)) return std::nullopt;
  job.place = place(world, options.engine, job.agreed.plan);
  return job;
}

ExitCode watched(World& world, const JobOptions& options, const Supervision& supervision,
                 VitalsObserver* vitals, const std::function<ExitCode(HealthMonitor&)>& work) {
  HealthMonitor health(
      world, supervision.peers, Deadlines::within(options.deadline),
      [&](const FaultReport& fault) { supervision.faults.report(fault); }, vitals);
  supervision.start.reset();
  return work(health);
}

void report_checks(World& world, const Preflight& preflight, bool quiet) {
  collective_phase(world, [&] {
    if (world.rank() != 0) return;
    say(preflight_text(preflight.results, quiet));
    throw_refusal(preflight.results);
  });
}

}  // namespace maniple
