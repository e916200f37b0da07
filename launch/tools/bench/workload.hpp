// The requests that a serving bench repeats: drawn, or read from files. The same options give the same ones on every machine.
#pragma once

#include <launch/tools/options/bench_options.hpp>
#include <runtime/checkpoint/model_files.hpp>
#include <runtime/requests.hpp>

#include <cstdint>
#include <string>
#include <vector>

namespace maniple {

struct WorkloadRequest {
  std::vector<int32_t> prompt;
  uint32_t output = 1;  // tokens
};

struct Workload {
  std::vector<WorkloadRequest> requests;
  int32_t vocabulary = 1;  // token ids are below
  std::string name;        // "fixed:128/128, seed 0"

  // Exactly `output` tokens, the likeliest ones. Each repeat has token ids of its own, moved on by one: what prompts have in common
  // stays, and the prefix cache does not know them from the repeat before.
  GenerationRequest request(size_t index, uint64_t repeat) const;
  uint64_t hash() const;  // of all prompts and outputs
};

// Throws Error (input): a file that cannot be read, too few requests in it, a request that does not fit into
// max_model_len tokens; (usage) a prefix that is longer than all prompts.
Workload make_workload(const BenchOptions& options, const ModelFiles& model, int64_t vocabulary,
                       uint32_t max_model_len);

// Prompt and output tokens of `count` requests, as `lengths` says; fewer where its file has fewer lines, all of them without a count.
struct RequestLength {
  uint32_t prompt = 1, output = 1;
  bool operator==(const RequestLength&) const = default;
};
std::vector<RequestLength> draw_lengths(const Lengths& lengths, std::optional<uint32_t> count, uint64_t seed,
                                        uint32_t max_model_len);

}  // namespace maniple
