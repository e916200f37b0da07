#include <launch/options/option_names.hpp>
#include <runtime/job_plan.hpp>

#include <gtest/gtest.h>

namespace maniple {
namespace {

TEST(OptionNames, ReplaceFields) {
  EXPECT_EQ(with_option_names("a larger `kv_memory` or a smaller `block_size`; `kv_memory`"),
            "a larger --kv-memory or a smaller --block-size; --kv-memory");
  EXPECT_EQ(with_option_names("`kv_memor` stays"), "`kv_memor` stays");
  EXPECT_EQ(with_option_names(
                "use `backend` cpu or `transport` host (`tensor_size`), `ranks_a_node`=2 `gpus_a_node`=2"),
            "use --backend cpu or --transport host (--tp), --ntasks-per-node=2 --gpus-per-node=2");
}

// Every field that a message of a plan names is an option (job_plan_test has the messages).
TEST(OptionNames, KnowTheFieldsOfARefusedPlan) {
  EngineOptions options;
  options.tensor_size = 4;
  try {
    plan_job(std::vector<RankLocation>(6), options, {BackendKind::cpu, CpuPath::portable});
    FAIL() << "accepted";
  } catch (const Error& error) {
    EXPECT_EQ(with_option_names(error.what()),
              "ranks (6) do not divide by --tp 4; use --tp 1, 2, 3 or 6, or start a multiple of 4 ranks");
  }
  EXPECT_EQ(
      with_option_names(
          "`context_size` `dtype` `expert_size` `max_model_len` `max_num_batched_tokens` `max_num_seqs` "
          "`pipeline_layers` `pipeline_size` `repro`"),
      "--cp --dtype --ep --max-model-len --max-num-batched-tokens --max-num-seqs --pp-layers --pp --repro");
}

}  // namespace
}  // namespace maniple
