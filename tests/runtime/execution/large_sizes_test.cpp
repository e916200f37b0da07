// Steps of models of 70 to 1000 billion parameters through the host code of the CUDA backend, over addresses without memory: no shape, grid
// or product of sizes leaves its type. Launches are judged and not run.
#include <gtest/gtest.h>
#include <kernels/cuda/cuda_ops.hpp>
#include <runtime/checkpoint/loading/model_config.hpp>
#include <runtime/checkpoint/loading/weight_loader.hpp>
#include <runtime/execution/dry_run.hpp>
#include <runtime/execution/model_runner.hpp>
#include <runtime/scheduling/scheduler.hpp>
#include <support/golden.hpp>

#include <fmt/format.h>
#include <sys/mman.h>

#include <cstring>

namespace maniple {
namespace {

class AddressesOnly : public Device {
 public:
  std::string description() const override { return "addresses without memory"; }
  bool shares_host_memory() const override { return false; }
  std::byte* allocate(size_t bytes) override {
    void* const first = mmap(nullptr, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (first == MAP_FAILED) throw std::bad_alloc();
    return static_cast<std::byte*>(first);
  }
  void release(std::byte* memory, size_t bytes) noexcept override { munmap(memory, bytes); }
  size_t free_memory() const override { return size_t{1} << 46; }
  void upload(std::byte*, const std::byte*, size_t) override {}
  void clear(std::byte*, size_t) override {}
  void copy(std::byte*, const std::byte*, size_t) override {}
  void download(std::byte* to_host, const std::byte*, size_t bytes) override {
    std::memset(to_host, 0, bytes);
  }
  std::unique_ptr<Download> start_download(const std::byte* from, size_t bytes) override {
    return std::make_unique<FinishedDownload>(*this, from, bytes);
  }
  void synchronize() override {}
  std::unique_ptr<Graph> capture(const std::function<void()>&) override { return nullptr; }
};

struct ShapesOnly : cuda::Gemm {
  void multiply(device::Stream, ConstTensorView x, ConstTensorView weight, ConstTensorView bias,
                TensorView out, cuda::BlockScales) override {
    const int64_t m = x.shape[0], n = weight.shape[0];
    EXPECT_TRUE(x.shape == (Shape{m, weight.shape[1]}) && out.shape == (Shape{m, n}) &&
                x.dtype == weight.dtype);
    EXPECT_TRUE(bias.empty() || (bias.shape == (Shape{n}) && bias.dtype == out.dtype));
  }
};

// The sizes of a large model, the rest of a tiny one: 8 KV heads of 128.
struct Large {
  const char *name, *tiny;
  int64_t hidden, heads, intermediate, vocabulary;
  int64_t experts = 0;  // of width `intermediate`, 8 a token
  int tensor = 1;
  DType kept = DType::bf16, activation = DType::bf16;

  ModelConfig config() const {
    ModelConfig config = read_model_config(testing::model_directory(tiny));
    config.hidden_size = hidden;
    config.layers.assign(2, {.dense_width = experts > 0 ? 0 : intermediate});
    config.experts.width = intermediate;
    config.num_heads = heads;
    config.num_kv_heads = 8;
    config.head_dim = 128;
    config.vocab_size = vocabulary;
    config.max_position_embeddings = 131072;
    config.experts.count = experts;
    config.experts.router.per_token = 8;
    return config;
  }
};

class LargeSizes : public ::testing::TestWithParam<Large> {
 protected:
  // Prompts that fill a step of `tokens`, then decode steps of all `sequences`.
  void run(uint32_t tokens, uint32_t sequences) {
    SCOPED_TRACE(fmt::format("{} tokens, {} sequences", tokens, sequences));
    AddressesOnly addresses;
    emulation::Order order{.dry = true};
    cuda::CudaOps ops(addresses, &order, std::make_unique<ShapesOnly>());
    const ModelConfig config = GetParam().config();
    RankPlan plan;
    plan.grid = {.tensor = GetParam().tensor};
    const std::unique_ptr<Model> model = make_model(config, plan);
    make_weights(*model, ops, GetParam().activation, *scheme_of(config), nullptr);
    model->prepare(ops, 8192);
    const Groups groups{.tensor = std::make_unique<DryCommunicator>(plan.tensor())};
    const HeadLayout heads = model->heads();
    // More than 2^31 elements of keys in each layer.
    const KvLayout layout{heads.kv_heads, heads.key_dim, 16, GetParam().kept};
    const auto blocks =
        static_cast<uint32_t>((int64_t{1} << 31) / (layout.kv_heads * layout.key_dim * layout.block_size)) +
        1;
    const RunnerLimits most{sequences, tokens, 8192, 16};
    std::atomic<uint32_t> layer = 0;
    ModelRunner runner(*model, ops, groups,
                       {.limits = most,
                        .kv = {model->num_layers(), layout},
                        .num_blocks = blocks,
                        .scratch = dry_run(*model, plan, ops, most, GetParam().activation, config),
                        .activation = GetParam().activation,
                        .vocabulary_size = config.vocab_size,
                        .hidden_size = config.hidden_size},
                       layer);
    Scheduler scheduler({.max_num_seqs = sequences,
                         .max_num_batched_tokens = tokens,
                         .max_model_len = most.max_model_len,
                         .block_size = most.block_size,
                         .num_blocks = blocks,
                         .prefix_cache = false,
                         .eos_token_ids = {}});
    for (uint32_t id = 0; id < sequences; ++id) {
      GenerationRequest request;
      request.id = id;
      request.prompt.assign(tokens / sequences, 1);
      request.sampling.max_tokens = 2;
      request.sampling.temperature = 1;
      request.sampling.top_k = id % 2 == 0 ? 50 : 0;
      request.sampling.logprobs = 5;
      EXPECT_FALSE(scheduler.add(std::move(request)));
    }
    size_t answers = 0;
    while (scheduler.has_work()) {
      const uint64_t before = order.launches;
      runner.launch(*scheduler.schedule());
      EXPECT_GT(order.launches, before);
      answers += scheduler.commit(runner.collect()).size();
    }
    EXPECT_EQ(answers, 2 * sequences);
  }
};

TEST_P(LargeSizes, LeaveNoTypeAndNoGrid) {
  run(8192, 1024);
  run(65536, 4096);
  run(65536, 16);  // long prompts
}

INSTANTIATE_TEST_SUITE_P(
    Models, LargeSizes,
    ::testing::Values(Large{"dense_70b", "tiny-llama3", 8192, 64, 28672, 128256},
                      Large{"dense_72b", "tiny-qwen2", 8192, 64, 29568, 152064},
                      Large{"dense_405b", "tiny-llama3", 16384, 128, 53248, 128256},
                      Large{"dense_405b_on_8", "tiny-llama3", 16384, 128, 53248, 128256, 0, 8},
                      Large{"fp8_405b", "q-fp8-block", 16384, 128, 53248, 152064, 0, 1, DType::fp8},
                      Large{"int4_405b", "q-gptq", 16384, 128, 53248, 152064},
                      Large{"int8_405b", "q-int8", 16384, 128, 53248, 152064},
                      Large{"experts_128", "tiny-qwen3-moe", 4096, 64, 1536, 152064, 128},
                      // 65536 tiles of eight rows and more, which the second side of a grid does not hold
                      Large{"experts_128_fp32", "tiny-qwen3-moe", 4096, 64, 1536, 152064, 128, 1, DType::fp32,
                            DType::fp32},
                      Large{"experts_384", "tiny-qwen3-moe", 7168, 64, 2048, 163840, 384},
                      Large{"experts_384_fp8", "q-moe-fp8-block", 7168, 64, 2048, 163840, 384},
                      Large{"experts_384_int4", "q-moe-gptq", 7168, 64, 2048, 163840, 384},
                      Large{"experts_384_int8", "q-moe-int8", 7168, 64, 2048, 163840, 384}),
    [](const auto& param) { return std::string(param.param.name); });

}  // namespace
}  // namespace maniple
