// Routers, shared experts and latent attention with weights in codes: the tokens of the numbers that the codes mean, and one rank's
// bits on every grid.
#include <gtest/gtest.h>
#include <support/cover.hpp>
#include <support/quantised_checkpoint.hpp>
#include <support/serving.hpp>
#include <support/temp_directory.hpp>

namespace maniple::testing {
namespace {

struct Grid {
  int tensor = 1, expert = 1, pipeline = 1;
};
const std::vector<Grid> grids{{2}, {4}, {2, 2}, {1, 1, 2}}, grids_of_blocks{{2}, {4, 2}, {2, 2}, {1, 1, 2}};

std::string text_of(const Grid& grid) {
  return fmt::format("tp {} ep {} pp {}", grid.tensor, grid.expert, grid.pipeline);
}

Served run(const std::filesystem::path& model, DType dtype, const Grid& grid,
           const std::vector<GenerationRequest>& requests, bool random = false) {
  EngineOptions options;
  options.model = model;
  options.dtype = dtype;
  options.threads = 1;
  options.max_num_seqs = 16;
  options.max_num_batched_tokens = 512;
  options.kv_memory = size_t{64} << 20;
  options.tensor_size = grid.tensor;
  options.expert_size = grid.expert;
  options.pipeline_size = grid.pipeline;
  options.random_weights = random;
  options.seed = 3;
  return serve(grid.tensor * grid.pipeline, options, requests);
}

void expect_same_bits(const std::filesystem::path& model, const std::vector<GenerationRequest>& requests,
                      const std::string& where, const std::vector<Grid>& some = grids, bool random = false) {
  const std::string one = print(run(model, DType::bf16, {}, requests, random));
  for (const Grid& grid : sampled(some, 2)) {
    const Served served = run(model, DType::bf16, grid, requests, random);
    EXPECT_EQ(served.plan.repro, Repro::grid) << served.plan.repro_reason;
    EXPECT_EQ(print(served), one) << where << ", " << text_of(grid);
  }
}

TEST(QuantisedModels, OfFourBitsGiveTheTokensOfTheirNumbers) {
  const std::vector<std::pair<std::string, Codes>> subjects{{"tiny-deepseek-v3", Codes::pack_quantized},
                                                            {"tiny-deepseek-v3", Codes::gptq},
                                                            {"tiny-deepseek-v3", Codes::awq},
                                                            {"tiny-glm4-moe", Codes::pack_quantized},
                                                            {"tiny-glm4-moe", Codes::gptq},
                                                            {"tiny-glm4-moe", Codes::awq}};
  for (const auto& [name, codes] : sampled(subjects, 3)) {
    const TempDirectory coded, plain;
    write_quantised(model_directory(name), codes, "", coded.path(), plain.path());
    const std::vector<GenerationRequest> requests = golden_requests(read_golden(name));
    const std::string where = fmt::format("{} {}", name, static_cast<int>(codes));
    const Served expected = run(plain.path(), DType::fp32, {}, requests),
                 found = run(coded.path(), DType::fp32, {}, requests);
    for (const auto& [id, completion] : expected.completions)
      EXPECT_EQ(found.completions.at(id).answers.at(0).tokens, completion.answers.at(0).tokens)
          << where << ", request " << id;
    EXPECT_LT(found.info.weight_bytes, expected.info.weight_bytes) << where;
    expect_same_bits(coded.path(), requests, where);
  }
}

// As DeepSeek stores it, with blocks that its rows do not fill.
TEST(QuantisedModels, DecodeWhatMakesKeysAndValuesOfLatentRows) {
  const TempDirectory coded, plain;
  write_quantised(model_directory("tiny-deepseek-v3"), Codes::fp8_blocks, "kv_b_proj", coded.path(),
                  plain.path());
  const std::vector<GenerationRequest> requests = golden_requests(read_golden("tiny-deepseek-v3"));
  const Served expected = run(plain.path(), DType::fp32, {}, requests);
  for (const Grid& grid : {Grid{}, Grid{1, 1, 2}}) {
    const Served found = run(coded.path(), DType::fp32, grid, requests);
    for (const auto& [id, completion] : expected.completions)
      EXPECT_EQ(found.completions.at(id).answers.at(0).tokens, completion.answers.at(0).tokens)
          << text_of(grid) << ", request " << id;
  }
}

// Sizes of which ranks hold whole blocks, with random weights; of V3.1 with powers of two as scales.
TEST(QuantisedModels, InBlocksHaveTheSameBitsOnEveryGrid) {
  const std::vector<GenerationRequest> requests = golden_requests(read_golden("tiny-deepseek-v3"));
  const std::string sizes =
      R"("hidden_size": 128, "intermediate_size": 512, "moe_intermediate_size": 256, "num_hidden_layers": 2,
"num_attention_heads": 8, "first_k_dense_replace": 1, "n_routed_experts": 8, "num_experts_per_tok": 3, "vocab_size": 512,
"max_position_embeddings": 512, "head_dim": 64, "num_key_value_heads": 4, "n_group": 2, "topk_group": 1, "q_lora_rank": 64,
"kv_lora_rank": 64, "qk_nope_head_dim": 32, "qk_rope_head_dim": 16, "v_head_dim": 64,)";
  for (const char* architecture : {"DeepseekV3ForCausalLM", "Glm4MoeForCausalLM"})
    for (const char* format : {"", R"(, "scale_fmt": "ue8m0")"}) {
      const TempDirectory directory;
      std::ofstream(directory.path() / "config.json") << fmt::format(
          R"({{"architectures": ["{}"], {} "quantization_config": {{"quant_method": "fp8", "fmt": "e4m3",
"activation_scheme": "dynamic", "weight_block_size": [128, 128]{}}}}})",
          architecture, sizes, format);
      expect_same_bits(directory.path(), requests, fmt::format("{}{}", architecture, format), grids_of_blocks,
                       true);
    }
}

}  // namespace
}  // namespace maniple::testing
