#include <runtime/expert_load.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
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

std::vector<ExpertLoad> expert_load(const JobPlan& plan, const ExpertsConfig& experts,
                                    std::span<const std::string> of_ranks) {
  std::vector<ExpertLoad> loads;
  const auto width = static_cast<size_t>(experts.count) * sizeof(int32_t);
  for (int stage = 0; stage < plan.grid.pipeline; ++stage) {
    size_t at = 0;  // in the bytes of a rank
    const IndexRange layers = plan.stages[static_cast<size_t>(stage)];
    for (int64_t layer = layers.begin; layer < layers.end; ++layer) {
      if (!experts.in_layer(layer)) continue;
      std::vector<int64_t> sums(static_cast<size_t>(experts.count));
      for (int data = 0; data < plan.grid.data; ++data) {
        const int first = rank_at(plan.grid, {.tensor = 0, .pipeline = stage, .data = data});
        const std::string row = of_ranks[static_cast<size_t>(first)].substr(at, width);
        for (int rank = first; rank < first + plan.grid.tensor; ++rank)
          if (of_ranks[static_cast<size_t>(rank)].compare(at, width, row) != 0)
            fail(ExitCode::fault, "ranks {} and {} hold the same layer {}, but chose other experts in it",
                 first, rank, layer);
        std::vector<int32_t> counts(sums.size());
        std::memcpy(counts.data(), row.data(), width);
        std::ranges::transform(sums, counts, sums.begin(), std::plus<>());
      }
      loads.push_back(load_of(layer, sums));
      at += width;
    }
  }
  return loads;
}

}  // namespace maniple
