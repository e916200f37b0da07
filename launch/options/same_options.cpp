#include <launch/options/same_options.hpp>
#include <runtime/collective_phase.hpp>

#include <fmt/ranges.h>
#include <xxhash.h>
#include <nlohmann/json.hpp>

#include <set>

namespace maniple {

using nlohmann::json;

namespace {

// Options that may differ between ranks.
constexpr std::string_view free_options[] = {"threads", "start-deadline", "quiet"};

std::string shown(const GivenOptions& options, const std::string& name) {
  const auto found = options.find(name);
  const bool is_option = name != "command";
  if (found == options.end()) return fmt::format("no {}{}", is_option ? "--" : "", name);
  if (!is_option) return fmt::format("the command {}", found->second);
  return fmt::format("--{}{}{}", name, found->second.empty() ? "" : " ", found->second);
}

void compare(const GivenOptions& mine, const GivenOptions& of_rank_0) {
  constexpr size_t most = 4;
  std::set<std::string> names;
  for (const GivenOptions* options : {&mine, &of_rank_0})
    for (const auto& [name, value] : *options) names.insert(name);
  std::erase_if(names, [&](const auto& name) { return shown(mine, name) == shown(of_rank_0, name); });
  if (names.contains("command")) names = {"command"};
  std::vector<std::string> here, there;
  for (const std::string& name : names) {
    if (here.size() == most) break;
    here.push_back(shown(mine, name));
    there.push_back(shown(of_rank_0, name));
  }
  if (here.empty()) return;
  throw Error(
      ExitCode::input,
      fmt::format("this rank was given {}, but rank 0 {}", fmt::join(here, ", "), fmt::join(there, ", ")),
      "all ranks work on one model in step, so that they need the same options",
      "start all ranks by one srun or mpirun line; a file of --config must be the same on all nodes");
}

}  // namespace

void refuse_different_options(World& world, GivenOptions mine, const std::optional<Error>& mistake) {
  for (const std::string_view name : free_options) mine.erase(std::string(name));
  std::string bytes;
  json::to_cbor(json(mine), bytes);
  const uint64_t hash = mistake ? 0 : XXH64(bytes.data(), bytes.size(), 1);
  const std::vector<uint64_t> hashes = gather_values(world, hash);
  if (hash != 0 && std::ranges::count(hashes, hash) == world.size()) return;
  world.broadcast_bytes(bytes, 0);
  collective_phase(world, [&] {
    if (mistake) throw *mistake;
    if (hashes[0] != 0) compare(mine, json::from_cbor(bytes).get<GivenOptions>());
  });
  require(false, "ranks differ in what they were given, and nobody sees it");
}

}  // namespace maniple
