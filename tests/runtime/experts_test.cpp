// Models with experts: golden tokens on every grid, the same bits wherever the plan promises them, load of experts.
#include <gtest/gtest.h>
#include <kernels/factory/make_backend.hpp>
#include <runtime/expert_load.hpp>
#include <support/cover.hpp>
#include <support/fused_checkpoint.hpp>
#include <support/golden.hpp>
#include <support/serving.hpp>
#include <support/temp_directory.hpp>

#include <cmath>

namespace maniple {
namespace {

using testing::expect_golden;
using testing::Golden;
using testing::golden_requests;
using testing::print;
using testing::sampled;
using testing::serve;
using testing::Served;

struct Grid {
  int tensor, expert, pipeline = 1, data = 1;

  int ranks() const { return tensor * pipeline * data; }
};

EngineOptions options_for(const std::filesystem::path& model, DType dtype, const Grid& grid = {1, 1},
                          BackendKind kind = BackendKind::cpu) {
  EngineOptions options;
  options.model = model;
  options.dtype = dtype;
  options.backend.kind = kind;
  options.threads = 1;
  options.max_num_seqs = 16;
  options.max_num_batched_tokens = 512;
  options.kv_memory = size_t{64} << 20;
  options.block_size = 32;
  options.tensor_size = grid.tensor;
  options.expert_size = grid.expert;
  options.pipeline_size = grid.pipeline;
  return options;
}

std::string text_of(const Grid& grid) {
  return fmt::format("tp {} ep {} pp {} dp {}", grid.tensor, grid.expert, grid.pipeline, grid.data);
}

const std::vector<Grid> grids{{1, 1}, {1, 1, 2}, {1, 1, 1, 3}, {2, 1}, {2, 2},       {4, 1},
                              {4, 2}, {4, 4, 1}, {8, 2},       {8, 8}, {2, 2, 2, 2}, {4, 2, 2}};

TEST(Experts, GiveGoldenTokensOnEveryGridInFp32) {
  const std::vector<std::pair<std::string, BackendKind>> subjects{{"tiny-qwen3-moe", BackendKind::cpu},
                                                                  {"tiny-qwen3-moe", BackendKind::reference},
                                                                  {"tiny-mixtral", BackendKind::cpu},
                                                                  {"tiny-mixtral", BackendKind::reference},
                                                                  {"tiny-glm4-moe", BackendKind::cpu},
                                                                  {"tiny-glm4-moe", BackendKind::reference},
                                                                  {"tiny-hy3", BackendKind::cpu},
                                                                  {"tiny-minimax-m2", BackendKind::cpu},
                                                                  {"tiny-minimax-m2", BackendKind::reference},
                                                                  {"tiny-qwen2-moe", BackendKind::cpu},
                                                                  {"tiny-qwen2-moe", BackendKind::reference},
                                                                  {"tiny-gpt-oss", BackendKind::cpu},
                                                                  {"tiny-gpt-oss", BackendKind::reference}};
  for (const auto& [subject, drawn] : testing::each_value(subjects, grids)) {
    const auto& [name, kind] = subject;
    const bool six_heads = name == "tiny-hy3" || name == "tiny-minimax-m2";
    const Grid grid = six_heads && drawn.tensor > 2 ? Grid{2, 2, drawn.pipeline} : drawn;
    const Golden golden = testing::read_golden(name);
    const Served served =
        serve(grid.ranks(), options_for(testing::model_directory(name), DType::fp32, grid, kind),
              golden_requests(golden));
    expect_golden(golden, served, fmt::format("{} {}", name, text_of(grid)));
    EXPECT_EQ(served.plan.repro, Repro::grid) << served.plan.repro_reason;
  }
}

std::vector<GenerationRequest> requests_of(int64_t vocabulary) {
  std::vector<GenerationRequest> requests;
  for (uint64_t i = 0; i < 12; ++i) {
    GenerationRequest& request = requests.emplace_back();
    request.id = i;
    for (uint64_t t = 0; t < 3 + 37 * (i % 4); ++t)
      request.prompt.push_back(
          static_cast<int32_t>((i * 7919 + t * 104729) % static_cast<uint64_t>(vocabulary)));
    request.sampling.seed = 11 + i;
    request.sampling.temperature = i % 3 == 0 ? 0.0F : 0.9F;
    request.sampling.max_tokens = 14;
    request.sampling.ignore_eos = true;
    request.sampling.logprobs = 0;
  }
  return requests;
}

// Ranks hold experts whole, in parts that cut groups of inputs, and both; what is rounded is the whole row.
TEST(Experts, InCodesGiveGoldenTokensAndTheSameBitsOnEveryGrid) {
  for (const char* name : {"q-moe-gptq", "q-moe-awq", "q-moe-w4a16", "q-moe-int8", "q-moe-fp8-channel",
                           "q-moe-fp8-block", "q-mxfp4-gpt-oss"}) {
    const Golden golden = testing::read_golden(name);
    const bool blocks = std::string_view(name) == "q-moe-fp8-block";
    for (const DType dtype : {DType::fp32, DType::bf16}) {
      const auto run = [&](const Grid& grid, BackendKind kind = BackendKind::cpu) {
        return serve(grid.ranks(), options_for(testing::model_directory(name), dtype, grid, kind),
                     golden_requests(golden));
      };
      const Served one = run({1, 1});
      if (dtype == DType::fp32) {
        expect_golden(golden, one, name);
        expect_golden(golden, run({1, 1}, BackendKind::reference), fmt::format("{}, reference", name));
      }
      std::vector<Grid> possible;
      for (const Grid& grid :
           {Grid{2, 1}, {2, 2}, {4, 2}, {4, 4}, {4, 1}, {8, 2}, {1, 1, 2}, {2, 2, 2}, {2, 1, 1, 2}})
        if (!blocks || (grid.pipeline == 1 && grid.tensor / grid.expert <= 2 && grid.tensor <= 4))
          possible.push_back(grid);
      for (const Grid& grid : sampled(possible, 3)) {
        const Served served = run(grid);
        EXPECT_EQ(served.plan.repro, Repro::grid) << served.plan.repro_reason;
        EXPECT_EQ(print(served), print(one)) << name << " " << text_of(grid);
      }
    }
  }
}

// With `scale_fmt`, as DeepSeek-V3.1 is published; scales of blocks in bf16, or widened to fp32.
void write_power_scales(const std::filesystem::path& model, bool wide, const std::filesystem::path& to) {
  std::vector<TensorToWrite> tensors;
  const WeightIndex index = read_index(model);
  for (const auto& [name, tensor] : index.tensors) {
    TensorToWrite copy{name, tensor.info.stored_type, tensor.info.shape, testing::bytes_of(index, name)};
    if (wide && name.ends_with("weight_scale_inv")) {
      copy.dtype = "F32";
      for (size_t i = 0; i < copy.bytes.size(); i += 4)
        copy.bytes.insert(copy.bytes.begin() + static_cast<std::ptrdiff_t>(i), 2, std::byte{0});
    }
    tensors.push_back(std::move(copy));
  }
  write_safetensors(to / "model.safetensors", tensors);
  auto config = nlohmann::json::parse(testing::read_file(model / "config.json"));
  config["quantization_config"]["scale_fmt"] = "ue8m0";
  std::ofstream(to / "config.json") << config;
}

TEST(Experts, InBlocksWithScalesThatArePowersOfTwoGiveTheSameBitsOnEveryGrid) {
  const std::filesystem::path plain = testing::model_directory("q-moe-fp8-block");
  const TempDirectory narrow, wide;
  write_power_scales(plain, false, narrow.path());
  write_power_scales(plain, true, wide.path());
  const std::vector<GenerationRequest> requests = requests_of(256);
  const auto run = [&](const std::filesystem::path& model, const Grid& grid) {
    return print(serve(grid.ranks(), options_for(model, DType::bf16, grid), requests));
  };
  const std::string one = run(narrow.path(), {1, 1});
  EXPECT_NE(one, run(plain, {1, 1}));
  EXPECT_EQ(run(wide.path(), {1, 1}), one);
  for (const Grid& grid : sampled<Grid>({{2, 1}, {2, 2}, {4, 2}, {4, 4}}, 2))
    for (const std::filesystem::path& model : {narrow.path(), wide.path()})
      EXPECT_EQ(run(model, grid), one) << text_of(grid);
}

TEST(Experts, QuantisedWhileTheyAreLoadedAreTheSameFromBothFormsOnEveryGrid) {
  const std::filesystem::path alone = testing::model_directory("tiny-qwen3-moe");
  const TempDirectory fused;
  testing::write_fused_experts(alone, fused.path());
  const Golden golden = testing::read_golden("tiny-qwen3-moe");
  for (const WeightFormat format : {WeightFormat::int8, WeightFormat::fp8, WeightFormat::int4}) {
    const auto run = [&](const std::filesystem::path& model, const Grid& grid) {
      EngineOptions options = options_for(model, DType::bf16, grid);
      options.quantize = format;
      return serve(grid.ranks(), options, golden_requests(golden));
    };
    const Served one = run(alone, {1, 1});
    EXPECT_EQ(run(fused.path(), {1, 1}).info.weight_bytes, one.info.weight_bytes) << name_of(format);
    for (const Grid& grid : sampled<Grid>({{1, 1}, {2, 1}, {4, 2}, {2, 2, 2}}, 2))
      for (const std::filesystem::path& model : {alone, fused.path()})
        EXPECT_EQ(print(run(model, grid)), print(one)) << name_of(format) << " " << text_of(grid);
  }
}

TEST(Experts, FusedOnDiskAreTheSame) {
  for (const std::string& name : sampled<std::string>(
           {"tiny-qwen3-moe", "tiny-mixtral", "tiny-glm4-moe", "tiny-minimax-m2", "tiny-qwen2-moe"}, 3)) {
    const TempDirectory fused;
    testing::write_fused_experts(testing::model_directory(name), fused.path());
    const Golden golden = testing::read_golden(name);
    for (const Grid& grid : {Grid{1, 1}, {2, 1}, {2, 2, 2}, {2, 1, 1, 2}})
      expect_golden(
          golden, serve(grid.ranks(), options_for(fused.path(), DType::fp32, grid), golden_requests(golden)),
          fmt::format("{} {}", name, text_of(grid)));
  }
}

TEST(Experts, BesideFusedSharedExpertsAndDenseLayersAreTheSame) {
  for (const char* name : {"tiny-glm4-moe", "tiny-hy3", "tiny-deepseek-v3"}) {
    const TempDirectory fused;
    testing::write_fused(testing::model_directory(name), fused.path());
    const Golden golden = testing::read_golden(name);
    for (const Grid& grid : {Grid{1, 1}, {2, 2}})
      expect_golden(
          golden, serve(grid.ranks(), options_for(fused.path(), DType::fp32, grid), golden_requests(golden)),
          fmt::format("{} {}", name, text_of(grid)));
  }
}

// A model with random weights.
struct Made {
  int64_t experts, per_token, width, layers, every;
  std::string dense;
  bool normalise, tied;
  int64_t heads = 8, kv_heads = 4, head_dim = 16;
};

void write_config(const Made& made, const std::filesystem::path& to) {
  std::ofstream(to / "config.json") << fmt::format(
      R"({{"architectures": ["Qwen3MoeForCausalLM"], "hidden_size": 64, "intermediate_size": 96, "vocab_size": 300,
"max_position_embeddings": 512, "rms_norm_eps": 1e-6, "num_hidden_layers": {}, "num_attention_heads": {},
"num_key_value_heads": {}, "head_dim": {}, "num_experts": {}, "num_experts_per_tok": {}, "moe_intermediate_size": {},
"decoder_sparse_step": {}, "mlp_only_layers": {}, "norm_topk_prob": {}, "tie_word_embeddings": {}}})",
      made.layers, made.heads, made.kv_heads, made.head_dim, made.experts, made.per_token, made.width,
      made.every, made.dense, made.normalise, made.tied);
}

TEST(Experts, GiveTheSameBitsOnEveryGridThatThePlanPromises) {
  const Made models[] = {
      {12, 5, 24, 4, 1, "[2]", false, true},         {32, 4, 72, 2, 2, "null", true, false},
      {5, 5, 40, 2, 1, "[]", false, false},          {8, 1, 24, 3, 3, "[0]", true, true},
      {8, 2, 16, 2, 1, "[]", true, false, 8, 2, 24}, {10, 3, 20, 2, 1, "[1]", true, true, 8, 8, 6}};
  int at_batch = 0;
  for (const Made& made : models) {
    const TempDirectory directory;
    write_config(made, directory.path());
    const std::vector<GenerationRequest> requests = requests_of(300);
    const auto promised = [&](const Grid& grid) {
      return (made.experts & -made.experts) % grid.expert == 0 &&
             std::gcd<int64_t>(made.width, 8) % (grid.tensor / grid.expert) == 0;
    };
    for (const DType dtype : sampled<DType>({DType::fp32, DType::bf16}, 1)) {
      const auto options = [&](const Grid& grid) {
        EngineOptions some = options_for(directory.path(), dtype, grid);
        some.random_weights = true;
        some.seed = 5;
        return some;
      };
      const Served one = serve(1, options({1, 1}), requests);
      std::vector<Grid> promises, others;
      for (const Grid& grid :
           {Grid{2, 1}, {2, 2, 2}, {4, 1}, {4, 2}, {4, 4}, {8, 4}, {8, 1}, {8, 2}, {1, 1, 2, 2}}) {
        if (made.experts % grid.expert != 0 || grid.pipeline > made.layers) continue;
        if (grid.tensor > made.kv_heads && grid.tensor % made.kv_heads != 0) continue;
        (promised(grid) ? promises : others).push_back(grid);
      }
      std::vector<Grid> some = sampled(promises, 3);
      std::ranges::copy(sampled(others, 1), std::back_inserter(some));
      for (const Grid& grid : some) {
        const Served served = serve(grid.ranks(), options(grid), requests);
        const std::string where =
            fmt::format("{} experts {}: {}", made.experts, text_of(grid), served.plan.repro_reason);
        EXPECT_EQ(served.plan.repro == Repro::grid, promised(grid)) << where;
        if (promised(grid)) {
          EXPECT_EQ(print(served), print(one)) << where;
        }
        at_batch += promised(grid) ? 0 : 1;
        for (const auto& [id, completion] : served.completions) {
          if (dtype == DType::bf16 || requests[id].sampling.temperature > 0) continue;
          EXPECT_EQ(completion.answers.at(0).tokens.front(),
                    one.completions.at(id).answers.at(0).tokens.front())
              << where;
        }
      }
      EngineOptions small = options({2, 1});
      small.max_num_seqs = 3;
      small.max_num_batched_tokens = 7;
      small.block_size = 16;
      small.threads = 3;
      EXPECT_EQ(print(serve(2, small, requests)), print(one)) << "chunks of seven, three threads";
    }
  }
  EXPECT_GT(at_batch, 0);
}

// Steps in which ranks hold rows of the residual stream of their own, if their sizes make that worth it: 1,600 tokens of
// 64 numbers.
TEST(Experts, GiveTheSameBitsInLargeSteps) {
  std::vector<GenerationRequest> requests = requests_of(380);
  for (GenerationRequest& request : requests) {
    request.prompt.resize(400);
    for (size_t t = 0; t < request.prompt.size(); ++t)
      request.prompt[t] = static_cast<int32_t>((request.id * 31 + t * t) % 380);
  }
  for (const char* name : {"tiny-qwen3-moe", "tiny-mixtral"})
    for (const DType dtype : {DType::bf16, DType::fp32}) {
      const auto run = [&](const Grid& grid) {
        EngineOptions options = options_for(testing::model_directory(name), dtype, grid);
        options.max_num_batched_tokens = 1600;
        options.prefix_cache = false;
        return print(serve(grid.ranks(), options, requests));
      };
      const std::string one = run({1, 1});
      for (const Grid& grid : sampled<Grid>({{2, 2}, {2, 1}, {4, 2}, {4, 4, 2}, {8, 2}}, 2))
        EXPECT_EQ(run(grid), one) << name << " " << text_of(grid);
    }
}

TEST(ExpertLoad, AddsUpReplicasAndSeesRanksThatChoseOtherwise) {
  ModelConfig config;
  config.experts.count = 4;
  config.layers.assign(6, {.dense_width = 8});
  config.layers[1] = config.layers[5] = {};
  JobPlan plan;
  plan.grid = {.tensor = 2, .pipeline = 2, .data = 2};
  plan.stages = {{0, 2}, {2, 6}};
  std::vector<std::vector<int32_t>> ranks;
  for (const auto& counts : {std::vector<int32_t>{1, 2, 3, 0}, {5, 5, 5, 5}, {1, 0, 7, 0}, {0, 0, 20, 0}})
    for (int rank = 0; rank < 2; ++rank) ranks.push_back(counts);
  const std::vector<ExpertLoad> loads = expert_load(plan, config, ranks);
  ASSERT_EQ(loads.size(), 2u);
  EXPECT_EQ(loads[0].layer, 1);
  EXPECT_DOUBLE_EQ(loads[0].hottest, 10.0 / 14);
  EXPECT_DOUBLE_EQ(loads[0].imbalance, 10 / 3.5);
  EXPECT_EQ(loads[0].unused, 1);
  EXPECT_EQ(loads[1].layer, 5);
  EXPECT_DOUBLE_EQ(loads[1].hottest, 25.0 / 40);
  EXPECT_EQ(loads[1].unused, 0);
  ranks[7] = {0, 1, 19, 0};
  try {
    expert_load(plan, config, ranks);
    ADD_FAILURE() << "drift was not seen";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ExitCode::fault);
    EXPECT_STREQ(error.what(), "ranks 6 and 7 hold the same layer 5, but chose other experts in it");
  }
}

TEST(ExpertLoad, OfARunIsTheSameOnEveryGrid) {
  const std::filesystem::path model = testing::model_directory("tiny-qwen3-moe");
  const std::vector<GenerationRequest> requests = requests_of(512);
  const auto loads = [&](const Grid& grid) {
    EngineOptions options = options_for(model, DType::bf16, grid);
    options.prefix_cache = false;
    return serve(grid.ranks(), options, requests).summary.experts;
  };
  const std::vector<ExpertLoad> one = loads({1, 1});
  ASSERT_EQ(one.size(), 3u);
  for (const Grid& grid : {Grid{2, 2}, {4, 2, 2}, {2, 1, 3}, {2, 2, 1, 2}}) {
    const std::vector<ExpertLoad> other = loads(grid);
    ASSERT_EQ(other.size(), one.size()) << text_of(grid);
    for (size_t i = 0; i < one.size(); ++i) {
      EXPECT_EQ(other[i].layer, static_cast<int64_t>(i));
      EXPECT_EQ(other[i].hottest, one[i].hottest) << text_of(grid);
      EXPECT_EQ(other[i].imbalance, one[i].imbalance);
      EXPECT_EQ(other[i].unused, one[i].unused);
      EXPECT_GT(one[i].hottest, 1.0 / 8);
      EXPECT_LE(one[i].hottest, 1.0 / 2);
    }
  }
}

}  // namespace
}  // namespace maniple
