#include <launch/commands/commands.hpp>
#include <launch/option_names.hpp>
#include <launch/preflight/measurements.hpp>
#include <launch/preflight/preflight.hpp>
#include <launch/run_identity.hpp>
#include <runtime/agreement.hpp>
#include <runtime/control/health.hpp>
#include <runtime/device_choice.hpp>
#include <runtime/shared_model.hpp>

#include <cstdio>

namespace maniple {
namespace {

void print(const std::string& text) {
  std::fputs(text.c_str(), stdout);
  std::fflush(stdout);
}

std::string checks_text(const std::vector<CheckResult>& results) {
  std::string text;
  for (const auto& [name, finding] : results)
    text += finding ? finding_block(*finding) : fmt::format("ok: {}\n", name);
  return text;
}

Backend backend_of(const World& world, const EngineOptions& engine, const CpuShare& share) {
  BackendOptions options = engine.backend;
  options.threads = share.threads;
  options.cpus = share.cpus;
  const Place& place = world.places()[static_cast<size_t>(world.rank())];
  if (options.kind == BackendKind::cuda) options.gpu = choose_gpu(visible_gpus(), place, engine.share_gpus);
  return make_backend(options);
}

void measure_and_judge(World& world, const JobOptions& options, const JobPlan& plan, const CpuShare& share) {
  Backend backend;
  agree(world, [&] { backend = backend_of(world, options.engine, share); });
  const std::vector<Series> measured = measure(world, options, plan, backend);
  if (world.rank() != 0) return;
  print('\n' + measurements_text(measured, world.places()));
  const std::vector<Finding> findings = judge(measured, world.places());
  for (const Finding& finding : findings) print(finding_block(finding));
  if (findings.empty()) print("nothing measured looks wrong\n");
}

ExitCode examine(World& world, const DoctorOptions& asked) {
  JobOptions options = asked;
  options.engine.backend.kind = common_backend(world, options.engine.backend.kind);
  if (options.engine.backend.cpu_path == CpuPath::automatic)
    options.engine.backend.cpu_path = common_cpu_path(world);
  agree(world, [&] { plan_or_refuse(world.places(), options.engine); });
  std::optional<SharedModel> model;
  if (!options.engine.model.empty()) model = share_model(world, options.engine.model);
  if (model) options.engine.dtype = job_dtype(world, options, model->config);
  JobPlan plan;
  agree(world,
        [&] { plan = plan_or_refuse(world.places(), options.engine, model ? &model->config : nullptr); });
  const Preflight preflight = run_preflight(world, options, plan);
  if (world.rank() == 0)
    print(fmt::format("maniple {}, {}\n{}\n{}", MANIPLE_VERSION, world.description(),
                      rank_table(preflight.situation), checks_text(preflight.results)));
  const bool refused = gather_values(world, has_refusal(preflight.results) ? 1 : 0).front() == 1;
  if (refused) return world.rank() == 0 ? ExitCode::preflight : ExitCode::complete;
  if (options.run_dir) options.run_dir = preflight.situation.ranks[0].run_dir.path;
  if (!asked.quick) measure_and_judge(world, options, plan, preflight.share);
  return ExitCode::complete;
}

}  // namespace

ExitCode run_doctor(World& world, const DoctorOptions& options, const Reporters& reporters) {
  Health health(world, reporters.neighbours, Deadlines::within(options.deadline),
                [&](const FaultReport& fault) { reporters.faults.tell(fault); });
  reporters.start.reset();
  try {
    return examine(world, options);
  } catch (const AgreedError& error) {
    health.tell_agreed(error, error.rank());
    throw;
  }
}

}  // namespace maniple
