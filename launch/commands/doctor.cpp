#include <kernels/support/counted.hpp>
#include <kernels/support/number_text.hpp>
#include <launch/commands/commands.hpp>
#include <launch/commands/run_identity.hpp>
#include <launch/input/line_reader.hpp>
#include <launch/input/requests.hpp>
#include <launch/options/option_names.hpp>
#include <launch/output/output_file.hpp>
#include <launch/preflight/measurements.hpp>
#include <launch/preflight/preflight.hpp>
#include <launch/supervision/health_monitor.hpp>
#include <layers/models/model.hpp>
#include <runtime/checkpoint/loading/kv_scales.hpp>
#include <runtime/checkpoint/loading/weight_loader.hpp>
#include <runtime/collective_phase.hpp>
#include <runtime/device_choice.hpp>

#include <algorithm>
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

// Checks output, input and run directory as generate does, except stdin and pipes, which can be read only
// once.
std::string files_text(const DoctorOptions& options, const JobPlan& plan) {
  const auto once = std::ranges::find_if(options.in, [](const std::string& path) {
    return path == "-" || (fs::exists(path) && !fs::is_regular_file(path) && !fs::is_directory(path));
  });
  std::optional<LineReader> input;
  if (!options.in.empty() && once == options.in.end())
    input.emplace(options.in, [](const LineReader::Line& line) { return request_of_text(line); });
  std::string text;
  if (options.out) {
    check_output(*options.out, options.overwrite, input ? &*input : nullptr);
    text = fmt::format("ok: results can go to {}\n", *options.out);
  }
  if (!input)
    return text + (options.in.empty()
                       ? ""
                       : fmt::format("not checked: --in {}, which can be read only once\n", *once));
  if (options.run_dir && !options.engine.model.empty())
    check_goes_on(*options.run_dir, options, plan, input->hash());
  return text +
         fmt::format("ok: {} in {}\n", counted(validate_requests(*input).requests, "request"), input->name());
}

// The memory that one rank needs for weights and for requests of full length.
std::string needs_text(const JobPlan& plan, const EngineOptions& engine) {
  if (plan.needs.empty()) return {};
  const size_t blocks = (plan.max_model_len + plan.block_tokens - 1) / plan.block_tokens;
  const std::string stages = stages_text(plan);
  std::string text = stages.empty() ? "" : fmt::format("stages: {}\n", stages);
  for (int stage = 0; stage < plan.grid.pipeline; ++stage) {
    const RankNeeds& needs = plan.needs_of(stage * plan.grid.tensor);
    text +=
        fmt::format("needs of a rank{}: {} for weights; {} for the KV cache of a request of {}, {} for {}\n",
                    stages.empty() ? "" : fmt::format(" of stage {}", stage), bytes_text(needs.weight_bytes),
                    bytes_text(blocks * needs.kv.block_bytes()), counted(plan.max_model_len, "token"),
                    bytes_text(engine.max_num_seqs * blocks * needs.kv.block_bytes()), engine.max_num_seqs);
  }
  return text;
}

// Collective. Reads the tokenizer, and compares the headers of the weight files with config.json; reads no
// weights. Returns the warnings.
std::string check_model(World& world, const JobOptions& options, const SharedModel& model) {
  std::string text;
  const auto warn = [&text](const std::string& warning) {
    if (!warning.empty()) text += fmt::format("warning: {}\n", warning);
  };
  for (const std::string& warning : model.warnings) warn(warning);
  collective_phase(world, [&] {
    if (model.files && model.files->has("tokenizer.json")) read_tokenizer(*model.files);
  });
  if (options.engine.random_weights) return text;
  const WeightIndex index = share_index(world, model);
  const std::unique_ptr<const QuantScheme> scheme = scheme_of(model.config);
  collective_phase(world, [&] {
    check_names(*make_model(model.config, {}), index, *scheme);
    if (kv_cache_dtype(options.engine, *scheme) == DType::fp8)
      kv_scales_of(index, *scheme, {0, model.config.num_layers});
  });
  warn(index.warning);
  warn(scheme->warning(index));
  return text;
}

// Collective. Throws where generate would refuse the model once it has a backend.
Backend backend_for(World& world, const EngineOptions& options, const JobPlan& plan,
                    const std::optional<SharedModel>& model, const CpuShare& share) {
  Backend backend;
  collective_phase(world, [&] {
    backend = backend_of(world, options, share);
    if (model)
      refuse_cache(*backend.ops, plan.needs_of(world.rank()).kv.layer, options.dtype,
                   *scheme_of(model->config));
  });
  return backend;
}

void measure_and_report(World& world, const JobOptions& options, const JobPlan& plan, Backend& backend) {
  const std::vector<Measurement> measured = measure(world, options, plan, backend);
  if (world.rank() != 0) return;
  print('\n' + measurements_text(measured, world.locations()));
  const std::vector<Finding> findings = find_outliers(measured, world.locations());
  for (const Finding& finding : findings) print(finding_block(finding));
  if (findings.empty()) print("nothing measured looks wrong\n");
}

ExitCode diagnose(World& world, const DoctorOptions& asked) {
  JobOptions options = asked;
  const std::optional<SharedModel> model = agree_on_job(world, options);
  JobPlan plan;
  collective_phase(world, [&] {
    plan = plan_or_refuse(world.locations(), options.engine, model ? &model->config : nullptr);
  });
  const std::string warnings = model ? check_model(world, options, *model) : "";
  std::string files;  // read last, because the input may be long
  collective_phase(world, [&] {
    DoctorOptions settled = asked;
    settled.engine = options.engine;
    if (world.rank() == 0) files = files_text(settled, plan);
  });
  const Preflight preflight = run_preflight(world, options, plan);
  if (world.rank() == 0)
    print(fmt::format("maniple {}, {}\n{}\n{}", MANIPLE_VERSION, world.description(),
                      rank_table(preflight.job),
                      needs_text(plan, options.engine) + checks_text(preflight.results) + warnings + files));
  const bool refused = gather_values(world, has_refusal(preflight.results) ? 1 : 0).front() == 1;
  if (refused) return world.rank() == 0 ? ExitCode::preflight : ExitCode::complete;
  if (options.run_dir) options.run_dir = preflight.job.ranks[0].run_dir.path;
  if (asked.quick && !model) return ExitCode::complete;
  Backend backend = backend_for(world, options.engine, plan, model, preflight.share);
  if (!asked.quick) measure_and_report(world, options, plan, backend);
  return ExitCode::complete;
}

}  // namespace

ExitCode run_doctor(World& world, const DoctorOptions& options, const Reporters& reporters) {
  HealthMonitor health(world, reporters.peers, Deadlines::within(options.deadline),
                       [&](const FaultReport& fault) { reporters.faults.report(fault); });
  reporters.start.reset();
  return health.supervise([&] { return diagnose(world, options); });
}

}  // namespace maniple
