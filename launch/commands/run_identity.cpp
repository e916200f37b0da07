#include <launch/commands/run_identity.hpp>
#include <launch/run_directory/run_directory.hpp>
#include <runtime/checkpoint/file_fingerprint.hpp>

#include <fmt/ranges.h>
#include <xxhash.h>

#include <algorithm>
#include <array>

namespace maniple {
namespace {

uint64_t bytes_to_hash(const InputFile& file) {
  return file.path().extension() == ".safetensors" ? header_bytes(file) : file.size();
}

bool belongs_to_model(const ModelFiles& files, const std::string& name) {
  constexpr std::array endings = {".safetensors", ".json", ".jinja"};
  const std::filesystem::path path = files.path(name);
  return (name == "tiktoken.model" || std::ranges::find(endings, path.extension()) != endings.end()) &&
         (files.packed() || std::filesystem::is_regular_file(path));
}

std::string sampling_text(const StatedSampling& sampling) {
  std::string text;
  const auto add = [&text](std::string_view name, const auto& value) {
    if (value) text += fmt::format("{}{} {}", text.empty() ? "" : ", ", name, *value);
  };
  for_sampling_fields([&](auto name, auto&&, auto, auto of) { add(name, of(sampling)); });
  add("stop", sampling.stop);
  return text.empty() ? "the model's" : text;
}

}  // namespace

std::string weights_text(const EngineOptions& engine) {
  const std::string weights = engine.random_weights ? "random" : "of the model";
  return engine.quantize ? fmt::format("{}, quantised to {}", weights, name_of(*engine.quantize)) : weights;
}

uint64_t model_hash(const ModelFiles& files) {
  uint64_t hash = 0;
  for (const std::string& name : files.names()) {
    if (!belongs_to_model(files, name)) continue;
    const InputFile file = files.open(name);
    std::vector<std::byte> bytes(bytes_to_hash(file));
    file.read(0, bytes);
    hash = XXH64(bytes.data(), bytes.size(), hash + files.size(name));
    hash = XXH64(name.data(), name.size(), hash);
  }
  return hash;
}

std::string instruction_path_of(BackendChoice backend) {
  if (backend.kind == BackendKind::reference) return "reference";
  return std::string(backend.kind == BackendKind::cuda ? "cuda" : name_of(backend.cpu_path));
}

std::string level_of(const JobPlan& plan) {
  std::string level(name_of(plan.repro));
  if (plan.repro != Repro::batch) return level;
  level += fmt::format(" of tensor size {}", plan.grid.tensor);
  if (plan.grid.context > 1) level += fmt::format(", context size {}", plan.grid.context);
  if (plan.grid.expert > 1) level += fmt::format(", expert size {}", plan.grid.expert);
  return level;
}

Manifest manifest_of(const GenerateOptions& options, const JobPlan& plan, const RunIdentity& identity) {
  const EngineOptions& engine = options.engine;
  Manifest manifest;
  manifest.set("version", MANIPLE_VERSION);
  manifest.set("input", fmt::format("{:016x}", identity.input_hash));
  manifest.set("requests", fmt::format("{}", identity.requests));
  manifest.set("shard", fmt::format("{}/{}", options.shard.index, options.shard.count));
  manifest.set("model", fmt::format("{:016x}", model_hash(engine.model)));
  manifest.set("weights", weights_text(engine));
  manifest.set("dtype", std::string(name_of(plan.dtype)));
  manifest.set("sampling", sampling_text(options.sampling));
  manifest.set("seed", fmt::format("{}", identity.seed));
  manifest.set("started", fmt::format("{}", identity.started));
  manifest.set("max_model_len",
               engine.max_model_len ? fmt::format("{}", *engine.max_model_len) : "the model's");
  manifest.set("level", level_of(plan));
  manifest.set("instruction_path", instruction_path_of(plan.backend));
  if (plan.kv_dtype == DType::fp8) manifest.set("kv_cache_dtype", "fp8");
  if (identity.unlimited_chats > 0)
    manifest.set("unlimited_chats", fmt::format("{}", identity.unlimited_chats));
  if (options.reasoning != "off") manifest.set("reasoning", options.reasoning);
  if (options.chat_template) manifest.set("chat_template", *options.chat_template);
  if (options.chat)
    manifest.set("text_lines", options.system ? "chats of the system message " + *options.system : "chats");
  return manifest;
}

void check_goes_on(const std::filesystem::path& run_dir, const GenerateOptions& options, const JobPlan& plan,
                   uint64_t input_hash) {
  const std::optional<Manifest> there = binding_manifest(run_dir);
  if (!there) return;
  const uint64_t chats = there->find("unlimited_chats") ? there->number("unlimited_chats") : 0;
  there->check_same(
      manifest_of(options, plan,
                  {input_hash, there->number("requests"), options.seed.value_or(there->number("seed")),
                   static_cast<std::time_t>(there->number("started")), chats}),
      run_dir);
}

}  // namespace maniple
