// The main promise: the same tokens and log-probabilities on any grid, with any batch, chunking, block size,
// cache and backend.
#include <gtest/gtest.h>
#include <kernels/factory/make_backend.hpp>
#include <parallel/self/self_world.hpp>
#include <runtime/checkpoint/loading/model_config.hpp>
#include <support/cover.hpp>
#include <support/fused_checkpoint.hpp>
#include <support/golden.hpp>
#include <support/serving.hpp>
#include <support/temp_directory.hpp>
#include <support/wrapped_checkpoint.hpp>

namespace maniple {
namespace {

using testing::expect_golden;
using testing::Golden;
using testing::golden_requests;
using testing::print;
using testing::sampled;
using testing::serve;
using testing::Served;

EngineOptions options_for(const std::string& model, DType dtype, BackendKind kind = BackendKind::cpu) {
  EngineOptions options;
  options.model = testing::model_directory(model);
  options.dtype = dtype;
  options.backend.kind = kind;
  options.max_num_seqs = 16;
  options.max_num_batched_tokens = 512;
  options.kv_memory = size_t{64} << 20;
  options.block_size = 32;
  return options;
}

struct Grid {
  int tensor;
  int data;
  int pipeline = 1;

  int ranks() const { return tensor * pipeline * data; }
  void apply_to(EngineOptions& options) const {
    options.tensor_size = tensor;
    options.pipeline_size = pipeline;
  }
};
const std::vector<Grid> grids{{1, 1}, {2, 1}, {4, 1},    {8, 1},    {1, 2},    {1, 4},
                              {2, 2}, {4, 2}, {1, 1, 2}, {1, 1, 3}, {2, 1, 2}, {2, 2, 2}};
const std::vector<DType> types{DType::bf16, DType::fp32};

class GoldenTokens : public ::testing::TestWithParam<std::tuple<const char*, BackendKind>> {};

TEST_P(GoldenTokens, AreTheSameOnEveryGridInFp32) {
  const auto [model, kind] = GetParam();
  const Golden golden = testing::read_golden(model);
  for (const Grid& grid : sampled(grids, 4)) {
    EngineOptions options = options_for(model, DType::fp32, kind);
    grid.apply_to(options);
    const std::string where = fmt::format("tp {} pp {} dp {}", grid.tensor, grid.pipeline, grid.data);
    expect_golden(golden, serve(grid.ranks(), options, golden_requests(golden)), where);
  }
}

TEST_P(GoldenTokens, SurviveSmallBudgetsBlocksAndCaches) {
  const auto [model, kind] = GetParam();
  const Golden golden = testing::read_golden(model);
  for (const auto& [block_size, prefix_cache, tensor] :
       testing::each_pair(std::vector{16u, 256u}, std::vector{true, false}, std::vector{1, 2})) {
    EngineOptions options = options_for(model, DType::fp32, kind);
    options.tensor_size = tensor;
    options.block_size = block_size;
    options.prefix_cache = prefix_cache;
    options.max_num_seqs = 8;
    options.max_num_batched_tokens = 24;  // chunks
    const std::string where =
        fmt::format("block size {} prefix cache {} tp {}", block_size, prefix_cache, tensor);
    std::vector<GenerationRequest> twice = golden_requests(golden);
    for (const GenerationRequest& request : golden_requests(golden)) {
      twice.push_back(request);
      twice.back().id += golden.sequences.size();
    }
    const Served served = serve(tensor, options, twice);
    ASSERT_EQ(served.completions.size(), twice.size()) << where;
    for (size_t i = 0; i < twice.size(); ++i)
      EXPECT_EQ(served.completions.at(i).answers.at(0).tokens,
                golden.sequences[i % golden.sequences.size()].tokens)
          << where << ", " << i;
  }
}

INSTANTIATE_TEST_SUITE_P(Models, GoldenTokens,
                         ::testing::Combine(::testing::Values("tiny-qwen3", "tiny-qwen3-kv1"),
                                            ::testing::Values(BackendKind::reference, BackendKind::cpu)),
                         [](const auto& param) {
                           std::string name = std::get<0>(param.param);
                           std::replace(name.begin(), name.end(), '-', '_');
                           return name +
                                  (std::get<1>(param.param) == BackendKind::cpu ? "_cpu" : "_reference");
                         });

TEST(Engine, ServesTensorSizesThatDivideTheHeadsAlone) {
  const Golden golden = testing::read_golden("tiny-llama3");  // 6 heads, 2 KV heads, inner size 224
  for (const int tensor : {1, 2, 3, 6}) {
    EngineOptions options = options_for("tiny-llama3", DType::fp32);
    options.tensor_size = tensor;
    const Served served = serve(tensor, options, golden_requests(golden));
    expect_golden(golden, served, fmt::format("tp {}", tensor));
    EXPECT_EQ(served.plan.repro, tensor <= 2 ? Repro::grid : Repro::batch);
  }
}

TEST(Engine, ServesTheLanguageModelsOfWrappersAndSaysWhatItLeavesOut) {
  for (const auto& names : testing::wrapped_names)
    for (const char* name : {"tiny-llama3", "tiny-qwen3-moe", "q-w4a16"}) {
      const TempDirectory wrapped;
      testing::write_wrapped(testing::model_directory(name), names, wrapped.path());
      const Golden golden = testing::read_golden(name);
      EngineOptions options = options_for(name, DType::fp32);
      options.model = wrapped.path();
      options.tensor_size = 2;
      const Served served = serve(2, options, golden_requests(golden));
      expect_golden(golden, served, names.model + name);
      EXPECT_EQ(
          served.info.left_out,
          "2 tensors (16 B) of a tower for images, 3 tensors (24 B) of layers that predict further tokens");
    }
}

TEST(Engine, ServesCheckpointsWithFusedTensors) {
  for (const char* name : {"tiny-qwen3", "tiny-qwen3-kv1", "tiny-qwen2", "tiny-llama3"}) {
    const TempDirectory fused;
    testing::write_fused(testing::model_directory(name), fused.path());
    const Golden golden = testing::read_golden(name);
    for (const int tensor : {1, 2, 4}) {
      if (tensor == 4 && std::string(name) == "tiny-llama3") continue;  // 6 heads
      EngineOptions options = options_for(name, DType::fp32);
      options.model = fused.path();
      options.tensor_size = tensor;
      expect_golden(golden, serve(tensor, options, golden_requests(golden)),
                    fmt::format("{} tp {}", name, tensor));
    }
  }
}

TEST(Engine, KeepsItsTokensWhenPreempted) {
  const Golden golden = testing::read_golden("tiny-qwen3");
  EngineOptions options = options_for("tiny-qwen3", DType::fp32);
  options.block_size = 16;
  // 3 layers, 4 KV heads of 32: a block of 16 tokens takes 48 KiB. 22 blocks hold the longest sequence (324
  // tokens), not all of them.
  options.kv_memory = size_t{22} * 2 * 3 * 4 * 32 * 16 * 4;
  std::vector<GenerationRequest> requests;
  for (int copy = 0; copy < 8; ++copy)
    for (GenerationRequest& request : golden_requests(golden)) {
      request.id = requests.size();
      requests.push_back(request);
    }
  options.prefix_cache = false;
  const Served served = serve(1, options, requests);
  EXPECT_GT(served.summary.preemptions, 0u);
  for (size_t i = 0; i < requests.size(); ++i)
    EXPECT_EQ(served.completions.at(i).answers.at(0).tokens,
              golden.sequences[i % golden.sequences.size()].tokens)
        << i;
}

std::vector<GenerationRequest> varied_requests(size_t count) {
  std::vector<GenerationRequest> requests;
  uint64_t state = 17;
  const auto draw = [&state](uint64_t below) {
    return (state = state * 6364136223846793005u + 1442695040888963407u) >> 33 ? (state >> 33) % below : 0;
  };
  for (size_t i = 0; i < count; ++i) {
    GenerationRequest& request = requests.emplace_back();
    request.id = i;
    const uint64_t length = 1 + draw(70);
    for (uint64_t t = 0; t < length; ++t) request.prompt.push_back(static_cast<int32_t>(draw(384)));
    request.sampling.max_tokens = static_cast<uint32_t>(1 + draw(20));
    request.sampling.seed = draw(1u << 30);
    request.sampling.temperature = i % 3 == 0 ? 0.0F : 0.9F;
    if (i % 4 == 1) request.sampling.top_k = 40;
    if (i % 4 == 2) request.sampling.top_p = 0.9F;
    if (i % 5 == 3) request.sampling.min_p = 0.02F;
    request.sampling.logprobs = static_cast<int32_t>(i % 4) - 1;
  }
  return requests;
}

TEST(Engine, GivesTheSameBitsOnEveryGridAndBatchInBothTypes) {
  const std::vector<GenerationRequest> requests = varied_requests(24);
  const auto runs = testing::each_value(types, grids);
  for (const DType dtype : types) {
    EngineOptions options = options_for("tiny-qwen3-kv1", dtype);
    const std::string expected = print(serve(1, options, requests));
    ASSERT_NE(expected.find("0x1."), std::string::npos) << "no log-probabilities in the comparison";
    for (const auto& [of_type, grid] : runs) {
      if (of_type != dtype) continue;
      grid.apply_to(options);
      EXPECT_EQ(print(serve(grid.ranks(), options, requests)), expected)
          << name_of(dtype) << " tp " << grid.tensor << " pp " << grid.pipeline << " dp " << grid.data;
    }
    options.pipeline_size = 1;
    options.tensor_size = 2;
    options.max_num_seqs = 2;
    options.max_num_batched_tokens = 7;
    options.block_size = 16;
    options.threads = 3;
    EXPECT_EQ(print(serve(2, options, requests)), expected)
        << name_of(dtype) << ", two at a time, chunks of seven, three threads";
  }
}

// Scales of the checkpoint; of a model in floating point, 1.
TEST(Engine, KeepsKeysAndValuesInFp8WithTheSameBitsOnEveryGrid) {
  const Golden golden = testing::read_golden("q-fp8-static-kv");
  for (const DType dtype : {DType::bf16, DType::fp32}) {
    for (const char* model : {"q-fp8-static-kv", "tiny-qwen3"}) {
      const bool scaled = model != std::string_view("tiny-qwen3");
      std::vector<GenerationRequest> requests = varied_requests(24);
      for (GenerationRequest& request : requests)
        for (int32_t& token : request.prompt) token %= 384;
      if (scaled && dtype == DType::fp32) requests = golden_requests(golden);
      EngineOptions options = options_for(model, dtype);
      if (!scaled) options.kv_cache_dtype = DType::fp8;
      const Served expected = serve(1, options, requests);
      EXPECT_EQ(expected.plan.kv_dtype, DType::fp8);
      EXPECT_EQ(expected.info.kv_scales, scaled);
      if (scaled && dtype == DType::fp32) expect_golden(golden, expected, "one rank");
      for (const Grid& grid : sampled<Grid>({{2, 1}, {4, 1}, {1, 2}, {2, 2}, {1, 1, 2}, {2, 1, 2}}, 2)) {
        grid.apply_to(options);
        EXPECT_EQ(print(serve(grid.ranks(), options, requests)), print(expected))
            << model << " " << name_of(dtype) << " tp " << grid.tensor << " pp " << grid.pipeline << " dp "
            << grid.data;
      }
      options.pipeline_size = 1;
      options.tensor_size = 4;
      options.context_size = scaled ? 2 : 1;  // ranks of a KV head
      options.block_size = 256;
      EXPECT_EQ(print(serve(4, options, requests)), print(expected)) << "a shared context";
      options.context_size = 1;
      options.tensor_size = 2;
      options.max_num_seqs = 2;
      options.max_num_batched_tokens = 7;
      options.block_size = 16;
      EXPECT_EQ(print(serve(2, options, requests)), print(expected)) << "chunks of seven";
      options = options_for(model, dtype);
      options.kv_cache_dtype = dtype;
      EXPECT_NE(print(serve(1, options, requests)), print(expected)) << "the type has no effect";
    }
  }
}

// Ranks that share one GPU; their groups go through the host. On a GPU all grids, in the rehearsal a sample.
class OnAGpu : public ::testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    if (visible_gpus() == 0) GTEST_SKIP() << "no GPU: none is visible";
  }
  static EngineOptions options(DType dtype, const Grid& grid = {1, 1}) {
    EngineOptions options = options_for(GetParam(), dtype, BackendKind::cuda);
    grid.apply_to(options);
    options.share_gpus = true;
    return options;
  }
};

TEST_P(OnAGpu, GoldenTokensAreTheSameOnEveryGridInFp32) {
  const Golden golden = testing::read_golden(GetParam());
  const int64_t heads = read_model_config(testing::model_directory(GetParam())).num_heads;
  for (const Grid& grid : sampled<Grid>({{1, 1}, {2, 1}, {4, 1}, {1, 2}, {2, 2}, {2, 1, 2}}, 3)) {
    if (heads % grid.tensor != 0) continue;
    expect_golden(golden, serve(grid.ranks(), options(DType::fp32, grid), golden_requests(golden)),
                  fmt::format("tp {} pp {} dp {}", grid.tensor, grid.pipeline, grid.data));
  }
}

// Of the two ranks that hold the only KV head, each has half of the positions.
TEST_P(OnAGpu, GoldenTokensAreTheSameWithASharedContext) {
  const ModelConfig config = read_model_config(testing::model_directory(GetParam()));
  if (config.num_kv_heads > 1) return;
  const Golden golden = testing::read_golden(GetParam());
  EngineOptions shared = options(DType::fp32, {2, 1});
  shared.context_size = 2;
  shared.block_size = 256;
  expect_golden(golden, serve(2, shared, golden_requests(golden)), "tp 2 cp 2");
}

TEST_P(OnAGpu, GraphsGiveTheBitsOfEagerSteps) {
  for (const Grid& grid : sampled<Grid>({{1, 1}, {1, 1, 2}}, 1)) {
    EngineOptions eager = options(DType::bf16, grid);
    eager.eager = true;
    const Served captured = serve(grid.ranks(), options(DType::bf16, grid), varied_requests(24));
    EXPECT_GT(captured.info.num_graphs, 0u);
    EXPECT_EQ(print(captured), print(serve(grid.ranks(), eager, varied_requests(24))));
  }
}

INSTANTIATE_TEST_SUITE_P(Models, OnAGpu,
                         ::testing::Values("tiny-qwen3", "tiny-qwen3-kv1", "tiny-llama3", "tiny-qwen2",
                                           "tiny-qwen3-moe", "tiny-mixtral"),
                         [](const auto& param) {
                           std::string name = param.param;
                           std::replace(name.begin(), name.end(), '-', '_');
                           return "cuda_" + name;
                         });

TEST(Engine, GivesTheSameBitsOnEveryInstructionPathAcrossGrids) {
  const std::vector<GenerationRequest> requests = varied_requests(9);
  for (const CpuPath path : available_cpu_paths()) {
    EngineOptions options = options_for("tiny-qwen3-kv1", DType::bf16);
    options.backend.cpu_path = path;
    const std::string expected = print(serve(1, options, requests));
    options.tensor_size = 4;
    EXPECT_EQ(print(serve(4, options, requests)), expected) << name_of(path);
  }
}

// Either schedule, several steps in flight, with unpredictable stops, preemptions and chunks.
TEST(Engine, GivesTheSameBitsForEveryScheduleAndNumberOfStepsInFlight) {
  std::vector<GenerationRequest> requests = varied_requests(24);
  for (GenerationRequest& request : requests) {
    request.sampling.max_tokens = 40;
    for (int32_t token = static_cast<int32_t>(request.id % 7); token < 384; token += 23)
      request.sampling.stop_token_ids.push_back(token);
  }
  EngineOptions options = options_for("tiny-qwen3-kv1", DType::fp32);
  const Served expected = serve(1, options, requests);
  EXPECT_GT(std::count_if(
                expected.completions.begin(), expected.completions.end(),
                [](const auto& entry) { return entry.second.answers.at(0).reason == FinishReason::stop; }),
            5);
  const std::vector<std::pair<Policy, uint32_t>> schedules{
      {Policy::mixed, 2}, {Policy::mixed, 3}, {Policy::prefill_first, 1}, {Policy::prefill_first, 2}};
  for (const auto& [how, grid, tight] :
       testing::each_value(schedules, std::vector<Grid>{{1, 1}, {2, 1}, {2, 2}}, std::vector{false, true})) {
    const auto& [schedule, steps] = how;
    options.schedule = schedule;
    options.steps_in_flight = steps;
    options.tensor_size = grid.tensor;
    options.max_num_batched_tokens = tight ? 16 : 512;
    options.block_size = tight ? 16 : 32;
    options.kv_memory = tight ? 20 * (size_t{32} << 10) : size_t{64} << 20;  // blocks of 16 tokens
    const Served served = serve(grid.tensor * grid.data, options, requests);
    EXPECT_EQ(print(served), print(expected)) << steps << " steps in flight, tp " << grid.tensor;
    if (tight) {
      EXPECT_GT(served.summary.preemptions, 0u);
    }
  }
}

// Uneven stages, chunks of seven, blocks of 16, forced preemptions, any number of steps in flight; on the demo
// model, whose tied table lies on two stages.
TEST(Engine, GivesTheSameBitsOnEveryPipeline) {
  std::vector<GenerationRequest> requests = varied_requests(24);
  for (GenerationRequest& request : requests) {
    request.sampling.max_tokens = 40;
    for (int32_t token = static_cast<int32_t>(request.id % 7); token < 2048; token += 23)
      request.sampling.stop_token_ids.push_back(token);
  }
  struct Case {
    Grid grid;
    std::vector<int64_t> layers;
    uint32_t steps, tokens, block_size;
    bool tight;
  };
  const auto runs = testing::each_value(types, std::vector<Case>{{{1, 1, 2}, {}, 3, 512, 32, false},
                                                                 {{1, 1, 5}, {}, 6, 512, 32, false},
                                                                 {{2, 1, 2}, {1, 4}, 1, 512, 16, true},
                                                                 {{2, 2, 2}, {4, 1}, 3, 512, 32, false},
                                                                 {{4, 1, 2}, {}, 2, 64, 16, true},
                                                                 {{1, 2, 3}, {1, 1, 3}, 4, 7, 16, false},
                                                                 {{1, 1, 3}, {1, 3, 1}, 9, 24, 16, true}});
  for (const DType dtype : types) {
    const Served expected = serve(1, options_for("shakespeare", dtype), requests);
    for (const auto& [of_type, run] : runs) {
      if (of_type != dtype) continue;
      const auto& [grid, layers, steps, tokens, block_size, tight] = run;
      EngineOptions options = options_for("shakespeare", dtype);
      grid.apply_to(options);
      options.pipeline_layers = layers;
      options.steps_in_flight = steps;
      options.max_num_batched_tokens = tokens;
      options.max_num_seqs = std::min(tokens, 16U);
      options.block_size = block_size;
      options.prefix_cache = !tight;
      const auto deepest = layers.empty() ? 3 : *std::ranges::max_element(layers);
      const auto block = 2 * static_cast<size_t>(deepest) * (4 / static_cast<size_t>(grid.tensor)) * 64 * 16 *
                         size_of(dtype);
      if (tight) options.kv_memory = 20 * block;
      const Served served = serve(grid.ranks(), options, requests);
      EXPECT_EQ(print(served), print(expected))
          << name_of(dtype) << " tp " << grid.tensor << " pp " << grid.pipeline << " dp " << grid.data;
      if (tight) {
        EXPECT_GT(served.summary.preemptions, 0u);
      }
    }
  }
}

// Windows of 24 in every other layer: their blocks are given back and reused, copied for further answers, found with prefixes, and not
// shared with a context.
TEST(Engine, GivesTheSameBitsWhereWindowBlocksAreGivenBack) {
  std::vector<GenerationRequest> requests = varied_requests(24);
  const size_t lengths[] = {300, 25, 150, 23, 24, 513, 72, 40};
  for (GenerationRequest& request : requests) {
    const auto first = static_cast<int32_t>(request.id % 3);  // a few beginnings
    request.prompt.resize(lengths[request.id % 8]);
    for (size_t i = 0; i < request.prompt.size(); ++i)
      request.prompt[i] = (first * 97 + static_cast<int32_t>(i * i) * 31 + static_cast<int32_t>(i)) % 500;
    if (request.id % 4 == 1) request.sampling.n = 3;
    if (request.id % 4 == 2) request.sampling.prompt_logprobs = 0;
    request.sampling.ignore_eos = true;
  }
  const std::string expected = print(serve(1, options_for("tiny-gpt-oss", DType::fp32), requests));
  struct Case {
    Grid grid;
    int context;
    uint32_t block_size, tokens, blocks;  // 0: of enough memory
  };
  for (const Case& run : sampled(std::vector<Case>{{{1, 1}, 1, 16, 64, 40},
                                                   {{1, 1}, 1, 16, 16, 0},
                                                   {{2, 1}, 1, 32, 100, 20},
                                                   {{2, 1, 2}, 1, 16, 64, 40},
                                                   {{4, 1}, 2, 256, 300, 3},
                                                   {{1, 2}, 1, 64, 512, 0}},
                                 4)) {
    EngineOptions options = options_for("tiny-gpt-oss", DType::fp32);
    run.grid.apply_to(options);
    options.context_size = run.context;
    options.block_size = run.block_size;
    options.max_num_batched_tokens = run.tokens;
    const auto heads = 2 / static_cast<size_t>(std::min(run.grid.tensor, 2)),
               layers = 4 / static_cast<size_t>(run.grid.pipeline),
               block =
                   2 * layers * heads * 32 * run.block_size * 4 * (1 + static_cast<size_t>(run.context)) / 2;
    if (run.blocks > 0) options.kv_memory = run.blocks * block;
    const Served served = serve(run.grid.ranks(), options, requests);
    EXPECT_EQ(print(served), expected) << "tp " << run.grid.tensor << " pp " << run.grid.pipeline << " cp "
                                       << run.context << " blocks of " << run.block_size;
    if (run.blocks == 0) {
      EXPECT_LT(served.info.window_blocks, served.info.num_blocks);
    }
  }
}

// Steps of 256 tokens and more are sharded by rows where several ranks share a layer (hidden size 256), smaller ones are not.
TEST(Engine, GivesTheSameBitsWhereLargeStepsAreShardedByRows) {
  std::vector<GenerationRequest> requests = varied_requests(4);
  const size_t lengths[] = {700, 255, 301, 1};
  for (GenerationRequest& request : requests) {
    request.prompt.resize(lengths[request.id]);
    for (size_t i = 0; i < request.prompt.size(); ++i)
      request.prompt[i] = static_cast<int32_t>((request.id * 977 + i * i * 31 + i) % 2000);
  }
  const auto runs =
      testing::each_value(types, std::vector<Grid>{{2, 1}, {4, 1}, {8, 1}, {2, 2}, {2, 1, 2}, {4, 1, 3}},
                          std::vector{257U, 1024U});
  for (const DType dtype : types) {
    EngineOptions options = options_for("shakespeare", dtype);
    const std::string expected = print(serve(1, options, requests));
    for (const auto& [of_type, grid, tokens] : runs) {
      if (of_type != dtype) continue;
      grid.apply_to(options);
      options.max_num_batched_tokens = tokens;
      EXPECT_EQ(print(serve(grid.ranks(), options, requests)), expected)
          << name_of(dtype) << " tp " << grid.tensor << " pp " << grid.pipeline << ", steps of " << tokens;
    }
  }
}

// Each stored byte is read once, though the first and the last stage both need the tied table.
TEST(Engine, ReadsATableOfTwoStagesOnce) {
  EngineOptions options = options_for("shakespeare", DType::bf16);
  const auto bytes = [&](int ranks) {
    std::atomic<uint64_t> sum = 0;
    run_ranks(ranks, [&](World& world) {
      RankActivity activity;
      const testing::Placed placed(world, options);
      sum += placed.load(world, activity).model().info().bytes_read;
    });
    return sum.load();
  };
  const uint64_t alone = bytes(1);
  options.pipeline_size = 2;
  EXPECT_EQ(bytes(2), alone);
  EXPECT_EQ(bytes(4), alone);
}

TEST(Engine, SizesTheCacheByTheRankWithTheLeastMemory) {
  const Golden golden = testing::read_golden("tiny-qwen3");
  const auto options_of = [](int rank) {
    EngineOptions options = options_for("tiny-qwen3", DType::fp32);
    options.tensor_size = 2;
    options.kv_memory = size_t{1 + static_cast<size_t>(rank)} << 20;
    return options;
  };
  const Served served = serve(2, options_of, golden_requests(golden));
  expect_golden(golden, served, "ranks with 1 and 2 MiB");
  EXPECT_EQ(served.info.num_blocks,
            (size_t{1} << 20) / (2 * 3 * 2 * 32 * 32 * 4));  // K and V, layers, KV heads of a rank, ...
}

TEST(Engine, EndsAtStopTokensAndStopStringsAndGivesText) {
  EngineOptions options = options_for("shakespeare", DType::fp32);
  const auto meta = nlohmann::json::parse(testing::read_file(options.model / "golden.json"));
  const Golden golden = testing::read_golden("shakespeare");
  std::vector<GenerationRequest> requests = golden_requests(golden);
  for (GenerationRequest& request : requests) request.sampling.ignore_eos = false;
  GenerationRequest until = requests[0];  // "Thou art a man, and thou art a man.\n\nROMEO: ..."
  until.id = 1000;
  until.sampling.stop = {"nobody says this", " a man."};
  requests.push_back(until);
  const Served served = serve(2, options, requests);
  for (size_t i = 0; i < golden.sequences.size(); ++i) {
    const auto& expected = meta.at("sequences")[i];
    EXPECT_EQ(served.completions.at(i).answers.at(0).tokens, golden.sequences[i].tokens) << i;
    EXPECT_EQ(served.completions.at(i).answers.at(0).text, expected.at("text").get<std::string>()) << i;
    EXPECT_EQ(served.completions.at(i).answers.at(0).reason == FinishReason::stop,
              expected.at("finish_reason") == "stop")
        << i;
  }
  EXPECT_EQ(served.completions.at(1000).answers.at(0).text, "Thou art a man, and thou art");
  EXPECT_EQ(served.completions.at(1000).answers.at(0).reason, FinishReason::stop);
}

TEST(Engine, TellsTheTextOfAStreamAsItGrowsUpToTheStopString) {
  EngineOptions options = options_for("shakespeare", DType::fp32);
  std::vector<GenerationRequest> requests = golden_requests(testing::read_golden("shakespeare"));
  requests.push_back(requests[0]);
  requests.back().id = requests.size() - 1;
  requests.back().sampling.stop = {" a man."};
  const Served apart = serve(1, options, requests);
  EXPECT_TRUE(apart.pieces.empty());
  for (GenerationRequest& request : requests) request.stream = true;
  const Served streamed = serve(2, options, requests);
  for (const auto& [request, completion] : streamed.completions) {
    const std::vector<std::string>& pieces = streamed.pieces.at(request);
    const std::string told = fmt::format("{}", fmt::join(pieces, ""));
    const Answer& answer = completion.answers.at(0);
    EXPECT_EQ(answer.text, apart.completions.at(request).answers.at(0).text);
    EXPECT_TRUE(answer.text->starts_with(told)) << told;
    EXPECT_GE(2 * pieces.size(), answer.tokens.size());
    EXPECT_GE(told.size() + 8, answer.text->size());
  }
  EXPECT_EQ(fmt::format("{}", fmt::join(streamed.pieces.at(requests.back().id), "")),
            "Thou art a man, and thou art");
}

TEST(Engine, RefusesWrongRequestsAndServesTheRest) {
  EngineOptions options = options_for("tiny-qwen3", DType::fp32);
  std::vector<GenerationRequest> requests = golden_requests(testing::read_golden("tiny-qwen3"));
  requests[0].prompt.clear();
  requests[1].prompt = {3, 515};
  requests[2].prompt.assign(2000, 1);
  requests[3].sampling.temperature = -1;
  requests.push_back(requests[0]);
  requests.back().id = 4;
  requests.back().prompt = {5};
  const Served served = serve(1, options, requests);
  EXPECT_NE(served.completions.at(0).error.find("empty"), std::string::npos)
      << served.completions.at(0).error;
  EXPECT_NE(served.completions.at(1).error.find("515"), std::string::npos) << served.completions.at(1).error;
  EXPECT_NE(served.completions.at(2).error.find("2000"), std::string::npos) << served.completions.at(2).error;
  EXPECT_NE(served.completions.at(3).error.find("temperature"), std::string::npos)
      << served.completions.at(3).error;
  EXPECT_EQ(served.completions.at(4).error, "");
  EXPECT_EQ(served.summary.failed, 4u);
}

// Interrupts the run when its first request starts.
struct Interrupter final : CompletionSink {
  void started(RequestId /*request*/) override { interrupt = 1; }
  void stopping() override { ++told; }
  void finished(FinishedRequest /*completion*/) override {}
  std::atomic<int> interrupt = 0;
  int told = 0;
};

TEST(Engine, TellsThatItStopsWhenWorkIsLeft) {
  const std::vector<GenerationRequest> all = golden_requests(testing::read_golden("tiny-qwen3"));
  for (const size_t count : {all.size(), size_t{0}}) {
    const std::vector<GenerationRequest> requests(all.begin(), all.begin() + static_cast<ptrdiff_t>(count));
    SelfWorld world;
    RankActivity activity;
    const testing::Placed placed(world, options_for("tiny-qwen3", DType::fp32));
    Engine engine = placed.load(world, activity);
    testing::ListSource source(requests);
    Interrupter sink;
    const RunSummary summary = engine.run(
        source, sink, [](const Progress&) {}, sink.interrupt);
    EXPECT_EQ(summary.interrupted, count > 0);
    EXPECT_EQ(sink.told, count > 0 ? 1 : 0);
  }
}

TEST(Engine, CountsTheTurnsOfItsCoordinatorWhileItServes) {
  struct Watching final : RequestSource {
    explicit Watching(RankActivity& its) : activity(its) {}
    bool ready() override {
      seen.push_back(activity.turns);
      return seen.size() == 3;
    }
    std::optional<GenerationRequest> next() override { return std::nullopt; }
    RankActivity& activity;
    std::vector<uint64_t> seen;
  };
  SelfWorld world;
  RankActivity activity;
  const testing::Placed placed(world, options_for("tiny-qwen3", DType::fp32));
  Engine engine = placed.load(world, activity);
  Watching source(activity);
  testing::MapSink sink;
  engine.run(
      source, sink, [](const Progress&) {}, 0);
  EXPECT_EQ(source.seen, (std::vector<uint64_t>{1, 2, 3}));
  EXPECT_EQ(activity.turns, 0U);
}

}  // namespace
}  // namespace maniple
