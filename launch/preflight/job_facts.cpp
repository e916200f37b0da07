#include <launch/preflight/job_facts.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <set>

namespace maniple {

const GpuFacts* JobFacts::gpu_of(size_t rank) const {
  const std::vector<GpuFacts>& gpus = ranks[rank].gpus;
  return gpus.empty() ? nullptr : &gpus[static_cast<size_t>(locations[rank].local_rank) % gpus.size()];
}

std::vector<int> ranks_where(const JobFacts& s, const std::function<bool(size_t rank)>& holds) {
  std::vector<int> ranks;
  for (size_t rank = 0; rank < s.size(); ++rank)
    if (holds(rank)) ranks.push_back(static_cast<int>(rank));
  return ranks;
}

int num_nodes(const JobFacts& s) { return std::ranges::max(s.locations, {}, &RankLocation::node).node + 1; }

std::vector<std::vector<int>> ranks_by_node(const JobFacts& s) {
  std::vector<std::vector<int>> nodes(static_cast<size_t>(num_nodes(s)));
  for (size_t rank = 0; rank < s.size(); ++rank)
    nodes[static_cast<size_t>(s.locations[rank].node)].push_back(static_cast<int>(rank));
  return nodes;
}

std::string hosts_text(const JobFacts& s, const std::vector<int>& ranks) {
  constexpr size_t most = 4;
  std::vector<std::string> hosts;
  std::set<int> seen;
  for (const int rank : ranks)
    if (seen.insert(s.locations[static_cast<size_t>(rank)].node).second) hosts.push_back(host_of(s, rank));
  const size_t more = hosts.size() - std::min(hosts.size(), most);
  hosts.resize(std::min(hosts.size(), most));
  return fmt::format("{}{}", fmt::join(hosts, ", "), more > 0 ? fmt::format(" and {} more", more) : "");
}

std::string ranges_text(std::span<const int> numbers) {
  std::string text;
  for (size_t begin = 0, end = 0; begin < numbers.size(); begin = end) {
    for (end = begin + 1; end < numbers.size() && numbers[end] == numbers[end - 1] + 1;) ++end;
    text += fmt::format("{}{}", text.empty() ? "" : ",", numbers[begin]);
    if (end - begin > 1) text += fmt::format("-{}", numbers[end - 1]);
  }
  return text.empty() ? "-" : text;
}

std::string ranks_text(std::span<const int> ranks) {
  return fmt::format("rank{} {}", ranks.size() == 1 ? "" : "s", ranges_text(ranks));
}

}  // namespace maniple
