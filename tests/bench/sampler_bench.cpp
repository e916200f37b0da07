// The sampler alone: rows that are filtered, penalised or have log-probabilities, against draws at temperature 1 from the
// same logits, in turns in one run. Vocabulary 151,936, 64 rows, one thread a rank; the ranks are a tensor group:
//   mpirun --oversubscribe --bind-to none -n 2 build/bench/sampler_bench
#include <kernels/factory/make_backend.hpp>
#include <layers/sampler.hpp>
#include <parallel/mpi/mpi_world.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdlib>
#include <numeric>
#include <random>
#include <string>
#include <vector>

namespace maniple {
namespace {

constexpr int64_t vocabulary = 151936, row_count = 64;

struct Case {
  std::string name;
  SamplerRow row;
  int history = 0;  // tokens of a row with all three penalties
};

// Every row is alike, but for its seed and its history.
struct Batch {
  explicit Batch(const Case& of)
      : rows(row_count, of.row),
        indices(row_count),
        last_tokens(row_count),
        history(static_cast<size_t>(row_count * of.history)),
        lists(words_of_lists({}, vocabulary)) {
    std::iota(indices.begin(), indices.end(), 0);
    std::mt19937 random(1);
    std::ranges::generate(history, [&] { return static_cast<int32_t>(random() % vocabulary); });
    for (int32_t row = 0; row < row_count && of.history > 0; ++row)
      adjusted.push_back({row, row, of.history, of.history / 2, 1.1f, 0.5f, 0.5f});
    list_words = static_cast<int32_t>(lists.size());
    for (int64_t row = 1; row < row_count; ++row)
      lists.insert(lists.end(), lists.begin(), lists.begin() + list_words);
    for (size_t i = 0; i < rows.size(); ++i) {
      rows[i].draw.seed = i;
      draws.push_back(rows[i].draw);
    }
  }
  SamplerBatch view() {
    const auto where = [&](bool wanted) {
      return view_of(indices.data(), DType::int32, {wanted ? row_count : 0});
    };
    return {rows,
            draws,
            where(true),
            where(rows[0].draw.filtered_by_candidates()),
            where(rows[0].needs_full_logits()),
            where(rows[0].logprobs >= 0),
            where(false),
            view_of(last_tokens.data(), DType::int32, {row_count}),
            adjusted,
            // A block for each sequence.
            {history, indices, lists, static_cast<int32_t>(history.size() / row_count), 1, 0, 1, list_words}};
  }

  std::vector<SamplerRow> rows;
  std::vector<SamplingRow> draws;
  std::vector<int32_t> indices, last_tokens, history, lists;
  std::vector<AdjustedRow> adjusted;
  int32_t list_words = 0;
};

double median(std::vector<double> values) {
  std::ranges::nth_element(values, values.begin() + std::ssize(values) / 2);
  return values[values.size() / 2];
}

void run() {
  constexpr int rounds = 21;
  const std::vector<Case> cases{{"temperature 1", {{.temperature = 1}}},
                                {"top-k 50, top-p 0.95", {{.temperature = 1, .top_k = 50, .top_p = 0.95f}}},
                                {"top-k 200", {{.temperature = 1, .top_k = 200}}},
                                {"top-p 0.95", {{.temperature = 1, .top_p = 0.95f}}},
                                {"min-p 0.05", {{.temperature = 1, .min_p = 0.05f}}},
                                {"log-probability", {{.temperature = 1}, 0}},
                                {"20 alternatives", {{.temperature = 1}, 20}},
                                {"penalties, 4,096 tokens", {{.temperature = 1}}, 4096},
                                {"greedy", {}}};
  const auto world = make_mpi_world([](int code) { std::_Exit(code); });
  const Backend backend = make_backend({.kind = BackendKind::cpu, .threads = 1});
  std::vector<int> everyone(static_cast<size_t>(world->size()));
  std::iota(everyone.begin(), everyone.end(), 0);
  Groups groups;
  groups.tensor = world->make_group(everyone, *backend.ops);
  Workspace workspace(*backend.device, {512 << 20, 64 << 20});
  std::atomic<uint32_t> layer = 0;
  ForwardContext context{*backend.ops, workspace, groups, DType::bf16, layer};
  const VocabularyShard shard = vocabulary_shard(vocabulary, world->size(), world->rank());
  const Sampler sampler(vocabulary, shard);

  // As a head makes them: near normal, the largest some five deviations up.
  Tensor logits(*backend.device, DType::fp32, {row_count, shard.padded.size()});
  std::mt19937_64 random(static_cast<uint64_t>(world->rank()));
  std::normal_distribution<float> normal(0, 2);
  std::generate_n(logits.view().as<float>(), logits.shape().elements(), [&] { return normal(random); });

  std::vector<std::vector<double>> times(cases.size());
  for (int round = -1; round < rounds; ++round)
    for (size_t i = 0; i < cases.size(); ++i) {
      Batch batch(cases[i]);
      const SamplerBatch view = batch.view();
      world->barrier();
      const auto start = std::chrono::steady_clock::now();
      sampler.launch(logits.view(), view, context).wait();
      const std::chrono::duration<double, std::milli> taken = std::chrono::steady_clock::now() - start;
      if (round >= 0) times[i].push_back(taken.count());
    }
  if (world->rank() == 0) {
    fmt::print("{} ranks, {} rows, vocabulary {}\n\n| case | ms | to the first |\n|---|--:|--:|\n",
               world->size(), row_count, vocabulary);
    for (size_t i = 0; i < cases.size(); ++i)
      fmt::print("| {} | {:.2f} | {:.2f} |\n", cases[i].name, median(times[i]),
                 median(times[i]) / median(times[0]));
  }
  world->barrier();
}

}  // namespace
}  // namespace maniple

int main() { maniple::run(); }
