#include <kernels/support/counted.hpp>
#include <launch/commands/commands.hpp>
#include <launch/option_names.hpp>
#include <launch/preflight/measurements.hpp>
#include <launch/preflight/preflight.hpp>
#include <launch/requests.hpp>
#include <launch/run_identity.hpp>
#include <launch/text_files.hpp>
#include <runtime/agreement.hpp>
#include <runtime/control/health.hpp>
#include <runtime/device_choice.hpp>
#include <runtime/shared_model.hpp>

#include <cstdio>
#include <filesystem>

namespace maniple {

namespace fs = std::filesystem;

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

// Checked as generate does; what can be read only once is left to it.
std::string input_text(const std::vector<std::string>& in) {
  if (in.empty()) return {};
  for (const std::string& path : in)
    if (path == "-" || (fs::exists(path) && !fs::is_regular_file(path) && !fs::is_directory(path)))
      return fmt::format("not checked: --in {}, which can be read only once\n", path);
  LineReader input(in, [](const LineReader::Line& line) { return request_of_text(line); });
  const uint64_t requests = validate_requests(input).requests;
  return fmt::format("ok: {} in {}\n", counted(requests, "request"), input.name());
}

// What the lengths come to.
std::string needs_text(const JobPlan& plan, const EngineOptions& engine) {
  if (plan.needs.empty()) return {};
  const RankNeeds& needs = plan.needs[0];
  const size_t blocks = (plan.max_model_len + engine.block_size - 1) / engine.block_size;
  return fmt::format("needs of a rank: {} for weights; {} for the KV cache of a request of {}, {} for {}\n",
                     bytes_text(needs.weight_bytes), bytes_text(blocks * needs.kv.block_bytes()),
                     counted(plan.max_model_len, "token"),
                     bytes_text(engine.max_num_seqs * blocks * needs.kv.block_bytes()), engine.max_num_seqs);
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
  std::string input;  // it may be long, and is read when nothing else is wrong
  agree(world, [&] {
    if (world.rank() == 0) input = input_text(asked.in);
  });
  const Preflight preflight = run_preflight(world, options, plan);
  if (world.rank() == 0)
    print(fmt::format("maniple {}, {}\n{}\n{}", MANIPLE_VERSION, world.description(),
                      rank_table(preflight.situation),
                      needs_text(plan, options.engine) + checks_text(preflight.results) + input));
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
