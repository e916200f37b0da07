#include <gtest/gtest.h>
#include <layers/models/model.hpp>
#include <runtime/checkpoint/loading/weight_sizes.hpp>
#include <runtime/job_plan.hpp>

namespace maniple {
namespace {

// `nodes` nodes with this many ranks each.
std::vector<RankLocation> locations(int nodes, int ranks_a_node) {
  std::vector<RankLocation> all;
  for (int node = 0; node < nodes; ++node)
    for (int local = 0; local < ranks_a_node; ++local) all.push_back({"nid", node, local, ranks_a_node});
  return all;
}

ModelConfig some_model() {
  ModelConfig config;
  config.architecture = "Qwen3ForCausalLM";
  config.hidden_size = 96;
  config.layers.assign(5, {.dense_width = 320});
  config.num_heads = 12;
  config.num_kv_heads = 4;
  config.head_dim = 16;
  config.vocab_size = 1000;
  config.max_position_embeddings = 4096;
  config.rms_norm_eps = 1e-6;
  return config;
}

EngineOptions options_of(int tensor_size, BackendKind kind = BackendKind::cpu) {
  EngineOptions options;
  options.tensor_size = tensor_size;
  options.backend.kind = kind;
  return options;
}

JobPlan plan_of(int ranks, const EngineOptions& options, const ModelConfig& config = some_model()) {
  return plan_job(locations(1, ranks), options, options.backend, &config);
}

// "usage: what"; empty where there is a plan.
std::string refusal_of(int ranks, const EngineOptions& options, const ModelConfig* config = nullptr) {
  try {
    plan_job(locations(1, ranks), options, options.backend, config);
    return "";
  } catch (const Error& error) {
    return fmt::format("{}: {}", error.code() == ExitCode::usage ? "usage" : "input", error.what());
  }
}

TEST(JobPlan, RanksOfAKvHeadShareTheirContext) {
  ModelConfig config = some_model();
  config.num_heads = 16;
  config.num_kv_heads = 2;
  EngineOptions options = options_of(8);
  options.context_size = 2;
  options.pipeline_size = 2;
  const JobPlan plan = plan_of(32, options, config);
  EXPECT_EQ(plan.block_tokens, 512U);
  EXPECT_EQ(plan.repro, Repro::grid);
  EXPECT_EQ(grid_text(plan.grid), "tensor 8 (context 2) x pipeline 2 x data 2");
  for (int rank = 0; rank < 32; ++rank) {
    const RankPlan mine = plan.rank(rank);
    const int first = rank / 2 * 2;
    EXPECT_EQ(mine.groups.context, (std::vector<int>{first, first + 1}));
    EXPECT_EQ(mine.context().owner, rank % 2);
    EXPECT_EQ(mine.context().owners, 2);
  }
  options.context_size = 1;
  EXPECT_EQ(plan_of(32, options, config).rank(5).groups.context, std::vector<int>{5});
}

// The ranks agree on this without messages: every rank of a plan is in
// its own groups, and its needs are those of its part of the model.
TEST(JobPlan, OfEveryGridUpTo64RanksFitsTogether) {
  const ModelConfig config = some_model();
  for (int ranks = 1; ranks <= 64; ++ranks) {
    for (int tensor = 1; tensor <= ranks; ++tensor) {
      const bool fits = ranks % tensor == 0 && 12 % tensor == 0 && (tensor > 4 || 4 % tensor == 0);
      ASSERT_EQ(refusal_of(ranks, options_of(tensor), &config).empty(), fits)
          << ranks << " ranks, tensor " << tensor;
      if (!fits) continue;
      const JobPlan plan = plan_of(ranks, options_of(tensor));
      ASSERT_EQ(plan.grid, (GridSize{tensor, 1, ranks / tensor}));
      for (int rank = 0; rank < ranks; ++rank) {
        const RankPlan mine = plan.rank(rank);
        ASSERT_EQ(mine.groups, groups_of(plan.grid, rank));
        ASSERT_EQ(mine.tensor().rank, rank % tensor);
        ASSERT_EQ(mine.layers, (IndexRange{0, 5}));
        ASSERT_TRUE(mine.is_first_stage() && mine.is_last_stage());
        ASSERT_EQ(plan.sends_results(rank), rank % tensor == 0);
      }
    }
  }
}

TEST(JobPlan, SaysWhatARankTakes) {
  const ModelConfig config = some_model();
  EngineOptions options = options_of(2);
  options.block_size = 32;
  const JobPlan plan = plan_of(4, options);
  for (int rank = 0; rank < 4; ++rank) {
    const RankNeeds& needs = plan.needs_of(rank);
    EXPECT_EQ(needs.kv.block_bytes(), 2u * 5 * 2 * 16 * 32 * 2)
        << "2 x layers x KV heads x head size x tokens x 2";
    EXPECT_EQ(needs.weight_bytes,
              weight_bytes(*make_model(config, plan.rank(rank)), DType::bf16, *scheme_of({})));
  }
  EXPECT_GT(plan.needs_of(0).weight_bytes, plan_of(1, options_of(1)).needs_of(0).weight_bytes / 2);
}

TEST(JobPlan, CountsAByteForEachNumberOfAnFp8Cache) {
  ModelConfig config = some_model();
  EngineOptions options = options_of(2);
  options.dtype = DType::fp32;
  const auto bytes = [&] { return plan_of(2, options, config).needs_of(0).kv.block_bytes(); };
  const size_t numbers = size_t{2} * 5 * 2 * 16 * 256;
  EXPECT_EQ(bytes(), 4 * numbers);
  options.kv_cache_dtype = DType::fp8;
  EXPECT_EQ(bytes(), numbers);
  options.kv_cache_dtype.reset();
  config.quantization = R"({"quant_method": "fp8", "kv_cache_scheme": "static"})";
  EXPECT_EQ(bytes(), numbers);
  options.kv_cache_dtype = DType::fp32;
  EXPECT_EQ(bytes(), 4 * numbers);
}

TEST(JobPlan, OfAPipelineHasStagesThatCostAboutTheSame) {
  EngineOptions options = options_of(2);
  options.pipeline_size = 2;
  const ModelConfig config = some_model();
  const JobPlan plan = plan_of(8, options);
  EXPECT_EQ(plan.grid, (GridSize{.tensor = 2, .pipeline = 2, .data = 2}));
  EXPECT_EQ(plan.stages, (std::vector<IndexRange>{{0, 3}, {3, 5}}));
  EXPECT_EQ(grid_text(plan.grid), "tensor 2 x pipeline 2 x data 2");
  EXPECT_EQ(stages_text(plan), "layers 0-2 | 3-4");
  EXPECT_EQ(plan.repro, Repro::grid);
  for (int rank = 0; rank < 8; ++rank) {
    const RankPlan mine = plan.rank(rank);
    const int stage = rank / 2 % 2;
    EXPECT_EQ(mine.position.pipeline, stage);
    EXPECT_EQ(mine.layers, plan.stages[static_cast<size_t>(stage)]);
    EXPECT_EQ(mine.groups.next, stage == 0 ? std::optional(rank + 2) : std::nullopt);
    EXPECT_EQ(mine.groups.previous, stage == 1 ? std::optional(rank - 2) : std::nullopt);
    EXPECT_EQ(plan.sends_results(rank), rank == 2 || rank == 6);
    EXPECT_EQ(plan.needs_of(rank).kv.layers, stage == 0 ? 3 : 2);
    EXPECT_EQ(plan.needs_of(rank).weight_bytes,
              weight_bytes(*make_model(config, mine), DType::bf16, *scheme_of({})));
  }
  options.pipeline_layers = {1, 4};
  EXPECT_EQ(stages_text(plan_of(8, options)), "layers 0 | 1-4");
  EXPECT_EQ(stages_text(plan_of(2, options_of(2))), "");
}

TEST(JobPlan, CutsTheStepsOfAPipelineAlike) {
  EngineOptions options = options_of(1);
  const auto expect = [&](int stages, uint32_t steps, uint32_t tokens) {
    options.pipeline_size = stages;
    const JobPlan plan = plan_of(stages, options);
    EXPECT_EQ(plan.steps_in_flight, steps);
    EXPECT_EQ(plan.step_tokens, tokens);
  };
  expect(1, 1, 2048);
  expect(2, 3, 704);  // 2048 / 3 = 682.7, rounded up to 64
  expect(3, 4, 512);
  options.max_num_batched_tokens = 100;
  options.max_num_seqs = 100;
  expect(2, 3, 64);
  options.max_num_batched_tokens = 7;  // the limit of a step holds
  options.max_num_seqs = 5;
  expect(2, 3, 7);
  options.max_num_seqs = 2;
  expect(5, 2, 7);
  options.steps_in_flight = 1;
  options.max_num_batched_tokens = 2048;
  expect(2, 1, 2048);
}

TEST(JobPlan, WithoutAModelHasGridAndGroups) {
  const JobPlan plan = plan_job(locations(2, 4), options_of(4), {BackendKind::cpu});
  EXPECT_EQ(plan.grid, (GridSize{4, 1, 2}));
  EXPECT_EQ(plan.rank(5).groups.tensor, (std::vector<int>{4, 5, 6, 7}));
  EXPECT_EQ(plan.rank(5).layers, std::nullopt);
  EXPECT_TRUE(plan.needs.empty());
}

TEST(JobPlan, KnowsTensorGroupsThatSpanNodes) {
  const auto spans = [](int nodes, int ranks_a_node, int tensor) {
    return plan_job(locations(nodes, ranks_a_node), options_of(tensor), {BackendKind::cpu})
        .tensor_groups_span_nodes;
  };
  EXPECT_FALSE(spans(2, 4, 4));
  EXPECT_FALSE(spans(3, 2, 2));
  EXPECT_TRUE(spans(2, 4, 8));
  EXPECT_TRUE(spans(2, 3, 2));
  EXPECT_TRUE(spans(2, 3, 6));
}

TEST(JobPlan, HasTwoStepsInFlightBesideAGpu) {
  EXPECT_EQ(plan_of(1, options_of(1)).steps_in_flight, 1u);
  EXPECT_EQ(plan_of(1, options_of(1, BackendKind::cuda)).steps_in_flight, 2u);
}

TEST(JobPlan, KeepsTheBitsOfOneRankOnCPUsWhateverWasAskedForUnlessASizeForbidsIt) {
  ModelConfig config = some_model();
  EngineOptions options = options_of(2);
  for (const Repro asked : {Repro::grid, Repro::batch, Repro::off}) {
    options.repro = asked;
    const JobPlan plan = plan_of(2, options);
    EXPECT_EQ(plan.repro, Repro::grid);
    EXPECT_EQ(plan.repro_reason, asked == Repro::grid ? "" : "as always on CPUs");
  }
  options = options_of(3);
  config.num_kv_heads = 3;
  EXPECT_EQ(plan_of(3, options, config).repro, Repro::batch);
  EXPECT_EQ(plan_of(3, options, config).repro_reason,
            "3 tensor ranks do not divide the 8 reduction slices of attention's width 192");
  options.repro = Repro::batch;
  EXPECT_EQ(plan_of(3, options, config).repro_reason, "");
  options = options_of(4);
  config.num_kv_heads = 4;
  config.layers.assign(5, {.dense_width = 322});
  EXPECT_EQ(plan_of(4, options, config).repro_reason,
            "4 tensor ranks do not divide the 2 reduction slices of the MLP's width 322");
  options.repro.reset();
  EXPECT_EQ(plan_of(4, options, config).repro, Repro::batch);
  const JobPlan on_gpus = plan_of(2, options_of(2, BackendKind::cuda));
  EXPECT_EQ(on_gpus.repro, Repro::off);
  EXPECT_EQ(on_gpus.repro_reason, "sums on GPUs keep no order");
}

ModelConfig sparse_model(int64_t experts, int64_t per_token, int64_t width) {
  ModelConfig config = some_model();
  config.layers.assign(5, {});
  config.experts = {.count = experts, .width = width, .router = {.per_token = per_token}};
  return config;
}

TEST(JobPlan, LeavesEachRankAtLeastTwiceTheExpertsOfAToken) {
  const auto size = [](int tensor, int64_t experts, int64_t per_token) {
    return default_expert_size(tensor, sparse_model(experts, per_token, 48));
  };
  EXPECT_EQ(size(8, 8, 2), 2);    // Mixtral
  EXPECT_EQ(size(8, 128, 8), 8);  // Qwen3-30B-A3B
  EXPECT_EQ(size(12, 60, 5), 6);
  EXPECT_EQ(size(4, 5, 1), 1);
  EXPECT_EQ(size(4, 4, 4), 1);
  EXPECT_EQ(plan_of(4, options_of(4), sparse_model(8, 2, 48)).grid.expert, 2);
  EXPECT_EQ(plan_of(4, options_of(4)).grid.expert, 1);
  ModelConfig blocks = sparse_model(8, 2, 256);
  blocks.activation_group = 128;
  EXPECT_EQ(default_expert_size(4, blocks), 2);
  EXPECT_EQ(default_expert_size(8, blocks), 4) << "two would cut the two blocks of an expert";
  blocks.experts.width = 192;
  EXPECT_EQ(default_expert_size(4, blocks), 4) << "a block is cut by any part";
}

TEST(JobPlan, OfExpertsGroupsThemByPartAndByRange) {
  EngineOptions options = options_of(4);
  options.expert_size = 2;
  options.pipeline_size = 2;
  const JobPlan plan = plan_of(16, options, sparse_model(8, 2, 48));
  EXPECT_EQ(grid_text(plan.grid), "tensor 4 (expert 2) x pipeline 2 x data 2");
  EXPECT_EQ(plan.repro, Repro::grid);
  const RankPlan rank = plan.rank(8 + 4 + 3);
  EXPECT_EQ(rank.groups.expert, (std::vector<int>{13, 15}));
  EXPECT_EQ(rank.groups.expert_tensor, (std::vector<int>{14, 15}));
  EXPECT_EQ(rank.expert().rank, 1);
  EXPECT_EQ(rank.expert_part().rank, 1);
  for (int member = 0; member < 8; ++member)
    EXPECT_EQ(
        plan.needs_of(member).weight_bytes,
        weight_bytes(*make_model(sparse_model(8, 2, 48), plan.rank(member)), DType::bf16, *scheme_of({})));
}

TEST(JobPlan, CountsAllExpertsInTheCostOfALayer) {
  ModelConfig config = sparse_model(128, 8, 768);  // Qwen3-30B-A3B
  config.hidden_size = 2048;
  config.layers.assign(48, {});
  config.num_heads = 32;
  config.head_dim = 128;
  config.vocab_size = 151936;
  EngineOptions options = options_of(1);
  for (const auto& [stages, layers] : {std::pair{2, "layers 0-23 | 24-47"},
                                       {3, "layers 0-15 | 16-31 | 32-47"},
                                       {4, "layers 0-11 | 12-23 | 24-35 | 36-47"}}) {
    options.pipeline_size = stages;
    EXPECT_EQ(stages_text(plan_of(stages, options, config)), layers);
  }
}

TEST(JobPlan, SaysWhichSizeOfExpertsForbidsTheBitsOfOneRank) {
  const auto reason = [](int tensor, int expert, const ModelConfig& config) {
    EngineOptions options = options_of(tensor);
    options.expert_size = expert;
    return plan_of(tensor, options, config).repro_reason;
  };
  EXPECT_EQ(reason(4, 4, sparse_model(12, 2, 48)), "");
  EXPECT_EQ(reason(4, 2, sparse_model(10, 2, 50)), "");
  EXPECT_EQ(reason(2, 2, sparse_model(10, 2, 51)), "");
  EXPECT_EQ(reason(4, 1, sparse_model(10, 2, 50)),
            "4 tensor ranks do not divide the 2 reduction slices of an expert's width 50");
  ModelConfig config = sparse_model(8, 2, 48);
  EXPECT_EQ(reason(4, 2, config), "");
  config.layers[3].dense_width = 322;
  EXPECT_EQ(reason(4, 2, config),
            "4 tensor ranks do not divide the 2 reduction slices of the MLP's width 322");
}

TEST(JobPlan, NamesFieldsOfTheOptionsInAMessageAndWhatWouldFit) {
  const ModelConfig config = some_model();
  EXPECT_EQ(refusal_of(6, options_of(4)),
            "usage: ranks (6) do not divide by `tensor_size` 4; use `tensor_size` 1, 2, 3 or 6, or start a "
            "multiple of 4 ranks");
  EngineOptions many = options_of(1);
  many.max_num_seqs = 4097;
  many.max_num_batched_tokens = 8192;
  EXPECT_EQ(refusal_of(1, many, &config), "");
  many.backend.kind = BackendKind::cuda;
  EXPECT_EQ(refusal_of(1, many, &config), "usage: `max_num_seqs` 4097 is above 4096, the most of a GPU");
  many.max_num_seqs = 4096;
  EXPECT_EQ(refusal_of(1, many, &config), "");
  ModelConfig wide = config;
  wide.head_dim = 578;
  EXPECT_EQ(refusal_of(1, many, &wide),
            "input: the model's heads of 578 are larger than 576, the most of a GPU");
  wide.head_dim = 576;
  EXPECT_EQ(refusal_of(1, many, &wide), "");
  ModelConfig endless = config;
  endless.max_position_embeddings = 10 << 20;
  many.block_size = 16;
  EXPECT_EQ(
      refusal_of(1, many, &endless),
      "usage: `max_num_seqs` 4096 sequences of 10485760 tokens have 655360 blocks of the KV cache each, and "
      "the "
      "tables of all have 2^31 entries at most; use `max_num_seqs` 3276 or less, or a larger `block_size`");
  many.max_num_seqs = 3276;
  EXPECT_EQ(refusal_of(1, many, &endless), "");
  EXPECT_EQ(refusal_of(1, options_of(2)),
            "usage: ranks (1) do not divide by `tensor_size` 2; use `tensor_size` 1, or start a multiple of "
            "2 ranks");
  EXPECT_EQ(refusal_of(4, options_of(0)),
            "usage: ranks (4) do not divide by `tensor_size` 0; use `tensor_size` 1, 2 or 4, or start a "
            "multiple of 0 ranks");
  EXPECT_EQ(refusal_of(4, options_of(2)), "");
  EXPECT_EQ(
      refusal_of(8, options_of(8), &config),
      "input: attention heads (12) do not divide by tensor ranks (8); use `tensor_size` 1, 2, 4, 6 or 12");
  EXPECT_EQ(refusal_of(3, options_of(3), &config),
            "input: kv heads (4) do not divide by tensor ranks (3); use `tensor_size` 1, 2 or 4");
  ModelConfig blocks = config;  // 768 columns are 6 blocks, which 3 ranks could share, but not the 4 heads
  blocks.num_heads = 4;
  blocks.hidden_size = 512;
  blocks.head_dim = 128;
  blocks.layers.assign(5, {.dense_width = 768});
  blocks.activation_group = 128;
  EXPECT_EQ(refusal_of(4, options_of(4), &blocks),
            "input: blocks of 128 in 768 input columns (6) do not divide by tensor ranks (4); use "
            "`tensor_size` 1 or 2");
}

TEST(JobPlan, RefusesStagesThatDoNotFit) {
  const ModelConfig config = some_model();
  EngineOptions stages = options_of(1);
  stages.pipeline_size = 3;
  EXPECT_EQ(refusal_of(4, stages),
            "usage: ranks (4) do not divide by `tensor_size` 1 times `pipeline_size` 3; use `pipeline_size` "
            "1, 2 or 4, or start a multiple of "
            "3 ranks");
  stages.pipeline_size = 8;
  EXPECT_EQ(refusal_of(8, stages, &config),
            "input: layers (5) are fewer than pipeline stages (8); use `pipeline_size` 1, 2 or 4");
  stages.pipeline_size = 2;
  stages.pipeline_layers = {5};
  EXPECT_EQ(refusal_of(2, stages), "usage: `pipeline_layers` names 1 stage and `pipeline_size` is 2");
  stages.pipeline_layers = {3, 3};
  EXPECT_EQ(refusal_of(2, stages, &config),
            "input: `pipeline_layers` adds up to 6 layers and the model has 5");
}

TEST(JobPlan, RefusesExpertsThatDoNotFit) {
  const ModelConfig config = some_model();
  EngineOptions experts = options_of(1);
  experts.expert_size = 2;
  EXPECT_EQ(refusal_of(2, experts),
            "usage: `expert_size` 2 does not divide `tensor_size` 1; use `expert_size` 1");
  EXPECT_EQ(refusal_of(2, experts, &config),
            "input: `expert_size` 2 is for models with experts, and Qwen3ForCausalLM has none");
  experts.tensor_size = 4;
  experts.expert_size = 3;
  EXPECT_EQ(refusal_of(4, experts),
            "usage: `expert_size` 3 does not divide `tensor_size` 4; use `expert_size` 1, 2 or 4");
  experts.model = "m";
  EXPECT_EQ(refusal_of(4, experts), "") << "whether the model has experts is said first";
  experts.tensor_size = 8;
  experts.expert_size = 8;
  const ModelConfig twelve = sparse_model(12, 2, 48);
  EXPECT_EQ(refusal_of(8, experts, &twelve),
            "input: experts (12) do not divide by `expert_size` 8; use `expert_size` 1, 2 or 4");
  EXPECT_EQ(refusal_of(8, experts, &config),
            "input: `expert_size` 8 is for models with experts, and Qwen3ForCausalLM has none");
  experts.tensor_size = 4;
  experts.expert_size = 1;
  ModelConfig rounded = sparse_model(8, 2, 256);
  rounded.activation_group = 128;
  EXPECT_EQ(refusal_of(4, experts, &rounded),
            "input: `tensor_size` 4 `expert_size` 1 cuts an expert's blocks of 128 inputs (it has 256), "
            "which are rounded with one scale; use "
            "`expert_size` 2 or 4");
}

TEST(JobPlan, RefusesSharedContextsThatDoNotFit) {
  const ModelConfig config = some_model();
  EngineOptions contexts = options_of(4);
  contexts.context_size = 3;
  EXPECT_EQ(refusal_of(4, contexts),
            "usage: `context_size` 3 does not divide `tensor_size` 4; use `context_size` 1, 2 or 4");
  contexts.context_size = 2;
  EXPECT_EQ(refusal_of(4, contexts, &config),
            "input: `context_size` 2 needs ranks that hold the same kv head, and `tensor_size` 4 gives each "
            "of 4 kv heads one; use "
            "`context_size` 1");
  ModelConfig wider = config;
  wider.num_heads = 24;
  contexts = options_of(12);
  contexts.context_size = 3;
  EXPECT_EQ(plan_of(12, contexts, wider).repro_reason,
            "3 context ranks do not divide the 8 classes of attention");
  contexts.tensor_size = 8;
  contexts.context_size = 4;
  EXPECT_EQ(refusal_of(8, contexts, &wider),
            "input: the 2 ranks of a kv head (`tensor_size` 8, 4 kv heads) do not divide by `context_size` "
            "4; use `context_size` 1 or 2");
  contexts.tensor_size = 4;
  contexts.context_size = 2;
  EXPECT_EQ(refusal_of(4, contexts, &wider),
            "input: `context_size` 2 needs ranks that hold the same kv head, and `tensor_size` 4 gives each "
            "of 4 kv heads one; use "
            "`context_size` 1, or `tensor_size` 8");
}

TEST(JobPlan, RefusesLengthsThatDoNotFit) {
  const ModelConfig config = some_model();
  EngineOptions options = options_of(1);
  options.max_model_len = 4097;
  EXPECT_EQ(refusal_of(1, options, &config),
            "usage: `max_model_len` 4097 is longer than the model's 4096 positions; use `max_model_len` 4096 "
            "or less");
  options.max_model_len = 10;
  EXPECT_EQ(plan_of(1, options).max_model_len, 10u);
  options.max_model_len.reset();
  ModelConfig windowed = config;
  for (LayerConfig& layer : windowed.layers) layer.window = 512;
  EXPECT_EQ(plan_of(1, options, windowed).max_model_len, 4096u);
  ModelConfig choosing = config;
  choosing.index_topk = 2048;
  EXPECT_EQ(refusal_of(1, options, &choosing),
            "input: the model's sparse attention chooses 2048 tokens (index_topk), and a context of 4096 is "
            "longer");
  options.max_model_len = 2048;
  EXPECT_EQ(plan_of(1, options, choosing).max_model_len, 2048u);
  options.max_model_len.reset();
  options.max_num_seqs = 3000;
  EXPECT_EQ(refusal_of(1, options, &config),
            "usage: `max_num_batched_tokens` 2048 is below `max_num_seqs` 3000, but every running sequence "
            "takes a token a step");
}

TEST(JobPlan, RefusesAskedForGridWhereASizeForbidsItAndNamesTheSizesThatKeepIt) {
  ModelConfig config = some_model();
  config.num_kv_heads = 12;
  EngineOptions options = options_of(3);
  EXPECT_EQ(plan_of(12, options, config).repro, Repro::batch);
  options.repro = Repro::grid;
  EXPECT_EQ(refusal_of(12, options, &config),
            "input: `repro` grid cannot be kept: 3 tensor ranks do not divide the 8 reduction slices of "
            "attention's width 192; use `repro` "
            "auto, or `tensor_size` 1, 2 or 4");
  options.tensor_size = 4;
  EXPECT_EQ(plan_of(12, options, config).repro, Repro::grid);
  options = options_of(1, BackendKind::cuda);
  options.repro = Repro::grid;
  EXPECT_EQ(refusal_of(1, options, &config),
            "input: `repro` grid cannot be kept: sums on GPUs keep no order; use `repro` auto");
}

TEST(JobPlan, ComputesInFp16ForSuchACheckpointOnGpusUnlessTheRunWasBegunInBf16) {
  ModelConfig config = some_model();
  const auto type_of = [&](const EngineOptions& options, std::optional<DType> begun = {}) {
    return plan_job(locations(1, 1), options, options.backend, &config, begun).dtype;
  };
  EngineOptions on_gpus = options_of(1, BackendKind::cuda);
  for (const DType stored : {DType::bf16, DType::fp32}) {
    config.dtype = stored;
    EXPECT_EQ(type_of(on_gpus), DType::bf16);
  }
  config.dtype = DType::fp16;
  EXPECT_EQ(type_of(on_gpus), DType::fp16);
  EXPECT_EQ(type_of(on_gpus, DType::bf16), DType::bf16);
  EXPECT_EQ(type_of(options_of(1)), DType::bf16);
  on_gpus.dtype = DType::fp32;
  EXPECT_EQ(type_of(on_gpus, DType::bf16), DType::fp32);
}

TEST(JobPlan, KeepsKeysAndValuesInFp8OrInTheTypeOfTheActivations) {
  ModelConfig scaled = some_model();
  scaled.quantization = R"({"quant_method": "fp8", "kv_cache_scheme": "static"})";
  EngineOptions options = options_of(1);
  EXPECT_EQ(plan_of(1, options).kv_dtype, DType::bf16);
  EXPECT_EQ(plan_of(1, options, scaled).kv_dtype, DType::fp8);
  options.kv_cache_dtype = DType::bf16;
  EXPECT_EQ(plan_of(1, options, scaled).kv_dtype, DType::bf16);
  options.kv_cache_dtype = DType::fp8;
  EXPECT_EQ(plan_of(1, options).kv_dtype, DType::fp8);
  options.kv_cache_dtype = DType::fp32;
  EXPECT_EQ(refusal_of(1, options, &scaled),
            "usage: `kv_cache_dtype` fp32 is not the type of the activations (bf16)");
  options.dtype = DType::fp32;
  EXPECT_EQ(plan_of(1, options).kv_dtype, DType::fp32);
}

}  // namespace
}  // namespace maniple
