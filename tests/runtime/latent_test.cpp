// Models with latent attention: golden tokens on every grid that their heads allow, the same bits over grids, chunks and shared
// contexts.
#include <gtest/gtest.h>
#include <support/cover.hpp>
#include <support/fused_checkpoint.hpp>
#include <support/golden.hpp>
#include <support/serving.hpp>
#include <support/temp_directory.hpp>

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

EngineOptions options_for(const std::filesystem::path& model, DType dtype, const Layout& layout,
                          BackendKind kind = BackendKind::cpu) {
  EngineOptions options;
  options.model = model;
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
  return options;
}

Served run(const char* model, DType dtype, const Layout& layout, BackendKind kind = BackendKind::cpu) {
  return serve(layout.tensor * layout.pipeline, options_for(model_directory(model), dtype, layout, kind),
               golden_requests(read_golden(model)));
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

// A model whose layers choose `chosen` tokens by indexers of random weights, which a shorter context does not need.
void write_with_indexers(const std::filesystem::path& model, const char* architecture, int64_t chosen,
                         const std::filesystem::path& to) {
  auto config = nlohmann::json::parse(read_file(model / "config.json"));
  std::vector<TensorToWrite> tensors;
  const WeightIndex index = read_index(model);
  for (const auto& [name, tensor] : index.tensors)
    tensors.push_back({name, tensor.info.stored_type, tensor.info.shape, bytes_of(index, name)});
  for (int64_t layer = 0; layer < config["num_hidden_layers"]; ++layer)
    for (const char* part :
         {"wq_b.weight", "wk.weight", "k_norm.weight", "k_norm.bias", "weights_proj.weight"}) {
      std::vector<std::byte> bytes(64);
      for (size_t i = 0; i < bytes.size(); ++i)
        bytes[i] = static_cast<std::byte>(hashed(static_cast<uint64_t>(layer)) >> i % 8);
      tensors.push_back(
          {fmt::format("model.layers.{}.self_attn.indexer.{}", layer, part), "BF16", {4, 8}, bytes});
    }
  write_safetensors(to / "model.safetensors", tensors);
  config.update({{"architectures", {architecture}}, {"model_type", "other"}, {"index_topk", chosen}});
  std::ofstream(to / "config.json") << config;
}

TEST(LatentModels, WithIndexersGiveGoldenTokensWhereAllOfTheContextIsChosen) {
  const Golden golden = read_golden("tiny-deepseek-v3");
  size_t longest = 0;
  for (const GoldenSequence& sequence : golden.sequences)
    longest = std::max(longest, sequence.prompt.size() + sequence.tokens.size());
  for (const char* architecture : {"DeepseekV32ForCausalLM", "GlmMoeDsaForCausalLM"}) {
    const TempDirectory directory;
    write_with_indexers(model_directory("tiny-deepseek-v3"), architecture, static_cast<int64_t>(longest),
                        directory.path());
    const auto served = [&](const Layout& layout, size_t context) {
      EngineOptions options = options_for(directory.path(), DType::fp32, layout);
      if (context > 0) options.max_model_len = static_cast<uint32_t>(context);
      return serve(layout.tensor * layout.pipeline, options, golden_requests(golden));
    };
    for (const Layout& layout : {Layout{}, Layout{.tensor = 2, .pipeline = 2}})
      expect_golden(golden, served(layout, longest), text_of(architecture, layout));
    for (const size_t context : {size_t{0}, longest + 1}) try {
        served({}, context);
        ADD_FAILURE() << "a context of " << context;
      } catch (const Error& error) {
        EXPECT_EQ(error.remedy(), fmt::format("`max_model_len` {}", longest));
      }
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
