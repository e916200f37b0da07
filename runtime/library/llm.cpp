#include <parallel/mpi/guest_world.hpp>
#include <runtime/collective_phase.hpp>
#include <runtime/library/call_queue.hpp>
#include <runtime/library/llm.hpp>
#include <runtime/start/start.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <string_view>
#include <thread>
#include <type_traits>
#include <utility>

namespace maniple {
namespace {

template <typename T>
using Words = std::vector<std::pair<std::string_view, T>>;

template <typename T>
T chosen(const char* field, const std::string& word, const Words<T>& words) {
  const auto found = std::ranges::find(words, word, &std::pair<std::string_view, T>::first);
  if (found != words.end()) return found->second;
  std::string known;
  for (const auto& [name, value] : words) known += (known.empty() ? "" : ", ") + fmt::format("\"{}\"", name);
  throw Error(ExitCode::usage, fmt::format("`{}` is \"{}\"", field, word), "", "one of " + known);
}

EngineOptions engine_options(const LlmOptions& asked) {
  EngineOptions options;
  options.model = asked.model;
  options.tensor_size = asked.tensor_size;
  options.pipeline_size = asked.pipeline_size;
  options.context_size = asked.context_size;
  options.expert_size = asked.expert_size;
  const Words<std::optional<DType>> types{
      {"auto", std::nullopt}, {"bf16", DType::bf16}, {"fp16", DType::fp16}, {"fp32", DType::fp32}};
  using enum BackendKind;
  const Words<BackendKind> kinds{{"auto", automatic}, {"cpu", cpu}, {"reference", reference}, {"cuda", cuda}};
  using enum WeightFormat;
  const Words<std::optional<WeightFormat>> formats{
      {"", std::nullopt}, {"int8", int8}, {"int4", int4}, {"fp8", fp8}};
  options.dtype = chosen("dtype", asked.dtype, types);
  options.backend.kind = chosen("backend", asked.backend, kinds);
  options.quantize = chosen("quantize", asked.quantize, formats);
  options.threads = asked.threads;
  options.kv_memory = asked.kv_memory;
  options.max_num_seqs = asked.max_num_seqs;
  options.max_num_batched_tokens = asked.max_num_batched_tokens;
  options.max_model_len = asked.max_model_len;
  options.prefix_cache = asked.prefix_cache;
  options.random_weights = asked.random_weights;
  return options;
}

// What must be the same on all ranks.
std::string shared_text(const LlmOptions& o) {
  return fmt::format("{} {} {} {} {} {} {} {} {} {} {} {} {} {}", o.model.string(), o.tensor_size,
                     o.pipeline_size, o.context_size, o.expert_size.value_or(-1), o.dtype, o.backend,
                     o.quantize, o.kv_memory.value_or(0), o.max_num_seqs, o.max_num_batched_tokens,
                     o.max_model_len.value_or(0), o.prefix_cache, o.random_weights);
}

void refuse_different_options(World& world, const LlmOptions& options) {
  const std::string mine = shared_text(options);
  std::string of_rank_0 = mine;
  world.broadcast_bytes(of_rank_0, 0);
  collective_phase(world, [&] {
    if (mine != of_rank_0)
      throw Error(ExitCode::input,
                  fmt::format("this rank has the options {}, but rank 0 {}", mine, of_rank_0),
                  "all ranks work on one model in step", "the same LlmOptions on all ranks");
  });
}

// What a refused one gets too, `count` times.
std::vector<Completion> answers_of(FinishedRequest finished, size_t prompt, uint32_t count,
                                   const Tokenizer* tokenizer) {
  std::vector<Completion> completions(count);
  finished.answers.resize(count);
  for (uint32_t i = 0; i < count; ++i) {
    Answer& answer = finished.answers[i];
    if (tokenizer && finished.error.empty()) add_text(*tokenizer, answer);
    completions[i] = {.prompt = prompt,
                      .index = i,
                      .text = std::move(answer.text).value_or(""),
                      .tokens = std::move(answer.tokens),
                      .scores = std::move(answer.scores),
                      .finish_reason = !finished.error.empty()                 ? ""
                                       : answer.reason == FinishReason::length ? "length"
                                                                               : "stop",
                      .prompt_tokens = finished.prompt_tokens,
                      .prompt_scores = finished.prompt_scores,
                      .error = finished.error};
  }
  return completions;
}

}  // namespace

// A rank of the model. A thread serves from the start to the end, as in a job: on rank 0 what the calls put into the queue.
struct Llm::Rank {
  // Collective. Every rank throws what all of them know; a failure that only this rank knows of ends them.
  template <typename F>
  std::invoke_result_t<F> together(F f) {
    try {
      return f();
    } catch (const SilentExit& exit) {
      throw Error(exit.reason());
    } catch (const CollectiveError& error) {
      throw Error(error);
    } catch (const Error& error) {
      end(error);
      throw;
    }
  }
  // The other ranks wait.
  void end(const Error& error) {
    if (on_fault) on_fault(error);
    world->abort(static_cast<int>(error.code()));
  }

  Rank(MPI_Comm comm, const LlmOptions& asked)
      : on_fault(asked.on_fault),
        world(make_guest_world(comm)),
        calls(make_guest_world(comm)),
        options(together([&] {
          refuse_different_options(*world, asked);
          EngineOptions chosen;
          collective_phase(*world, [&] { chosen = engine_options(asked); });
          return chosen;
        })),
        job(together([&] { return agree(*world, options); })) {
    together([&] {
      RankPlace mine = place(*world, options, job.plan);
      mine.cpus.clear();  // the threads of others are not known here
      mine.gpu = asked.gpu.value_or(mine.gpu);
      // An engine cannot move.
      engine.reset(new Engine(load(*world, options, job, mine, activity)));  // NOLINT(modernize-make-unique)
    });
    serving = std::thread([this] { serve(); });
  }
  ~Rank() {
    queue.close();
    if (serving.joinable()) serving.join();
  }

  void serve() noexcept {
    try {
      if (world->rank() == 0) {
        engine->run(
            queue, queue, [](const Progress&) {}, stop);
      } else {
        engine->run_worker();
      }
    } catch (const SilentExit&) {  // rank 0 tells it
    } catch (const CollectiveError& error) {
      queue.fail(error);
    } catch (const Error& error) {
      end(error);
    } catch (const std::exception& error) {
      end(Error(ExitCode::internal, error.what()));
    }
  }
  // Rank 0. Throws what on_completion throws.
  std::vector<Completion> answers_to(const std::vector<Prompt>& prompts, const SamplingParams& params,
                                     const OnCompletion& on_completion) {
    const uint32_t each = invalid_reason(params) ? 1 : params.n;  // that many errors are enough
    std::vector<Completion> answers(prompts.size() * each);
    const Tokenizer* const tokenizer = engine->model().tokenizer();
    const size_t first = std::exchange(begun, begun + prompts.size());
    const auto take = [&](FinishedRequest done) {
      const size_t prompt = done.id - first;
      for (Completion& answer : answers_of(std::move(done), prompt, each, tokenizer)) {
        Completion& kept = answers[answer.prompt * each + answer.index] = std::move(answer);
        if (on_completion) on_completion(kept);
      }
    };
    size_t running = 0;
    for (size_t i = 0; i < prompts.size(); ++i) {
      GenerationRequest request;
      request.id = first + i;
      request.sampling = params;
      request.sampling.seed += i;
      try {
        request.prompt = ids_of(prompts[i], tokenizer);
      } catch (const Error& error) {
        FinishedRequest refused;
        refused.id = request.id;
        refused.error = error.what();
        take(std::move(refused));
        continue;
      }
      queue.put(std::move(request));
      ++running;
    }
    for (; running > 0; --running) take(queue.take(first));
    return answers;
  }

  static std::vector<int32_t> ids_of(const Prompt& prompt, const Tokenizer* tokenizer) {
    if (const auto* ids = std::get_if<std::vector<int32_t>>(&prompt)) return *ids;
    if (!tokenizer) fail(ExitCode::input, "text needs a tokenizer, and the model has none");
    return tokenizer->encode(std::get<std::string>(prompt), true);
  }

  const std::function<void(const Error&)> on_fault;
  const std::unique_ptr<World> world;  // of the start, and then of the thread that serves
  const std::unique_ptr<World> calls;  // of the caller's threads
  const EngineOptions options;
  const AgreedJob job;
  RankActivity activity;
  std::unique_ptr<Engine> engine;
  CallQueue queue;
  const std::atomic<int> stop = 0;
  size_t begun = 0;  // requests so far
  std::thread serving;
};

Llm::Llm(MPI_Comm comm, const LlmOptions& options) : rank_(std::make_unique<Rank>(comm, options)) {}
Llm::~Llm() = default;

std::vector<Completion> Llm::generate(const std::vector<Prompt>& prompts, const SamplingParams& params,
                                      const OnCompletion& on_completion) {
  std::vector<Completion> answers;
  std::exception_ptr of_caller;
  const auto watched = [&](const Completion& done) {
    try {
      if (on_completion) on_completion(done);
    } catch (...) {
      of_caller = std::current_exception();
      throw Error(ExitCode::internal, "on_completion has thrown on rank 0");
    }
  };
  try {
    rank_->together([&] {
      collective_phase(*rank_->calls, [&] {
        if (rank_->calls->rank() == 0) answers = rank_->answers_to(prompts, params, watched);
      });
    });
  } catch (const Error&) {
    rank_->queue.drop();
    if (of_caller) std::rethrow_exception(of_caller);
    throw;
  }
  return answers;
}

}  // namespace maniple
