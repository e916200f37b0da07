#include <runtime/expert_load.hpp>

#include <algorithm>
#include <numeric>

namespace maniple {
namespace {

ExpertLoad load_of(int64_t layer, const std::vector<int64_t>& counts) {
  const auto sum = static_cast<double>(std::accumulate(counts.begin(), counts.end(), int64_t{0}));
  const auto most = static_cast<double>(std::ranges::max(counts)), total = std::max(sum, 1.0);
  return {layer, most / total, most * static_cast<double>(counts.size()) / total,
          std::ranges::count(counts, 0)};
}

}  // namespace

std::vector<ExpertLoad> expert_load(const JobPlan& plan, const ModelConfig& config,
                                    std::span<const std::vector<int32_t>> of_ranks) {
  std::vector<ExpertLoad> loads;
  const auto width = static_cast<size_t>(config.experts.count);
  for (int stage = 0; stage < plan.grid.pipeline; ++stage) {
    size_t at = 0;  // in the counts of a rank
    const IndexRange layers = plan.stages[static_cast<size_t>(stage)];
    for (int64_t layer = layers.begin; layer < layers.end; ++layer) {
      if (!config.layers[static_cast<size_t>(layer)].is_sparse()) continue;
      std::vector<int64_t> sums(width);
      for (int data = 0; data < plan.grid.data; ++data) {
        const int first = rank_at(plan.grid, {.tensor = 0, .pipeline = stage, .data = data});
        const auto row_of = [&](int rank) {
          const std::span<const int32_t> counts(of_ranks[static_cast<size_t>(rank)]);
          if (counts.size() < at + width)
            fail(ExitCode::fault, "rank {} has no counts of the experts of layer {}", rank, layer);
          return counts.subspan(at, width);
        };
        const std::span<const int32_t> row = row_of(first);
        for (int rank = first; rank < first + plan.grid.tensor; ++rank)
          if (!std::ranges::equal(row_of(rank), row))
            fail(ExitCode::fault, "ranks {} and {} hold the same layer {}, but chose other experts in it",
                 first, rank, layer);
        std::ranges::transform(sums, row, sums.begin(), std::plus<>());
      }
      loads.push_back(load_of(layer, sums));
      at += width;
    }
  }
  return loads;
}

}  // namespace maniple
