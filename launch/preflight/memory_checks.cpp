#include <kernels/support/host_memory.hpp>
#include <kernels/support/number_text.hpp>
#include <launch/preflight/check_list.hpp>
#include <parallel/groups.hpp>
#include <parallel/shard.hpp>
#include <runtime/checkpoint/loading/model_config.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <utility>

namespace maniple {

using enum Severity;

bool adds_in_shared_memory(const JobFacts& s) {
  return !s.on_gpus() && s.plan.grid.tensor > 1 && !s.plan.tensor_groups_span_nodes &&
         s.options.engine.all_reduce != AllReduce::messages;
}

// The requested cache may be too small for the requested lengths.
std::optional<Finding> check_cache(const JobFacts& s) {
  const EngineOptions& engine = s.options.engine;
  if (!engine.kv_memory || s.plan.needs.empty()) return std::nullopt;
  size_t block = 0, blocks = SIZE_MAX, wanted = 0;
  for (const RankNeeds& needs : s.plan.needs) {
    block = std::max(block, KvBlocks{1, 1}.bytes(needs.kv));
    blocks = std::min(blocks, s.plan.fitting_blocks(needs.kv, engine.max_num_seqs, *engine.kv_memory).blocks);
    const size_t longest = s.plan.kv_blocks_of_request().blocks;
    wanted = std::max(wanted, s.plan.with_windows(longest, engine.max_num_seqs).bytes(needs.kv));
  }
  const size_t tokens = blocks * s.plan.block_tokens;
  if (blocks == 0)
    return Finding{
        refusal,
        fmt::format("the KV cache has room for no block: a block of {} tokens takes {}, --kv-memory gives {}",
                    s.plan.block_tokens, bytes_text(block), bytes_text(*engine.kv_memory)),
        "no request could be computed", "a larger --kv-memory, or a smaller --block-size"};
  if (tokens >= s.plan.max_model_len) return std::nullopt;
  return Finding{note,
                 fmt::format("--kv-memory has room for {} tokens at once, and --max-model-len is {}", tokens,
                             s.plan.max_model_len),
                 "a longer request gets an error instead of a result",
                 fmt::format("--kv-memory {}, or --max-model-len {}", wanted, tokens)};
}

namespace {

// What the shared sums of one rank take; all ranks have as many groups.
uint64_t sum_bytes(const JobFacts& s) { return adds_in_shared_memory(s) ? shared_bytes(s.plan.rank(0)) : 0; }

uint64_t free_memory_of(const JobFacts& s, const std::vector<int>& ranks) {
  uint64_t free = ResourceLimit::unlimited;
  for (const int rank : ranks) free = std::min(free, facts_of(s, rank).free_memory);
  return free;
}

bool has_room(const JobFacts& s, const JobPlan& plan) {
  return std::ranges::all_of(ranks_by_node(s), [&](const std::vector<int>& ranks) {
    uint64_t needed = 0;
    for (const int rank : ranks) {
      const RankNeeds& needs = plan.needs_of(rank);
      needed += sum_bytes(s) + needs.weight_bytes +
                s.options.engine.kv_memory.value_or(KvBlocks{1, 1}.bytes(needs.kv));
    }
    return needed <= free_memory_of(s, ranks);
  });
}

// The smallest number of stages with which every node has room: ", or --pp 4"; empty if there is none.
std::string fitting_stages(const JobFacts& s) {
  EngineOptions options = s.options.engine;
  if (!std::filesystem::exists(options.model)) return "";
  const ModelConfig config = read_model_config(ModelFiles(options.model));
  const bool asked = !std::exchange(options.pipeline_layers, {}).empty();
  for (const int stages : small_divisors(static_cast<int64_t>(s.size()) / options.tensor_size)) {
    const bool same = stages == s.plan.grid.pipeline;
    if (same && !asked) continue;
    options.pipeline_size = stages;
    try {
      if (has_room(s, plan_job(s.locations, options, s.plan.backend, &config, s.plan.dtype)))
        return fmt::format(", or --pp {}{}", stages, asked ? " without --pp-layers" : "");
    } catch (const Error&) {  // so many do not fit the model
    }
  }
  return "";
}

// The rank that needs the most: "; rank 3 of stage 1 (layers 3-4) has 12 GiB of weights".
std::string largest_stage(const JobFacts& s, const std::vector<int>& ranks) {
  if (s.plan.stages.size() < 2) return "";
  const int rank = std::ranges::max(ranks, {}, [&](int any) { return facts_of(s, any).weight_bytes; });
  const auto stage = static_cast<size_t>(position_in(s.plan.grid, rank).pipeline);
  return fmt::format("; rank {} of stage {} ({}) has {} of weights", rank, stage,
                     layers_text(s.plan.stages[stage]), bytes_text(facts_of(s, rank).weight_bytes));
}

// Each rank alone, because ulimit -v holds for each process.
std::optional<Finding> check_addresses(const JobFacts& s) {
  for (int rank = 0; rank < static_cast<int>(s.size()); ++rank) {
    const RankFacts& facts = facts_of(s, rank);
    if (facts.weight_bytes + facts.kv_bytes <= facts.free_addresses) continue;
    return Finding{
        refusal,
        fmt::format("rank {} on {} needs {} for weights and {} for the KV cache, but {} of addresses are "
                    "free{}",
                    rank, host_of(s, rank), bytes_text(facts.weight_bytes), bytes_text(facts.kv_bytes),
                    bytes_text(facts.free_addresses), address_limit_text(facts.addresses.soft)),
        "the job would fail while it loads", address_limit_remedy};
  }
  return std::nullopt;
}

}  // namespace

// The ranks of a node share its memory.
std::optional<Finding> check_memory(const JobFacts& s) {
  if (std::optional<Finding> finding = check_addresses(s)) return finding;
  for (const std::vector<int>& ranks : ranks_by_node(s)) {
    const uint64_t free = free_memory_of(s, ranks);
    const uint64_t sums = ranks.size() * sum_bytes(s);
    uint64_t weights = 0, cache = 0;
    for (const int rank : ranks) {
      weights += facts_of(s, rank).weight_bytes;
      cache += facts_of(s, rank).kv_bytes;
    }
    if (weights + cache + sums <= free) continue;
    const uint64_t limit = facts_of(s, ranks[0]).memory_limit;
    return Finding{
        refusal,
        fmt::format(
            "{} on {} {} {} for weights{} and {} for the KV cache, but {} are free{}{}",
            ranks.size() == 1 ? ranks_text(ranks) : "the " + ranks_text(ranks), host_of(s, ranks[0]),
            ranks.size() == 1 ? "needs" : "need", bytes_text(weights),
            sums == 0 ? "" : fmt::format(", {} for sums", bytes_text(sums)), bytes_text(cache),
            bytes_text(free),
            limit == ResourceLimit::unlimited ? "" : fmt::format(" (the job's limit: {})", bytes_text(limit)),
            largest_stage(s, ranks)),
        "the kernel would kill the job while it loads",
        fmt::format("more memory for the job (--mem={}G), more nodes with a larger --tp{}{}",
                    (weights + cache + sums) * 5 / 4 / (uint64_t{1} << 30) + 1,
                    s.options.engine.kv_memory ? ", or a smaller --kv-memory" : "", fitting_stages(s))};
  }
  return std::nullopt;
}

std::optional<Finding> check_shared_memory(const JobFacts& s) {
  const auto needed = [&](size_t rank) {
    return static_cast<uint64_t>(s.locations[rank].local_size) * sum_bytes(s);
  };
  const std::vector<int> short_of_it =
      ranks_where(s, [&](size_t rank) { return s.ranks[rank].shared_memory < needed(rank); });
  if (short_of_it.empty()) return std::nullopt;
  return Finding{warning,
                 fmt::format("/dev/shm of {} has {} free, and sums in it take {}", hosts_text(s, short_of_it),
                             bytes_text(facts_of(s, short_of_it[0]).shared_memory),
                             bytes_text(needed(static_cast<size_t>(short_of_it[0])))),
                 "tensor groups without it add by messages: the same results, more slowly",
                 "a larger /dev/shm (of a container: --shm-size 1g), or --all-reduce messages"};
}

}  // namespace maniple
