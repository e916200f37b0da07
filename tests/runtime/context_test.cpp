// Ranks that hold the same KV head share a context: N times the KV tokens in the same memory, and the bytes of one rank.
#include <gtest/gtest.h>
#include <kernels/factory/make_backend.hpp>
#include <runtime/checkpoint/loading/model_config.hpp>
#include <runtime/execution/model_runner.hpp>
#include <support/serving.hpp>
#include <support/temp_directory.hpp>

#include <fstream>

namespace maniple {
namespace {

using testing::serve;
using testing::Served;

struct Heads {
  int heads, kv_heads, tensor, context;
};

// A model without weights, of two layers with these heads.
std::filesystem::path model_of(const TempDirectory& directory, int heads, int kv_heads) {
  const std::filesystem::path path = directory.path() / fmt::format("model-{}-{}", heads, kv_heads);
  std::filesystem::create_directories(path);
  std::ofstream(path / "config.json") << fmt::format(
      R"({{"architectures":["Qwen3ForCausalLM"],"model_type":"qwen3","hidden_act":"silu","hidden_size":64,"head_dim":16,)"
      R"("num_attention_heads":{},"num_key_value_heads":{},"num_hidden_layers":2,"intermediate_size":64,"vocab_size":256,)"
      R"("max_position_embeddings":8192,"rms_norm_eps":1e-6,"rope_theta":10000.0,"attention_bias":false,)"
      R"("tie_word_embeddings":false,"torch_dtype":"bfloat16","eos_token_id":255}})",
      heads, kv_heads);
  return path;
}

EngineOptions options_for(const std::filesystem::path& model, int tensor, int context) {
  EngineOptions options;
  options.model = model;
  options.random_weights = true;
  options.seed = 7;
  options.tensor_size = tensor;
  options.context_size = context;
  options.max_num_seqs = 8;
  options.max_num_batched_tokens = 300;
  options.kv_memory = size_t{32} << 20;
  return options;
}

int32_t prompt_token(int position, int seed) {
  return (position * position * 31 + position * 7 + seed) % 251;
}

// Sampled and greedy requests with prompts of these lengths; the last two begin alike.
std::vector<GenerationRequest> requests_of(std::initializer_list<int> lengths) {
  std::vector<GenerationRequest> requests;
  for (const int length : lengths) {
    GenerationRequest& request = requests.emplace_back();
    request.id = requests.size() - 1;
    const int seed = requests.size() == lengths.size() ? *(lengths.end() - 2) : length;
    for (int i = 0; i < length; ++i) request.prompt.push_back(prompt_token(i, seed));
    request.sampling.temperature = request.id % 2 == 0 ? 0.9F : 0.0F;
    request.sampling.seed = request.id;
    if (request.id % 3 == 0) request.sampling.repetition_penalty = 1.3F;
    if (request.id % 3 == 1) request.sampling.frequency_penalty = request.sampling.presence_penalty = 0.5F;
    request.sampling.ignore_eos = true;
    request.sampling.max_tokens = 5;
    request.sampling.logprobs = 2;
  }
  return requests;
}

std::string print_complete(const Served& served) {
  for (const auto& [id, completion] : served.completions) EXPECT_EQ(completion.error, "") << id;
  return testing::print(served);
}

class Context : public ::testing::TestWithParam<Heads> {
 protected:
  TempDirectory directory_;
};
INSTANTIATE_TEST_SUITE_P(Shapes, Context,
                         ::testing::Values(Heads{8, 1, 4, 2}, Heads{8, 1, 8, 8}, Heads{8, 1, 8, 4},
                                           Heads{8, 2, 8, 4}, Heads{8, 4, 8, 2}, Heads{4, 1, 2, 2}),
                         [](const auto& param) {
                           const Heads& s = param.param;
                           return fmt::format("h{}kv{}tp{}cp{}", s.heads, s.kv_heads, s.tensor, s.context);
                         });

TEST_P(Context, GivesTheBytesOfOneRank) {
  const auto [heads, kv_heads, tensor, context] = GetParam();
  const std::filesystem::path model = model_of(directory_, heads, kv_heads);
  const auto requests = requests_of({1, 255, 256, 257, 511, 512, 513, 2047, 2048, 2049, 4097, 2000, 2600});
  for (const DType dtype : {DType::bf16, DType::fp32}) {
    EngineOptions one = options_for(model, 1, 1), shared = options_for(model, tensor, context);
    one.dtype = shared.dtype = dtype;
    const Served expected = serve(1, one, requests), served = serve(tensor, shared, requests);
    EXPECT_EQ(served.plan.repro, Repro::grid);
    EXPECT_EQ(print_complete(served), print_complete(expected)) << name_of(dtype);
    if (dtype == DType::fp32) continue;
    shared.max_num_batched_tokens = 7;
    shared.max_num_seqs = 5;
    const auto few = requests_of({1, 257, 513, 600, 600});
    EXPECT_EQ(print_complete(serve(tensor, shared, few)), print_complete(serve(1, one, few)))
        << "chunks of 7";
  }
}

// With too few blocks running sequences lose theirs. A block of a shared context is larger, so a
// prefix is found only where it fills one.
TEST_P(Context, SurvivesPreemptionsAndFindsPrefixes) {
  const auto [heads, kv_heads, tensor, context] = GetParam();
  const std::filesystem::path model = model_of(directory_, heads, kv_heads);
  auto requests = requests_of({1, 1, 1, 1, 2500, 2600});
  for (GenerationRequest& request : requests) request.sampling.max_tokens = 40;
  for (int i = 0; i < 4; ++i) {  // most cross the end of a block while they are decoded
    requests[static_cast<size_t>(i)].prompt.clear();
    for (int p = 0; p < 256 * context - 10 * (i + 1); ++p)
      requests[static_cast<size_t>(i)].prompt.push_back(prompt_token(p, i));
  }
  const Served expected = serve(1, options_for(model, 1, 1), requests);
  EngineOptions shared = options_for(model, tensor, context);
  EXPECT_EQ(print_complete(serve(tensor, shared, requests)), print_complete(expected));
  const size_t block = 2 * 2 * 16 * 256 * size_of(DType::bf16);  // one head, two layers
  const size_t longest =
      (2600 + 40 + 256 * static_cast<size_t>(context) - 1) / (256 * static_cast<size_t>(context));
  shared.kv_memory = std::max<size_t>(longest, 5) * block;
  const Served tight = serve(tensor, shared, requests);
  EXPECT_EQ(print_complete(tight), print_complete(expected));
  EXPECT_GT(tight.summary.preemptions, 0U);
  shared = options_for(model, tensor, context);
  shared.max_num_seqs = 1;
  shared.max_num_batched_tokens = 300;
  const Served cached = serve(tensor, shared, requests);
  EXPECT_EQ(print_complete(cached), print_complete(expected));
  EXPECT_GT(cached.summary.cached_tokens, 0U);
}

TEST_P(Context, HoldsSoManyTimesTheTokensInTheSameMemory) {
  const auto [heads, kv_heads, tensor, context] = GetParam();
  const std::filesystem::path model = model_of(directory_, heads, kv_heads);
  const auto tokens_of = [&](int size) {
    const Served served = serve(tensor, options_for(model, tensor, size), requests_of({3, 3}));
    return uint64_t{served.info.num_blocks} * served.plan.block_tokens;
  };
  EXPECT_EQ(tokens_of(context), static_cast<uint64_t>(context) * tokens_of(1));
}

// What ranks exchange of a token, here 8 x 8 heads of 514 numbers, is held for some tokens at a time.
TEST(SharedContext, TakesScratchThatDoesNotGrowWithAStep) {
  const ModelConfig config = parse_model_config(
      R"({"architectures": ["DeepseekV3ForCausalLM"], "num_hidden_layers": 1, "hidden_size": 512,
          "intermediate_size": 512, "num_attention_heads": 64, "vocab_size": 512, "max_position_embeddings": 16384})",
      "config.json");
  const Backend backend = make_backend({.kind = BackendKind::cpu, .threads = 1});
  const auto scratch_of = [&](int context, uint32_t tokens) {
    RankPlan plan;
    plan.grid = {.tensor = 8, .context = context};
    const std::unique_ptr<Model> model = make_model(config, plan);
    const RunnerLimits limits{.max_num_seqs = 16,
                              .step_tokens = tokens,
                              .max_model_len = 16384,
                              .block_size = 256,
                              .context = {0, context}};
    model->prepare(*backend.ops, limits.max_model_len);
    return dry_run(*model, plan, *backend.ops, limits, DType::bf16, config).scratch;
  };
  const auto more = [&](uint32_t tokens) { return scratch_of(8, tokens) - scratch_of(1, tokens); };
  EXPECT_GT(more(256), size_t{2} * 256 * 64 * 514 * sizeof(float));
  EXPECT_LE(more(8192), more(256));
}

}  // namespace
}  // namespace maniple
