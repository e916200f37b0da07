// The identity of a run: a run directory goes on only with the same run.
#pragma once

#include <launch/commands/commands.hpp>
#include <launch/run_directory/manifest.hpp>
#include <runtime/checkpoint/model_files.hpp>
#include <runtime/job_plan.hpp>

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
  uint64_t unlimited_chats = 0;  // chats without max_tokens, which may fill the context
};
std::string instruction_path_of(BackendChoice backend);  // "avx512", "reference", "cuda"
// "grid", "off", or "batch of tensor size 3": below `grid` the layout decides bits.
std::string level_of(const JobPlan& plan);
std::string weights_text(const EngineOptions& engine);  // "of the model", "random, quantised to int8"
Manifest manifest_of(const GenerateOptions& options, const JobPlan& plan, const RunIdentity& identity);

// Fails (input) where run_dir holds another run: a job with these options and this input could not resume it.
void check_goes_on(const std::filesystem::path& run_dir, const GenerateOptions& options, const JobPlan& plan,
                   uint64_t input_hash);

}  // namespace maniple
