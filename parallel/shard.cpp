#include <parallel/shard.hpp>

#include <algorithm>
#include <compare>
#include <numeric>
#include <utility>

namespace maniple {

Indivisible::Indivisible(std::string its_dimension, int64_t its_size, int its_parts)
    : Error(ExitCode::input,
            fmt::format("{} ({}) do not divide by tensor ranks ({})", its_dimension, its_size, its_parts)),
      dimension(std::move(its_dimension)),
      size(its_size),
      parts(its_parts) {}

std::vector<int> small_divisors(int64_t n) {
  std::vector<int> divisors;
  for (int d = 1; d <= 64 && d <= n && divisors.size() < 8; ++d)
    if (n % d == 0) divisors.push_back(d);
  return divisors;
}

IndexRange even_shard(int64_t size, int parts, int part, const char* what) {
  require(0 <= part && part < parts, "a part outside the group");
  if (size % parts != 0) throw Indivisible(what, size, parts);
  const int64_t width = size / parts;
  return {part * width, (part + 1) * width};
}

IndexRange balanced_shard(int64_t size, int parts, int part) {
  require(0 <= part && part < parts, "a part outside the group");
  return {size * part / parts, size * (part + 1) / parts};
}

IndexRange granular_shard(int64_t size, int parts, int part, int64_t granule) {
  const int64_t granules = size % granule == 0 ? size / granule : 1;
  if (granule > 1 && granules % parts != 0)
    throw Indivisible(fmt::format("blocks of {} in {} input columns", granule, size), granules, parts);
  return balanced_shard(size, parts, part);
}

bool keeps_granules(int64_t size, int parts, int64_t granule) {
  return granule == 1 || parts == 1 || (size % granule == 0 && size / granule % parts == 0);
}

std::vector<int64_t> kv_head_shard(int64_t heads, int64_t kv_heads, int parts, int part) {
  if (parts <= kv_heads) even_shard(kv_heads, parts, part, "kv heads");
  const int64_t group = heads / kv_heads, first = part * (heads / parts), end = first + heads / parts;
  const int64_t shared = std::gcd(group, heads / parts);  // query heads of a local KV head
  std::vector<int64_t> held;
  for (int64_t head = first; head < end; head += shared) held.push_back(head / group);
  return held;
}

int64_t padded_vocabulary(int64_t vocabulary_size, int parts) {
  const int64_t step = std::lcm<int64_t>(64, parts);
  return (vocabulary_size + step - 1) / step * step;
}

VocabularyShard vocabulary_shard(int64_t vocabulary_size, int parts, int part) {
  const IndexRange padded = even_shard(padded_vocabulary(vocabulary_size, parts), parts, part, "vocabulary");
  return {padded, {std::min(padded.begin, vocabulary_size), std::min(padded.end, vocabulary_size)}};
}

namespace {

__extension__ using Wide = __int128;  // the squares of bytes

// The first layers of a model as stages: the number of layers of each, and what the split is judged by.
struct Split {
  static constexpr Wide none = Wide{1} << 126;
  Wide value = none;
  std::vector<int64_t> layers = {};
  auto operator<=>(const Split&) const = default;  // NOLINT(modernize-use-nullptr): clang-tidy 14 errs
};

// The best split of all layers into stages. sums: costs of the first 0, 1, 2, ... layers. judge(value, cost): the
// value of a split after a stage of this cost is appended; `none` if such a stage may not be.
template <typename Judge>
Split best_split(const std::vector<int64_t>& sums, int stages, const Judge& judge) {
  std::vector<Split> best(sums.size());  // by number of layers
  best[0].value = 0;
  for (int stage = 1; stage <= stages; ++stage) {
    std::vector<Split> longer(sums.size());
    for (size_t end = 1; end < sums.size(); ++end)
      for (size_t begin = 0; begin < end; ++begin) {
        if (best[begin].value == Split::none) continue;
        const Wide value = judge(best[begin].value, sums[end] - sums[begin]);
        if (value > longer[end].value || value == Split::none) continue;
        Split split{value, best[begin].layers};
        // Of equal splits the first in this order is taken: the last stage, the first, the second, ...
        split.layers.insert(stage == stages ? split.layers.begin() : split.layers.end(),
                            static_cast<int64_t>(end - begin));
        longer[end] = std::min(longer[end], split);
      }
    best = std::move(longer);
  }
  std::vector<int64_t>& layers = best.back().layers;
  std::rotate(layers.begin(), layers.begin() + 1, layers.end());  // that of ranges fails with clang 14
  return best.back();
}

}  // namespace

std::vector<IndexRange> stage_layers(std::span<const int64_t> costs, int64_t head, int stages) {
  require(0 < stages && std::cmp_less_equal(stages, costs.size()), "every stage has a layer");
  std::vector<int64_t> sums{0};
  for (const int64_t cost : costs) sums.push_back(sums.back() + cost);
  sums.back() += head;
  const auto dearest = [](Wide value, int64_t cost) { return std::max(value, Wide{cost}); };
  const Wide limit = best_split(sums, stages, dearest).value;
  const auto squares = [limit](Wide value, int64_t cost) {
    return cost <= limit ? value + Wide{cost} * cost : Split::none;
  };
  std::vector<IndexRange> ranges;
  for (const int64_t count : best_split(sums, stages, squares).layers) {
    const int64_t begin = ranges.empty() ? 0 : ranges.back().end;
    ranges.push_back({begin, begin + count});
  }
  return ranges;
}

int64_t expert_slices(int64_t experts) { return experts & -experts; }

ReductionSlices reduction_slices(int64_t columns, int parts, int64_t granule) {
  const int total = columns % granule == 0 ? static_cast<int>(std::gcd(columns / granule, int64_t{8})) : 1;
  if (total % parts == 0) return {total, total / parts, true};
  return {parts, 1, false};
}

}  // namespace maniple
