// Models with latent attention: golden tokens on every grid that their heads allow, the same bits over grids, chunks and shared
// contexts.
#include <gtest/gtest.h>
#include <support/cover.hpp>
#include <support/golden.hpp>
#include <support/serving.hpp>

namespace maniple::testing {
namespace {

struct Layout {
  int tensor = 1, expert = 1, pipeline = 1, context = 1;
  uint32_t block = 16, chunk = 512;
};

struct Subject {
  const char* model;
  std::vector<Layout> layouts;
};

const Subject subjects[] = {
    {"tiny-deepseek-v3",
     {{.tensor = 2},
      {.tensor = 4},
      {.tensor = 8},
      {.tensor = 2, .expert = 2},
      {.pipeline = 2},
      {.tensor = 2, .pipeline = 2},
      {.tensor = 2, .context = 2, .block = 256},
      {.tensor = 4, .context = 4, .block = 256},
      {.block = 256, .chunk = 7}}},
    {"tiny-deepseek-v2-lite",
     {{.tensor = 2},
      {.tensor = 2, .expert = 2},
      {.pipeline = 3},
      {.tensor = 2, .context = 2, .block = 256},
      {.chunk = 7}}},
    {"tiny-glm4-moe-lite", {{.pipeline = 2}, {.block = 256}, {.chunk = 7}}},
};

Served run(const char* model, DType dtype, const Layout& layout, BackendKind kind = BackendKind::cpu) {
  EngineOptions options;
  options.model = model_directory(model);
  options.dtype = dtype;
  options.backend.kind = kind;
  options.threads = 1;
  options.max_num_seqs = std::min(16U, layout.chunk);
  options.max_num_batched_tokens = layout.chunk;
  options.kv_memory = size_t{64} << 20;
  options.block_size = layout.block;
  options.tensor_size = layout.tensor;
  options.expert_size = layout.expert;
  options.pipeline_size = layout.pipeline;
  options.context_size = layout.context;
  return serve(layout.tensor * layout.pipeline, options, golden_requests(read_golden(model)));
}

std::string text_of(const char* model, const Layout& layout) {
  return fmt::format("{} tp {} ep {} pp {} cp {}, blocks of {}, steps of {}", model, layout.tensor,
                     layout.expert, layout.pipeline, layout.context, layout.block, layout.chunk);
}

TEST(LatentModels, GiveGoldenTokensOnEveryGrid) {
  for (const auto& [model, layouts] : subjects) {
    const Golden golden = read_golden(model);
    expect_golden(golden, run(model, DType::fp32, {}), model);
    expect_golden(golden, run(model, DType::fp32, {}, BackendKind::reference), model);
    for (const Layout& layout : sampled(layouts, 3)) {
      const Served served = run(model, DType::fp32, layout);
      expect_golden(golden, served, text_of(model, layout));
      EXPECT_EQ(served.plan.repro, Repro::grid) << served.plan.repro_reason;
    }
  }
}

TEST(LatentModels, GiveTheSameBitsOnEveryGridInBf16) {
  for (const auto& [model, layouts] : subjects) {
    const std::string expected = print(run(model, DType::bf16, {}));
    for (const Layout& layout : sampled(layouts, 3))
      EXPECT_EQ(print(run(model, DType::bf16, layout)), expected) << text_of(model, layout);
  }
}

TEST(LatentModels, KeepOneRowATokenOnEachRank) {
  const Served served = run("tiny-deepseek-v3", DType::bf16, {.tensor = 2});
  EXPECT_EQ(served.info.latent,
            "latent, 80 lanes a token and layer (640 B a token, 1/25.6 of 8 KV heads of 128)");
  EXPECT_EQ(served.info.kv_bytes / served.info.num_blocks, 4U * 16 * 80 * 2);
}

}  // namespace
}  // namespace maniple::testing
