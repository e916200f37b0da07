#include <launch/options/job_grammar.hpp>

#include <algorithm>
#include <bit>
#include <limits>

namespace maniple {

using namespace std::chrono_literals;

namespace {

Value<std::string> deadline(std::chrono::milliseconds& target) {
  return duration(target, 3s, "give a longer one; a busy machine needs time too");
}

uint32_t parse_block_size(const std::string& name, const std::string& given) {
  const auto size = parse_number<uint32_t>(name, given, 1, std::numeric_limits<uint32_t>::max());
  if (size < 16 || size > 256 || !std::has_single_bit(size))
    refuse(fmt::format("--{} ({}) must be 16, 32, 64, 128 or 256", name, size),
           "--block-size 256 suits most runs");
  return size;
}

constexpr const char* layers_remedy = "leave it out: stages then cost about the same";

std::vector<int64_t> parse_layers(const std::string& name, const std::string& given) {
  std::vector<int64_t> layers;
  for (const std::string& stage : split_at_commas(given)) {
    layers.push_back(whole_text<int64_t>(stage).value_or(-1));
    if (layers.back() < 0) refuse(fmt::format("--{} ({}) must be whole numbers", name, given), layers_remedy);
  }
  if (std::ranges::find(layers, 0) != layers.end())
    refuse(fmt::format("--{} ({}): every stage needs a layer", name, given), layers_remedy);
  return layers;
}

}  // namespace

Value<std::string> dtype(std::optional<DType>& target) {
  return choice("TYPE", target,
                {{"auto", {}}, {"bf16", DType::bf16}, {"fp16", DType::fp16}, {"fp32", DType::fp32}});
}

void add_rank_options(Grammar& grammar, JobOptions& options) {
  EngineOptions& engine = options.engine;
  grammar.group("Ranks and processors");
  grammar.add("tp", number(engine.tensor_size, 1, 1 << 20).by_default("1"),
              "ranks that share the layers of a copy of the model; replicas = ranks / (N x --pp)");
  grammar.add(
      "ep", number(engine.expert_size, 1, 1 << 20),
      "of the --tp ranks, those that hold other experts; --tp / --ep ranks split each expert [default: "
      "by their number]");
  grammar.add("cp", number(engine.context_size, 1, 1 << 20).by_default("1"),
              "of the ranks that hold the same KV head, so many share each context: N times the KV tokens");
  grammar.add("pp", number(engine.pipeline_size, 1, 1 << 20).by_default("1"),
              "stages of a pipeline, each --tp ranks with some of the layers");
  grammar.add("pp-layers", parsed("A,B,...", engine.pipeline_layers, parse_layers),
              "layers of each stage [default: stages that cost about the same]");
  grammar.add("pp-steps", number(engine.steps_in_flight, 1, 1024),
              "steps on their way through the pipeline [default: --pp + 1]");
  grammar.add("allow-cross-node-tp", on(options.allow_cross_node_tp),
              "ranks that share a copy may be on several nodes");
  grammar.add("backend",
              choice("NAME", engine.backend.kind,
                     {{"auto", BackendKind::automatic},
                      {"cpu", BackendKind::cpu},
                      {"reference", BackendKind::reference},
                      {"cuda", BackendKind::cuda}}),
              "auto, cpu, reference or cuda");
  grammar.add("threads", number(engine.threads, 1, 4096),
              "of each rank [default: its CPUs / ranks that share them]");
  grammar.add("cpu-path",
              choice("NAME", engine.backend.cpu_path,
                     {{"auto", CpuPath::automatic},
                      {"amx", CpuPath::amx},
                      {"avx512_bf16", CpuPath::avx512_bf16},
                      {"avx512", CpuPath::avx512},
                      {"avx2", CpuPath::avx2},
                      {"portable", CpuPath::portable}}),
              "auto, amx, avx512_bf16, avx512, avx2 or portable");
  grammar.add(
      "all-reduce",
      choice(
          "NAME", engine.all_reduce,
          {{"auto", AllReduce::automatic}, {"shared", AllReduce::shared}, {"messages", AllReduce::messages}}),
      "of ranks on the CPUs of a node: shared (memory), messages, or auto: what is faster, by size");
  grammar.add("deadline", deadline(options.deadline).by_default("60s"),
              "all ranks are gone so long after any one failed");
  grammar.add("start-deadline", deadline(options.start_deadline).by_default("300s"),
              "the ranks have found each other by then, or the job ends");
  grammar.add(
      "transport",
      choice("NAME", options.transport,
             {{"auto", GpuTransport::automatic}, {"nccl", GpuTransport::nccl}, {"host", GpuTransport::host}}),
      "of tensors on GPUs: nccl, host (through MPI), or auto: nccl where no two ranks share a GPU");
  grammar.add("nccl-windows", on(options.nccl_windows),
              "sums of tensor groups in memory that GPUs of a node read directly (NCCL 2.29.7 or newer; not "
              "measured yet)");
}

void add_stop_options(Grammar& grammar, JobOptions& options) {
  grammar.group("Stopping before the job's time is over");
  grammar.add("stop-before", duration(options.time_limit.stop_before),
              "stop so long before it [default: 180s, at most half of the time]");
  grammar.add("walltime",
              parsed("[D-]HH:MM:SS", options.time_limit.walltime,
                     [](const std::string&, const std::string& given) { return parse_walltime(given); }),
              "the job's time from now on, where Slurm does not tell; also MM:SS, 4h, 90m");
}

void settle(JobOptions& options, const Grammar& grammar, const Launch& launch) {
  options.given = grammar.given();
  options.launch = launch;
  options.time_limit.slurm_job = launch.job;
  options.time_limit.slurm_end = launch.job_end;
  if (!grammar.wrote("max-num-seqs"))
    options.engine.max_num_seqs =
        std::min(options.engine.max_num_seqs, options.engine.max_num_batched_tokens);
  options.engine.share_gpus = options.transport == GpuTransport::host ||
                              (options.transport == GpuTransport::nccl && launch.nccl_shares_gpus);
  if (options.engine.context_size > 1 && options.engine.block_size != 256)
    refuse(fmt::format("--cp {} needs --block-size 256, and {} was given", options.engine.context_size,
                       options.engine.block_size),
           "leave --block-size out: a rank holds every --cp-th 256 positions of a context");
  if (options.engine.steps_in_flight && options.engine.pipeline_size == 1)
    refuse("--pp-steps needs --pp 2 or more", "leave it out: without stages one step is computed at a time");
}

void add_model_options(Grammar& grammar, JobOptions& options, const char* if_no_model) {
  EngineOptions& engine = options.engine;
  grammar.add("model", path("DIR", engine.model).or_refuse(if_no_model),
              "Hugging Face directory: config.json, *.safetensors, tokenizer.json; or the file that convert "
              "made of it");
  grammar.add("load", choice("HOW", engine.random_weights, {{"weights", false}, {"random", true}}),
              "weights; or random: seeded ones of the shape in config.json");
  grammar.add(
      "quantize",
      choice("FORMAT", engine.quantize,
             {{"none", {}},
              {"int8", WeightFormat::int8},
              {"fp8", WeightFormat::fp8},
              {"int4", WeightFormat::int4}}),
      "none; int8, fp8 or int4: rounds the weights of a model in floating point while they are loaded");
  grammar.add("dtype", dtype(engine.dtype),
              "of weights and activations: bf16, fp16 (on GPUs), fp32; auto: bf16, or fp16 where the "
              "checkpoint is and GPUs are used");
  grammar.add("kv-cache-dtype",
              choice("TYPE", engine.kv_cache_dtype,
                     {{"auto", {}},
                      {"fp8", DType::fp8},
                      {"bf16", DType::bf16},
                      {"fp16", DType::fp16},
                      {"fp32", DType::fp32}}),
              "of keys and values: fp8 (half of the memory of bf16), or as --dtype; auto: fp8 where the "
              "checkpoint asks for it");
  grammar.add("max-model-len", number(engine.max_model_len, 2, no_limit),
              "most tokens of prompt and completion [default: the model's]");
}

void add_engine_options(Grammar& grammar, EngineOptions& engine) {
  grammar.add(
      "repro",
      choice("LEVEL", engine.repro,
             {{"auto", std::nullopt}, {"grid", Repro::grid}, {"batch", Repro::batch}, {"off", Repro::off}}),
      "auto: grid, where the sizes allow it; batch: same text whoever shares the batch; grid: on any grid "
      "too; off");
  grammar.add("eager", on(engine.eager), "no CUDA graphs of decode steps");
  grammar.group("Batches and memory");
  grammar.add("max-num-seqs", number(engine.max_num_seqs, 1, no_limit).by_default("256"),
              "most requests of a replica at once; by default no more than --max-num-batched-tokens");
  grammar.add("max-num-batched-tokens", number(engine.max_num_batched_tokens, 1, no_limit).by_default("2048"),
              "most tokens of a step");
  grammar.add(
      "schedule",
      choice("HOW", engine.schedule, {{"mixed", Policy::mixed}, {"prefill-first", Policy::prefill_first}}),
      "mixed; prefill-first: prompts alone, before decodes");
  grammar.add("block-size", parsed("N", engine.block_size, parse_block_size).by_default("256"),
              "tokens in a block of the KV cache: 16, 32, 64, 128 or 256");
  grammar.add("kv-memory", bytes(engine.kv_memory),
              "KV cache of a rank, such as 4G (2^30) or 4GB (10^9) [default: what is useful and free]");
  grammar.add("gpu-memory-utilization", number(engine.gpu_memory_utilization, 0.01, 1.0).by_default("0.9"),
              "part of a GPU's memory that may be used");
  grammar.add("no-prefix-cache", on(engine.prefix_cache, false), "compute every prompt from its start");
}

}  // namespace maniple
