#include <kernels/support/counted.hpp>
#include <kernels/support/number_text.hpp>
#include <launch/commands/commands.hpp>
#include <launch/commands/input_checks.hpp>
#include <launch/commands/run_identity.hpp>
#include <launch/input/line_reader.hpp>
#include <launch/input/requests.hpp>
#include <launch/output/output_file.hpp>
#include <launch/preflight/measurements.hpp>
#include <launch/process/exit_code.hpp>
#include <launch/start/start.hpp>
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
// once. model: null without one.
std::string files_text(const DoctorOptions& options, const JobPlan& plan, const ModelFiles* model) {
  const auto once = std::ranges::find_if(options.in, [](const std::string& path) {
    return path == "-" || (fs::exists(path) && !fs::is_regular_file(path) && !fs::is_directory(path));
  });
  std::optional<LineReader> input;
  if (!options.in.empty() && once == options.in.end()) input.emplace(open_input(options));
  std::string text;
  if (options.out) {
    check_output(*options.out, options.overwrite, input ? &*input : nullptr);
    text = fmt::format("ok: results can go to {}\n", *options.out);
  }
  if (options.prompt) prompt_line(options);
  if (options.prompt && model) check_input(options, *model, nullptr);
  if (once != options.in.end())
    text += fmt::format("not checked: --in {}, which can be read only once\n", *once);
  if (!input) return text;
  if (options.run_dir && model) check_goes_on(*options.run_dir, options, plan, input->hash());
  const uint64_t requests =
      model ? check_input(options, *model, &*input).requests : validate_requests(*input).requests;
  return text + fmt::format("ok: {} in {}\n", counted(requests, "request"), input->name());
}

// The memory that one rank needs for weights and for requests of full length.
std::string needs_text(const JobPlan& plan, const EngineOptions& engine) {
  if (plan.needs.empty()) return {};
  const std::string stages = stages_text(plan);
  std::string text = stages.empty() ? "" : fmt::format("stages: {}\n", stages);
  for (int stage = 0; stage < plan.grid.pipeline; ++stage) {
    const RankNeeds& needs = plan.needs_of(stage * plan.grid.tensor);
    text += fmt::format(
        "needs of a rank{}: {} for weights; {} for the KV cache of a request of {}, {} for {}\n",
        stages.empty() ? "" : fmt::format(" of stage {}", stage), bytes_text(needs.weight_bytes),
        bytes_text(plan.kv_blocks_of_request().bytes(needs.kv)), counted(plan.max_model_len, "token"),
        bytes_text(plan.kv_blocks(engine.max_num_seqs).bytes(needs.kv)), engine.max_num_seqs);
  }
  return text;
}

// Collective. Reads the tokenizer, and compares the headers of the weight files with config.json; reads no
// weights. Returns the warnings.
std::string check_model(World& world, const JobOptions& options, const JobPlan& plan,
                        const SharedModel& model) {
  std::string text;
  const auto warn = [&text](const std::string& warning) {
    if (!warning.empty()) text += fmt::format("warning: {}\n", warning);
  };
  for (const std::string& warning : model.warnings) warn(warning);
  collective_phase(world, [&] {
    if (model.files && has_tokenizer(*model.files)) read_tokenizer(*model.files);
  });
  if (options.engine.random_weights) return text;
  const WeightIndex index = share_index(world, model);
  collective_phase(world, [&] {
    if (world.rank() == 0) check_names(*make_stored_model(model.config, {}, index), index, *model.scheme);
    if (plan.kv_dtype == DType::fp8) kv_scales_of(index, *model.scheme, {0, model.config.num_layers()});
  });
  warn(index.warning);
  if (!index.left_out.empty()) text += fmt::format("not read: {}\n", index.left_out);
  warn(model.scheme->warning(index));
  return text;
}

void measure_and_report(World& world, const DoctorOptions& options, const PlacedJob& placed,
                        Backend& backend) {
  std::optional<fs::path> folder;  // that exists
  if (options.run_dir) folder = placed.preflight.job.ranks[0].run_dir.path;
  const std::vector<Measurement> measured =
      measure(world, placed.agreed.plan, backend, options.engine.model, folder);
  if (world.rank() != 0) return;
  print('\n' + measurements_text(measured, world.locations()));
  const std::vector<Finding> findings = find_outliers(measured, world.locations());
  for (const Finding& finding : findings) print(finding_block(finding));
  if (findings.empty()) print("nothing measured looks wrong\n");
}

ExitCode diagnose(World& world, const DoctorOptions& options) {
  std::string warnings, files;
  ExitCode code = ExitCode::complete;
  BetweenSteps between;
  between.agreed = [&](const AgreedJob& agreed) {
    if (agreed.model) warnings = check_model(world, options, agreed.plan, *agreed.model);
    collective_phase(world, [&] {  // last, because the input may be long
      if (world.rank() == 0)
        files = files_text(options, agreed.plan, agreed.model ? &*agreed.model->files : nullptr);
    });
    return std::optional<uint64_t>(0);
  };
  between.checked = [&](const PlacedJob& checked) {
    const auto& [facts, results] = checked.preflight;
    if (world.rank() == 0)
      print(fmt::format(
          "maniple {}, {}\n{}\n{}", MANIPLE_VERSION, world.description(), rank_table(facts),
          needs_text(checked.agreed.plan, options.engine) + checks_text(results) + warnings + files));
    const bool refused = gather_values(world, has_refusal(results) ? 1 : 0).front() == 1;
    if (refused && world.rank() == 0) code = refused_launch_code;
    return !refused && !(options.quick && !checked.agreed.model);
  };
  const std::optional<PlacedJob> placed = start(world, options, between);
  if (!placed) return code;
  const std::optional<SharedModel>& model = placed->agreed.model;
  const JobPlan& plan = placed->agreed.plan;
  Backend backend = make_backend(world, plan, placed->place);
  collective_phase(world, [&] {
    if (model) refuse_cache(plan.needs_of(world.rank()).kv.layer, plan.dtype, *model->scheme);
  });
  if (!options.quick) measure_and_report(world, options, *placed, backend);
  return ExitCode::complete;
}

}  // namespace

ExitCode run_doctor(World& world, const DoctorOptions& options, const Supervision& supervision) {
  return watched(world, options, supervision, nullptr, [&](HealthMonitor& health) {
    return health.supervise([&] { return diagnose(world, options); });
  });
}

}  // namespace maniple
