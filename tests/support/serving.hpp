// Runs requests through engines in this process, on a grid of ranks that are threads.
#pragma once

#include <runtime/collective_phase.hpp>
#include <runtime/completion_builder.hpp>
#include <runtime/start/start.hpp>
#include <support/golden.hpp>
#include <support/thread_world.hpp>

#include <gtest/gtest.h>

#include <map>
#include <vector>

namespace maniple::testing {

class ListSource final : public RequestSource {
 public:
  explicit ListSource(const std::vector<GenerationRequest>& requests) : requests_(requests) {}
  std::optional<GenerationRequest> next() override {
    return next_ < requests_.size() ? std::optional(requests_[next_++]) : std::nullopt;
  }

 private:
  const std::vector<GenerationRequest>& requests_;
  size_t next_ = 0;
};

class MapSink final : public CompletionSink {
 public:
  void finished(FinishedRequest completion) override { completions[completion.id] = std::move(completion); }
  void generated(RequestId request, std::string_view text) override { pieces[request].emplace_back(text); }
  std::map<RequestId, std::vector<std::string>> pieces;
  std::map<RequestId, FinishedRequest> completions;
};

// What a start settles before the engine is made; one thread a rank, unless the options ask for more, pinned nowhere. Collective.
struct Placed {
  Placed(World& world, EngineOptions asked) : options(std::move(asked)), job(agree(world, options)) {
    if (!options.threads) options.threads = 1;
    place = maniple::place(world, options, job.plan);
    place.cpus.clear();
  }
  Engine load(World& world, RankActivity& activity) const {
    return maniple::load(world, options, job, place, activity);
  }
  EngineOptions options;
  AgreedJob job;
  RankPlace place;
};

struct Served {
  std::map<RequestId, FinishedRequest> completions;
  std::map<RequestId, std::vector<std::string>> pieces;  // of those that stream
  RunSummary summary;
  EngineInfo info;
  JobPlan plan;
};

// A rank other than 0. It prints nothing when rank 0 reports a failure.
inline void follow(World& world, const EngineOptions& options) {
  try {
    RankActivity activity;
    const Placed placed(world, options);
    placed.load(world, activity).run_worker();
  } catch (const SilentExit&) {
  }
}

// options_of: the options of each rank; they may differ in fields about the rank's own machine.
inline Served serve(int ranks, const std::function<EngineOptions(int rank)>& options_of,
                    const std::vector<GenerationRequest>& requests, RunObserver* observer = nullptr) {
  Served served;
  run_ranks(ranks, [&](World& world) {
    if (world.rank() != 0) return follow(world, options_of(world.rank()));
    RankActivity activity;
    const Placed placed(world, options_of(0));
    Engine engine = placed.load(world, activity);
    ListSource source(requests);
    MapSink sink;
    const std::atomic<int> interrupt = 0;
    served.summary = engine.run(
        source, sink, [](const Progress&) {}, interrupt, observer);
    served.completions = std::move(sink.completions);
    served.pieces = std::move(sink.pieces);
    if (const Tokenizer* tokenizer = engine.model().tokenizer())
      for (auto& [id, completion] : served.completions)
        for (Answer& answer : completion.answers) add_text(*tokenizer, answer);
    served.info = engine.model().info();
    served.plan = placed.job.plan;
  });
  return served;
}

inline Served serve(int ranks, const EngineOptions& options, const std::vector<GenerationRequest>& requests,
                    RunObserver* observer = nullptr) {
  return serve(
      ranks, [&](int) { return options; }, requests, observer);
}

inline std::vector<GenerationRequest> golden_requests(const Golden& golden) {
  std::vector<GenerationRequest> requests;
  for (const GoldenSequence& sequence : golden.sequences) {
    GenerationRequest& request = requests.emplace_back();
    request.id = requests.size() - 1;
    request.prompt = sequence.prompt;
    request.sampling.temperature = 0;
    request.sampling.ignore_eos = true;
    request.sampling.max_tokens = static_cast<uint32_t>(sequence.tokens.size());
  }
  return requests;
}

inline void expect_golden(const Golden& golden, const Served& served, const std::string& where) {
  ASSERT_EQ(served.completions.size(), golden.sequences.size()) << where;
  for (size_t i = 0; i < golden.sequences.size(); ++i)
    EXPECT_EQ(served.completions.at(i).answers.at(0).tokens, golden.sequences[i].tokens)
        << where << ", sequence " << i;
}

inline std::string print(const TokenScore& score) {
  std::string text = fmt::format(" {:a}", score.logprob);
  for (const TokenLogprob& other : score.alternatives)
    text += fmt::format(" ({} {:a})", other.id, other.logprob);
  return text;
}

// Everything that must be the same on any grid; log-probabilities bit by bit.
inline std::string print(const Served& served) {
  std::string text;
  for (const auto& [id, completion] : served.completions) {
    text += fmt::format("{}{}", id, completion.error);
    for (const PromptScore& score : completion.prompt_scores)
      text += print(score) + (score.greedy ? " greedy" : "");
    for (const Answer& answer : completion.answers) {
      text += " [";
      for (const int32_t token : answer.tokens) text += fmt::format("{} ", token);
      text += fmt::format("] {} {}", static_cast<int>(answer.reason), answer.text.value_or(""));
      for (const TokenScore& score : answer.scores) text += print(score);
    }
    text += '\n';
  }
  return text;
}

}  // namespace maniple::testing
