#include <launch/options/option_names.hpp>

#include <gtest/gtest.h>

namespace maniple {
namespace {

Error refusal_of(int ranks, const EngineOptions& options, const ModelConfig* config = nullptr) {
  try {
    plan_or_refuse(std::vector<RankLocation>(static_cast<size_t>(ranks)), options, config);
  } catch (const Error& error) {
    return error;
  }
  return {ExitCode::complete, "accepted"};
}

EngineOptions with_tensor_size(int size) {
  EngineOptions options;
  options.tensor_size = size;
  return options;
}

TEST(OptionNames, ReplaceFields) {
  EXPECT_EQ(with_option_names("a larger `kv_memory` or a smaller `block_size`; `kv_memory`"),
            "a larger --kv-memory or a smaller --block-size; --kv-memory");
  EXPECT_EQ(with_option_names("`kv_memor` stays"), "`kv_memor` stays");
  EXPECT_EQ(with_option_names(
                "use `backend` cpu or `transport` host (`tensor_size`), `ranks_a_node`=2 `gpus_a_node`=2"),
            "use --backend cpu or --transport host (--tp), --ntasks-per-node=2 --gpus-per-node=2");
}

TEST(PlanOrRefuse, SaysWhichTensorSizesFitTheRanks) {
  const Error error = refusal_of(6, with_tensor_size(4));
  EXPECT_EQ(error.code(), ExitCode::usage);
  EXPECT_STREQ(error.what(),
               "ranks (6) do not divide by --tp 4; use --tp 1, 2, 3 or 6, or start a multiple of 4 ranks");
  EXPECT_STREQ(refusal_of(1, with_tensor_size(2)).what(),
               "ranks (1) do not divide by --tp 2; use --tp 1, or start a multiple of 2 ranks");
  EXPECT_STREQ(refusal_of(4, with_tensor_size(2)).what(), "accepted");
}

TEST(PlanOrRefuse, SaysWhichSizesFitTheModel) {
  ModelConfig config;
  config.num_heads = config.num_kv_heads = 8;
  config.head_dim = config.hidden_size = config.intermediate_size = config.vocab_size = 64;
  config.num_layers = 1;
  config.max_position_embeddings = 100;
  const Error heads = refusal_of(3, with_tensor_size(3), &config);
  EXPECT_EQ(heads.code(), ExitCode::input);
  EXPECT_STREQ(heads.what(), "attention heads (8) do not divide by tensor ranks (3); use --tp 1, 2, 4 or 8");
  EXPECT_EQ(heads.why(), "every tensor rank holds the same number of whole ones");
  EngineOptions options;
  options.max_model_len = 101;
  const Error longest = refusal_of(1, options, &config);
  EXPECT_EQ(longest.code(), ExitCode::usage);
  EXPECT_STREQ(
      longest.what(),
      "--max-model-len 101 is longer than the model's 100 positions; use --max-model-len 100 or less");
  options.max_model_len = 100;
  options.max_num_batched_tokens = 5;
  options.max_num_seqs = 6;
  EXPECT_STREQ(refusal_of(1, options, &config).what(),
               "--max-num-batched-tokens 5 is below --max-num-seqs 6, but every running sequence takes a "
               "token a step");
}

TEST(PlanOrRefuse, SaysWhyGridCannotBeKept) {
  ModelConfig config;
  config.num_heads = config.num_kv_heads = 12;
  config.head_dim = config.hidden_size = config.intermediate_size = config.vocab_size = 64;
  config.num_layers = 1;
  config.max_position_embeddings = 5000;
  EngineOptions options = with_tensor_size(3);
  options.repro = Repro::grid;
  const Error error = refusal_of(6, options, &config);
  EXPECT_EQ(error.code(), ExitCode::input);
  EXPECT_STREQ(
      error.what(),
      "--repro grid cannot be kept: 3 tensor ranks do not divide the 8 reduction slices of attention's "
      "width 768; use --repro auto, or --tp 1 or 2");
}

}  // namespace
}  // namespace maniple
