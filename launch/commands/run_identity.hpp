// The identity of a run: a run directory goes on only with the same run.
#pragma once

#include <launch/options/options.hpp>
#include <launch/run_directory/manifest.hpp>
#include <runtime/job_plan.hpp>
#include <runtime/shared_model.hpp>

#include <cstdint>
#include <ctime>
#include <string>

namespace maniple {

// Hash of the model's small files as they are, and of the headers, names and sizes of its safetensors files:
// the weights themselves are not read. A directory and the packed model made of it have the same.
uint64_t model_hash(const ModelFiles& files);

// Everything that decides the bytes of the results. Not the layout, which a resume may change.
struct RunIdentity {
  uint64_t input_hash = 0;
  uint64_t requests = 0;
  uint64_t seed = 0;
  std::time_t started = 0;
  std::string instruction_path;
  std::string level;             // of reproducibility, in force
  uint64_t unlimited_chats = 0;  // chats without max_tokens, which may fill the context
};
std::string instruction_path_of(const BackendOptions& backend);  // "avx512", "reference", "cuda"
// "grid", "off", or "batch of tensor size 3": below `grid` the layout decides bits.
std::string level_of(const JobPlan& plan);
std::string weights_text(const EngineOptions& engine);  // "of the model", "random, quantised to int8"
Manifest manifest_of(const GenerateOptions& options, const RunIdentity& identity);

// Fails (input) where run_dir holds another run: a job with these options and this input could not resume it.
void check_goes_on(const std::filesystem::path& run_dir, const GenerateOptions& options, const JobPlan& plan,
                   uint64_t input_hash);

// Collective. The type that the job computes in, decided by rank 0: the requested one; else
// fp16 for an fp16 checkpoint on GPUs, unless the run directory was begun in bf16; else bf16.
DType job_dtype(World& world, const JobOptions& options, const ModelConfig& config);

// The type of keys and values in force: fp8 or engine.dtype. Throws Error (usage) if the options ask for another one.
DType job_kv_cache_dtype(const EngineOptions& engine, const ModelConfig& config);

// Collective. What the ranks must agree on: settles the backend, the instruction path and the types in the options, and
// refuses a layout that does not fit. The model, if the options name one.
std::optional<SharedModel> agree_on_job(World& world, JobOptions& options);

// Exit code of a run with this many failed requests.
ExitCode exit_code_of(const FailOn& fail_on, uint64_t failed, uint64_t requests);

}  // namespace maniple
