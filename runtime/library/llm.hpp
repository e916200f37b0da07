// maniple as a library: a language model on the ranks of a communicator.
//
//   MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &level);
//   {
//     maniple::Llm llm(comm, {.model = "DIR", .tensor_size = 2});
//     for (const maniple::Completion& answer : llm.generate({"The capital of France is"}, {.max_tokens = 16}))
//       std::puts(answer.text.c_str());  // rank 0 has the answers
//   }
//   MPI_Finalize();
//
// MPI stays the caller's: all messages travel on duplicates of the communicator. Nothing here writes to stdout or stderr, reads the environment, or
// sets signal handlers or the CPU mask of a thread of the caller's. Several models may follow each other in a process, or live at once on communicators
// without a rank in common.
#pragma once

#include <kernels/support/error.hpp>
#include <kernels/support/sampling_params.hpp>
#include <parallel/mpi/mpi_handle.hpp>
#include <runtime/scheduling/token_score.hpp>

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <variant>
#include <vector>

namespace maniple {

// The same on all ranks, but for `threads`, `gpu` and `on_fault`.
struct LlmOptions {
  std::filesystem::path model = {};  // a directory as Hugging Face has it, or a packed file
  int tensor_size = 1;               // ranks that split each layer
  int pipeline_size = 1;  // stages of layers; the ranks that are left hold further copies of the model
  int context_size = 1;   // ranks that share a long context
  std::optional<int> expert_size =
      {};                        // ranks of a tensor group that hold other experts; absent: by their number
  std::string dtype = "auto";    // of weights and activations: bf16, fp16 (GPUs), fp32
  std::string backend = "auto";  // cpu, reference, cuda; auto: cuda where every rank sees a GPU
  std::string quantize = {};     // int8, int4 or fp8: a checkpoint in floating point, while it is loaded
  std::optional<int> threads = {};  // of this rank; absent: its share of the CPUs of its communicator's ranks
  std::optional<int> gpu = {};      // of this rank, among those it sees; absent: by its place on the node
  std::optional<size_t> kv_memory = {};  // bytes per rank; absent: for a full batch, within free memory
  uint32_t max_num_seqs = 256;
  uint32_t max_num_batched_tokens = 2048;
  std::optional<uint32_t> max_model_len = {};  // absent: the model's
  bool prefix_cache = true;
  bool random_weights = false;  // of the model's config.json alone
  // Called where this rank cannot go on and others may wait for it: MPI or a GPU has failed. When it returns, MPI_Abort ends the ranks.
  std::function<void(const Error&)> on_fault = {};
};

// An answer to a prompt. It depends on the prompt, the parameters and the model alone, not on the ranks.
struct Completion {
  size_t prompt = 0;      // its position in the call
  uint32_t index = 0;     // among the answers to this prompt
  std::string text = {};  // without special tokens and the stop token; empty where the model has no tokenizer
  std::vector<int32_t> tokens = {};
  std::vector<TokenScore> scores = {};  // one per token if SamplingParams::logprobs asks for them
  std::string finish_reason = {};       // "stop" or "length"
  size_t prompt_tokens = 0;
  // Of the prompt's tokens from the second on if SamplingParams::prompt_logprobs asks for them.
  std::vector<PromptScore> prompt_scores = {};
  std::string error = {};  // why there is no answer; then the rest is empty
};

// Text, or token ids.
using Prompt = std::variant<std::string, std::vector<int32_t>>;

class Llm {
 public:
  // On rank 0, in the thread of the call, as answers end.
  using OnCompletion = std::function<void(const Completion&)>;

  // Collective, as everything below. Throws Error on every rank where any rank cannot: (preflight) where the layout does not fit the ranks or MPI
  // lacks MPI_THREAD_MULTIPLE, (input) where the model is refused or options differ, (usage) for a word that no option has.
  Llm(MPI_Comm comm, const LlmOptions& options);
  // Ends the model's threads. MPI must still be there.
  ~Llm();
  Llm(const Llm&) = delete;
  Llm& operator=(const Llm&) = delete;

  // params.n answers to each prompt, in the order of the prompts and then of their index, on rank 0, whose arguments count; nothing elsewhere. One for
  // each prompt, with the error, where the parameters are invalid. The prompt at position i is drawn with seed params.seed + i, and its
  // answer at index j as a single one with seed answer_seed(params.seed + i, j). What on_completion throws is thrown again on rank 0, and Error (internal) elsewhere.
  std::vector<Completion> generate(const std::vector<Prompt>& prompts, const SamplingParams& params = {},
                                   const OnCompletion& on_completion = {});
  template <typename P>
  std::vector<Completion> generate(const std::vector<P>& prompts, const SamplingParams& params = {},
                                   const OnCompletion& on_completion = {}) {
    return generate(std::vector<Prompt>(prompts.begin(), prompts.end()), params, on_completion);
  }

 private:
  struct Rank;
  std::unique_ptr<Rank> rank_;
};

}  // namespace maniple
