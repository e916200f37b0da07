#include <kernels/support/counted.hpp>
#include <kernels/support/host_memory.hpp>
#include <runtime/checkpoint/loading/kv_scales.hpp>
#include <runtime/checkpoint/loading/random_weights.hpp>
#include <runtime/checkpoint/token_settings.hpp>
#include <runtime/collective_phase.hpp>
#include <runtime/device_choice.hpp>
#include <runtime/rank_model.hpp>

#include <fmt/ranges.h>

#include <algorithm>
#include <chrono>
#include <exception>
#include <sstream>

namespace maniple {
namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

// Names the kernels of attention, also those of layers with windows or sinks where others compute them.
std::string attention_text(const Ops& ops, DType dtype, const HeadLayout& heads, const ModelConfig& config) {
  const auto windowed = std::ranges::count_if(
      config.layers, [&](const LayerConfig& layer) { return config.sinks || layer.window > 0; });
  const bool some = windowed > 0 && windowed < std::ssize(config.layers);
  std::string path = ops.attention_path(dtype, heads, windowed > 0 && !some);
  if (const std::string other = ops.attention_path(dtype, heads, true); some && other != path)
    path += fmt::format(", windows on {}", other);
  return path;
}

// An estimate of the GPU memory of a captured decode step.
constexpr size_t graph_bytes = size_t{4} << 20;

}  // namespace

RankModel::RankModel(World& world, const EngineOptions& options, const JobPlan& plan,
                     const SharedModel& model, Backend backend, RankActivity& activity)
    : world_(world),
      options_(options),
      plan_(plan),
      rank_(plan.rank(world.rank())),
      activity_(activity),
      shared_(model),
      warnings_(model.warnings),
      generation_config_(model.generation_config),
      limits_{.max_num_seqs = options.max_num_seqs,
              .step_tokens = plan.step_tokens,
              .max_model_len = plan.max_model_len,
              .block_size = options.block_size,
              .context = rank_.context(),
              .max_rows = plan.max_rows,
              .window = plan.window,
              .tokens_in_flight = plan.tokens_in_flight()},
      backend_(std::move(backend)) {
  info_.architecture = shared_.config.architecture;
  info_.quantisation = shared_.scheme->description();
  collective_phase(world_, [this] { read_tokenizer(); });
  try {
    join_groups();
    load();
    size_kv_cache();
    capture_graphs();
  } catch (...) {
    world_.abort_groups();
    throw;
  }
  world_.barrier();
}

RankModel::~RankModel() {
  if (std::uncaught_exceptions() > 0) world_.abort_groups();
}

void RankModel::read_tokenizer() {
  if (!shared_.files) return;
  std::optional<int32_t> end_of_turn;
  if (has_tokenizer(*shared_.files)) {
    tokenizer_ = maniple::read_tokenizer(*shared_.files);
    const TokenSettings settings = read_token_settings(*shared_.files);
    if (const std::string* token = settings.find("eos_token")) end_of_turn = tokenizer_->token_id(*token);
    note_tokens_without_row();
  } else if (generation_config().sampling.stop) {
    warnings_.emplace_back(
        "generation_config.json has stop_strings, which need a tokenizer.json: they have no effect");
    generation_config_.sampling.stop.reset();
  }
  stop_token_ids_ = union_of_eos(config().eos_token_ids, generation_config().eos_token_ids, end_of_turn);
  if (stop_token_ids_.empty() && config().default_eos_token_id)
    stop_token_ids_.push_back(*config().default_eos_token_id);
}

// Tokenisers may have a few tokens more than the embedding has rows.
void RankModel::note_tokens_without_row() {
  const auto rows = static_cast<size_t>(config().vocab_size);
  for (size_t id = rows; id < tokenizer_->vocab_size(); ++id) {
    const auto text = tokenizer_->token_text(static_cast<int32_t>(id));
    if (!text) continue;
    warnings_.push_back(fmt::format(
        "the tokenizer has '{}' with id {}, and the embedding has {} rows: a request with such a token fails",
        *text, id, rows));
    return;
  }
}

void RankModel::join_groups() {
  collective_phase(world_, [this] {
    model_ = make_model(shared_.config, rank_);
    refuse_cache(kv().layer, plan_.dtype, *shared_.scheme);
  });
  info_.backend = backend_.device->description();
  info_.experts = experts_text(shared_.config);
  info_.latent = latent_text(shared_.config, plan_.kv_dtype);
  info_.attention = attention_text(*backend_.ops, plan_.dtype, model_->heads(), shared_.config);
  info_.gpus = world_.all_gather_bytes(backend_.device->uuid());
  collective_phase(world_, [this] {
    if (!options_.share_gpus) refuse_shared_gpus(info_.gpus, world_.locations());
  });
  groups_ = make_groups(world_, rank_, *backend_.ops, options_.all_reduce, activity_.waits,
                        {limits_.step_tokens, shared_.config.hidden_size, plan_.dtype});
  info_.sums = groups_.tensor->sums();
  channel_ = world_.make_channel();
}

void RankModel::load() {
  const Clock::time_point start = Clock::now();
  activity_.phase = Phase::load;
  if (options_.random_weights) {
    collective_phase(world_, [this] {
      info_.weight_bytes = make_weights(*model_, *backend_.ops, plan_.dtype, *shared_.scheme, nullptr);
      fill_with_random(*model_, *backend_.ops, *shared_.scheme, options_.seed, activity_.layer);
    });
  } else {
    load_checkpoint();
  }
  activity_.layer = 0;
  model_->prepare(*backend_.ops, limits_.max_model_len);
  info_.load_seconds = seconds_since(start);
}

// Each stored byte is read once. Over NCCL each replica reads a part of the tensors and sends packed weights
// to the others, from GPU to GPU. Elsewhere stored bytes travel between replicas.
void RankModel::load_checkpoint() {
  const WeightIndex index = share_index(world_, shared_);
  const std::unique_ptr<Communicator> data_group = make_nccl_data_group();
  std::vector<std::vector<int>> replicas;
  if (data_group)
    replicas = {rank_.groups.replica};
  else
    for (int data = 0; data < plan_.grid.data; ++data) replicas.push_back(ranks_of_replica(plan_.grid, data));
  Readers readers;
  std::vector<ReadRound> reads;
  // By one rank for all: of a model with experts this is most of the work with names.
  collective_phase(world_, [&] {
    if (world_.rank() == 0)
      check_names(*make_stored_model(shared_.config, {}, index), index, *shared_.scheme);
  });
  collective_phase(world_, [&] {
    if (plan_.kv_dtype == DType::fp8) kv_scales_ = kv_scales_of(index, *shared_.scheme, rank_.layers.value());
    if (data_group) readers = readers_of(*make_stored_model(shared_.config, {}, index), plan_.grid.data);
    reads = plan_of_reads(index, readers);
    name_as_stored(*model_, index);
    info_.weight_bytes = make_weights(*model_, *backend_.ops, plan_.dtype, *shared_.scheme, &index);
    info_.left_out = index.left_out;
    for (const std::string& warning : {index.warning, shared_.scheme->warning(index)})
      if (!warning.empty()) warnings_.push_back(warning);
  });
  LoadedBytes loaded;
  collective_phase(world_, [&] {
    loaded = load_weights(*model_, *backend_.ops, index, *shared_.scheme, reads, world_.transport(), replicas,
                          activity_.layer);
  });
  info_.bytes_read = loaded.count;
  note_not_finite(loaded.not_finite);
  info_.kv_scales = !kv_scales_.empty();
  if (!data_group) return;
  share_weights(*model_, *data_group, readers, activity_.layer);
  backend_.device->synchronize();
}

// Collective. A warning, no refusal: a weight that is never read harms nobody.
void RankModel::note_not_finite(const std::map<std::string, uint64_t>& mine) {
  constexpr size_t most_names = 3;
  std::string text;
  for (const auto& [name, count] : mine) text += fmt::format("{} {}\n", count, name);
  std::map<std::string, uint64_t> all;
  for (const std::string& lines : world_.all_gather_bytes(text)) {
    std::istringstream stream(lines);
    uint64_t count = 0;
    for (std::string name; stream >> count && stream.get() && std::getline(stream, name);) all[name] += count;
  }
  if (all.empty() || world_.rank() != 0) return;
  uint64_t sum = 0;
  std::vector<std::string> names;
  for (const auto& [name, count] : all) {
    sum += count;
    if (names.size() < most_names) names.push_back(fmt::format("{} ({})", name, count));
  }
  const size_t more = all.size() - names.size();
  warnings_.push_back(
      fmt::format("{} among the weights {} NaN or infinite: {}{}; a request that meets one fails",
                  counted(sum, "number"), sum == 1 ? "is" : "are", fmt::join(names, ", "),
                  more > 0 ? fmt::format(" and {}", counted(more, "more tensor")) : ""));
}

// The group of the ranks with this rank's part of the model; null if NCCL does not carry their tensors.
std::unique_ptr<Communicator> RankModel::make_nccl_data_group() {
  if (plan_.grid.data == 1 || backend_.device->shares_host_memory()) return nullptr;
  std::unique_ptr<Communicator> group = world_.make_group(rank_.groups.data, *backend_.ops);
  return group->captures() ? std::move(group) : nullptr;
}

// Models without weights cost nothing, so every rank computes what all ranks need. readers: given if each
// replica reads for itself.
std::vector<ReadRound> RankModel::plan_of_reads(const WeightIndex& index, const Readers& readers) const {
  std::vector<WeightNeeds> needs;
  for (int location = 0; location < plan_.grid.replica_ranks(); ++location)
    needs.push_back(needs_of(*make_stored_model(shared_.config, plan_.rank(location), index), index,
                             *shared_.scheme, readers, rank_.position.data));
  // Small rounds keep all ranks busy. Those of a large model are larger, to keep the plan small.
  uint64_t stored = 0;
  for (const auto& [name, tensor] : index.tensors) stored += tensor.info.byte_size;
  const uint64_t round = std::clamp(stored >> 14, uint64_t{1} << 20, uint64_t{16} << 20);
  return plan_reads(needs, index, readers.empty() ? plan_.grid.data : 1, round);
}

bool RankModel::captures_graphs() const {
  return !options_.eager && backend_.device->captures() && groups_.capture();
}

size_t RankModel::bytes_of_graphs() const {
  return captures_graphs() ? graph_bytes * decode_buckets(limits_.max_num_seqs).size() : 0;
}

// The ranks of this node with the same GPU; on CPUs all ranks of the node.
size_t RankModel::ranks_with_my_memory() const {
  const auto me = static_cast<size_t>(world_.rank());
  size_t count = 0;
  for (size_t rank = 0; rank < info_.gpus.size(); ++rank)
    if (world_.locations()[rank].node == world_.locations()[me].node && info_.gpus[rank] == info_.gpus[me])
      ++count;
  return count;
}

// beside: what this rank will take besides weights, cache and graphs. held: blocks that it has, and that the cache will replace.
size_t RankModel::memory_for_cache(size_t beside, const KvBlocks& held) const {
  const size_t sharers = ranks_with_my_memory();
  const MemoryState memory{.total = backend_.device->total_memory(),
                           .free = backend_.device->free_memory() + sharers * held.bytes(kv()),
                           .reserved = beside + bytes_of_graphs(),
                           .sharers = sharers,
                           .addresses = free_addresses()};
  return cache_memory(memory, options_.gpu_memory_utilization);
}

// The KV blocks of this rank. may_take: bytes, if neither kv_blocks nor kv_memory is given; then at most what the
// largest batch can use.
uint32_t RankModel::affordable_blocks(size_t may_take) const {
  if (options_.kv_blocks) return *options_.kv_blocks;
  const size_t useful = plan_.kv_blocks(limits_.max_num_seqs).blocks;
  const size_t memory = options_.kv_memory.value_or(may_take);
  const size_t token_bytes =
      model_->head() && !options_.kv_memory ? plan_.block_tokens * sizeof(int32_t) : 0;  // BatchBuilder's
  const size_t fitting = plan_.fitting_blocks(kv(), limits_.max_num_seqs, memory, token_bytes).blocks,
               blocks = options_.kv_memory ? fitting : std::min(useful, fitting);
  const std::string limit = options_.kv_memory ? "" : address_limit_text();
  if (blocks == 0)
    throw Error(
        ExitCode::preflight,
        fmt::format("the KV cache has room for no block: a block of {} tokens takes {} bytes, {} are there{}",
                    plan_.block_tokens, kv().block_bytes() + kv().window_block_bytes(), memory, limit),
        "no request could be computed",
        options_.kv_memory ? "a larger `kv_memory` or a smaller `block_size`"
        : limit.empty()    ? "fewer ranks a node, or a larger `gpu_memory_utilization` of GPUs"
                           : address_limit_remedy);
  return static_cast<uint32_t>(std::min<size_t>(blocks, INT32_MAX / plan_.block_tokens));
}

void RankModel::size_kv_cache() {
  world_.barrier();  // after it all weights are in memory, and free memory is for the cache
  uint32_t mine = 0;
  RunnerSizes sizes{.limits = limits_,
                    .kv = kv(),
                    .kv_scales = kv_scales_,
                    .activation = plan_.dtype,
                    .vocabulary_size = shared_.config.vocab_size,
                    .hidden_size = shared_.config.hidden_size,
                    .tokens_in_plan = plan_.grid.pipeline > 1};
  collective_phase(world_, [&] {
    sizes.scratch = dry_run(*model_, rank_, *backend_.ops, limits_, plan_.dtype, shared_.config);
    if (std::string warning = backend_.ops->warning(); !warning.empty())
      warnings_.push_back(std::move(warning));
    mine = affordable_blocks(memory_for_cache(sizes.scratch.total(), {}));
  });
  if (backend_.device->captures()) {
    collective_phase(world_, [&] {
      RunnerSizes smallest = sizes;
      smallest.num_blocks = 1;
      runner_ = std::make_unique<ModelRunner>(*model_, *backend_.ops, groups_, smallest, activity_.layer);
      const bool measured = !options_.kv_blocks && !options_.kv_memory;
      runner_->warm_up(measured ? limits_.step_tokens : 0);
      counts_before_ = expert_counts();
    });
    // Now all ranks that share this memory have what they and the libraries take.
    collective_phase(world_, [&] {
      mine = affordable_blocks(memory_for_cache(0, {1, limits_.windows(1).blocks}));
    });
    runner_.reset();
  }
  blocks_of_replicas_.assign(static_cast<size_t>(plan_.grid.data), UINT32_MAX);
  info_.fitting_blocks = mine;
  const std::vector<uint32_t> all = gather_values(world_, mine);
  for (int rank = 0; rank < world_.size(); ++rank) {
    uint32_t& smallest = blocks_of_replicas_[static_cast<size_t>(position_in(plan_.grid, rank).data)];
    smallest = std::min(smallest, all[static_cast<size_t>(rank)]);
  }
  info_.num_blocks = *std::ranges::min_element(blocks_of_replicas_);
  info_.window_blocks = limits_.windows(info_.num_blocks).blocks;
  collective_phase(world_, [&] {
    sizes.num_blocks = blocks_of_replicas_[static_cast<size_t>(rank_.position.data)];
    const KvBlocks held{sizes.num_blocks, limits_.windows(sizes.num_blocks).blocks};
    info_.kv_bytes = held.bytes(sizes.kv);
    info_.scratch_bytes = sizes.scratch.total();
    runner_ = std::make_unique<ModelRunner>(*model_, *backend_.ops, groups_, sizes, activity_.layer);
  });
}

void RankModel::capture_graphs() {
  const Clock::time_point start = Clock::now();
  collective_phase(world_, [&] {
    if (captures_graphs()) runner_->capture_decodes();
  });
  info_.num_graphs = runner_->num_graphs();
  info_.capture_seconds = seconds_since(start);
}

std::vector<int32_t> RankModel::expert_counts() const {
  std::vector<int32_t> all;
  for (const ConstTensorView& counts : model_->expert_counts()) {
    const auto count = static_cast<size_t>(counts.shape.elements());
    all.resize(all.size() + count);
    backend_.device->download(reinterpret_cast<std::byte*>(all.data() + all.size() - count), counts.data,
                              counts.bytes());
  }
  for (size_t i = 0; i < counts_before_.size(); ++i) all[i] -= counts_before_[i];
  return all;
}

WorkerTimes RankModel::work() {
  return run_worker_loop(*channel_.leaf, plan_.sends_results(world_.rank()), *runner_, activity_);
}

}  // namespace maniple
