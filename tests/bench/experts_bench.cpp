// Layers of experts, every weight distinct: in bf16 as Qwen3Moe has them (64, 8 a token), or with --model gpt-oss those of gpt-oss-20b in
// MXFP4, without biases.
// Decode: bytes of the weights that a step touches (router, chosen experts) over the time of the whole layers, against
// the read bandwidth. Prefill: GFLOP/s of the grouped products, against dense products of as many rows and the same widths.
// Routers: what a choice by sigmoids, biases and groups (as DeepSeek-V3's, a half of 8 groups kept) takes beside one by softmax, as a part of a layer.
// All in alternating rounds of one run; medians (smallest, largest) of the rounds. Prints a Markdown table.
//   experts_bench [--model qwen3-moe | gpt-oss] [--threads n] [--rounds n] [--path avx512]

#include <bench/bandwidth.hpp>
#include <bench/cpu_path.hpp>

#include <kernels/cpu/cpu_ops.hpp>
#include <layers/sparse_moe.hpp>
#include <parallel/self/self_world.hpp>
#include <parallel/shard.hpp>

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <thread>
#include <vector>

namespace maniple::bench {
namespace {

struct Model {
  std::string_view name;
  int64_t hidden, inner, experts, per_token, layers;
  WeightFormat format;
};
constexpr std::array models{Model{"qwen3-moe", 1024, 384, 64, 8, 16, WeightFormat::dense},
                            Model{"gpt-oss", 2880, 2880, 32, 4, 4, WeightFormat::mxfp4}};

const Model& model_named(std::string_view name) {
  for (const Model& model : models)
    if (model.name == name) return model;
  fail(ExitCode::usage, "unknown model {}; use qwen3-moe or gpt-oss", name);
}

struct Options {
  Model model = models.front();
  int threads = static_cast<int>(std::thread::hardware_concurrency());
  int rounds = 15;
  CpuPath path = CpuPath::automatic;
};

Options parse(int argc, char** argv) {
  Options options;
  for (int i = 1; i + 1 < argc; i += 2) {
    const std::string_view name = argv[i];
    if (name == "--model")
      options.model = model_named(argv[i + 1]);
    else if (name == "--threads")
      options.threads = std::atoi(argv[i + 1]);
    else if (name == "--rounds")
      options.rounds = std::atoi(argv[i + 1]);
    else if (name == "--path")
      options.path = cpu_path_named(argv[i + 1]);
    else
      fail(ExitCode::usage, "unknown option {}; use --model, --threads, --rounds or --path", name);
  }
  if (options.path == CpuPath::automatic) options.path = available_cpu_paths().front();
  return options;
}

class Random {
 public:
  uint64_t bits() { return state_ ^= state_ << 13, state_ ^= state_ >> 7, state_ ^= state_ << 17; }
  float next() {  // in [-1, 1)
    return static_cast<float>(static_cast<int32_t>(bits() >> 32)) * 0x1p-31f;
  }
  void fill(TensorView x) {
    for (int64_t i = 0; i < x.shape.elements(); ++i)
      x.dtype == DType::bf16 ? void(x.as<BFloat16>()[i] = BFloat16(next())) : void(x.as<float>()[i] = next());
  }
  void fill(Weight& weight) {
    if (weight.format == WeightFormat::dense) return fill(weight.packed.view());
    std::byte* const codes = weight.packed.view().data;
    for (size_t i = 0; i < weight.packed.view().bytes(); i += sizeof(uint64_t)) {
      const uint64_t random = bits();
      std::memcpy(codes + i, &random, sizeof random);
    }
    std::memset(weight.scales.view().data, 120, weight.scales.view().bytes());  // 2^-7
  }

 private:
  uint64_t state_ = 88172645463325252u;
};

ModelConfig config_of(const Model& model) {
  ModelConfig config;
  config.hidden_size = model.hidden;
  config.layers.resize(static_cast<size_t>(model.layers));
  config.experts = {.count = model.experts,
                    .width = model.inner,
                    .router = {.per_token = model.per_token, .normalise = true}};
  return config;
}

double bytes_of(const Weight& weight) { return static_cast<double>(weight.bytes()); }

// One layer, and its weights for calls of single products.
struct Layer {
  SparseMoe moe;
  Parameter* router = nullptr;
  std::vector<const Weight*> gate_up, down;

  Layer(int64_t number, const Model& model, Ops& ops, Random& random)
      : moe(fmt::format("model.layers.{}", number), config_of(model), RankPlan{}) {
    Parameters parameters;
    moe.append_parameters(parameters);
    for (Parameter* parameter : parameters) {
      const WeightSpec& spec = parameter->spec;
      WeightShape shape{
          .dtype = spec.type(DType::bf16), .rows = spec.rows, .columns = spec.columns, .slices = spec.slices};
      if (parameter != parameters[0] && model.format == WeightFormat::mxfp4)
        shape.format = model.format, shape.group = 32, shape.scale = DType::e8m0;
      parameter->matrix = ops.make_weight(shape);
      random.fill(parameter->matrix);
    }
    router = parameters[0];
    for (size_t e = 1; e < parameters.size(); e += 2) {
      gate_up.push_back(&parameters[e]->matrix);
      down.push_back(&parameters[e + 1]->matrix);
    }
    moe.prepare(ops.device());
  }
  std::vector<int32_t> counts() const {
    const auto* const all = moe.counts().as<int32_t>();
    return {all, all + moe.counts().shape[0]};
  }
};

struct Figures {
  std::vector<double> values;

  void add(double value) { values.push_back(value); }
  double median() const {
    std::vector<double> sorted = values;
    std::ranges::sort(sorted);
    return sorted[sorted.size() / 2];
  }
  std::string percent() const {
    return fmt::format("{:.0f} % ({:.0f}, {:.0f})", 100 * median(), 100 * *std::ranges::min_element(values),
                       100 * *std::ranges::max_element(values));
  }
};

template <typename Run>
double timed(Run run) {
  const auto start = Clock::now();
  run();
  return seconds_since(start);
}

class Bench {
 public:
  explicit Bench(const Options& options)
      : options_(options),
        device_("bench"),
        ops_(device_, std::make_unique<ThreadPool>(options.threads), options.path),
        probe_threads_(options.threads),
        memory_(device_),
        workspace_(device_, {192 << 20, 64 << 20}) {
    groups_.tensor = world_.make_group(std::array{0}, ops_);
    for (int64_t i = 0; i < options.model.layers; ++i)
      layers_.push_back(std::make_unique<Layer>(i, options.model, ops_, random_));
  }

  // Bytes of the weights that a step of `tokens` touches in all layers, per second, over the read bandwidth.
  void decode(int64_t tokens) {
    Tensor x(device_, DType::bf16, {tokens, options_.model.hidden});
    Figures rates, shares, milliseconds;
    for (int round = -2; round < options_.rounds; ++round) {
      random_.fill(x.view());
      const double bandwidth = memory_.measure(probe_threads_);
      rest();
      std::vector<std::vector<int32_t>> before;
      for (const auto& layer : layers_) before.push_back(layer->counts());
      const double seconds = timed([&] {
        for (const auto& layer : layers_) forward(*layer, x.view());
      });
      double bytes = 0;
      for (size_t i = 0; i < layers_.size(); ++i) bytes += touched(*layers_[i], before[i]);
      if (round < 0) continue;
      milliseconds.add(seconds * 1e3), rates.add(bytes / seconds * 1e-9),
          shares.add(bytes / seconds / bandwidth);
    }
    fmt::print("| decode, {} sequences | {:.2f} | {:.1f} GB/s | {} of the read bandwidth |\n", tokens,
               milliseconds.median(), rates.median(), shares.percent());
  }

  // A layer with a sigmoid router, to the layer as it is.
  void router(int64_t tokens) {
    constexpr int calls = 100;
    const int64_t experts = options_.model.experts;
    Tensor x(device_, DType::bf16, {tokens, options_.model.hidden}),
        logits(device_, DType::fp32, {tokens, experts}), bias(device_, DType::fp32, {experts});
    random_.fill(x.view()), random_.fill(logits.view()), random_.fill(bias.view());
    const Router softmax{.per_token = options_.model.per_token, .normalise = true};
    Router sigmoid = softmax;
    sigmoid.scoring = RouterScoring::sigmoid;
    sigmoid.bias = bias.view();
    sigmoid.groups = 8, sigmoid.kept_groups = 4;
    sigmoid.group_score = GroupScore::top2;
    Figures more, ratios;
    for (int round = -1; round < options_.rounds; ++round) {
      const Workspace::Scope scope(workspace_);
      Routing routing = routing_of(tokens);
      const auto route = [&](const Router& router) {
        return timed([&] {
          for (int call = 0; call < calls; ++call) ops_.route(logits.view(), router, routing);
        });
      };
      const double seconds = (route(sigmoid) - route(softmax)) / calls,
                   layer = timed([&] {
                             for (const auto& each : layers_) forward(*each, x.view());
                           }) /
                           static_cast<double>(layers_.size());
      if (round >= 0) more.add(seconds * 1e6), ratios.add(1 + seconds / layer);
    }
    fmt::print("| sigmoid router, {} sequences | {:+.4f} | | {:.3f} of a layer with softmax |\n", tokens,
               more.median() * 1e-3, ratios.median());
  }

  // GFLOP/s of the grouped products of `tokens` over those of dense products.
  void prefill(int64_t tokens) {
    const auto& [name, hidden, inner, experts, per_token, num_layers, format] = options_.model;
    const int64_t rows = tokens * per_token;
    Tensor x(device_, DType::bf16, {tokens, hidden}), many(device_, DType::bf16, {rows, hidden}),
        logits(device_, DType::fp32, {tokens, experts}), gate_up(device_, DType::bf16, {rows, 2 * inner}),
        middle(device_, DType::bf16, {rows, inner}), out(device_, DType::fp32, {rows, hidden});
    random_.fill(x.view()), random_.fill(many.view()), random_.fill(middle.view());
    const double flop = 2.0 * static_cast<double>(rows * 3 * inner * hidden * num_layers);
    Figures rates, shares, milliseconds, whole;
    for (int round = -1; round < options_.rounds; ++round) {
      double grouped = 0;
      rest();
      for (const auto& layer : layers_) {
        const Workspace::Scope scope(workspace_);
        Routing routing = routing_of(tokens);
        random_.fill(logits.view());
        ops_.route(logits.view(), {.per_token = per_token, .normalise = true}, routing);
        grouped += timed([&] {
          ops_.grouped_matmul_gate_mul(GateActivation::silu, x.view(), routing, layer->gate_up, {},
                                       middle.view());
          ops_.grouped_matmul(middle.view(), routing, layer->down, out.view());
        });
      }
      rest();
      const double dense = timed([&] {
        for (const auto& layer : layers_) {
          ops_.matmul(many.view(), *layer->gate_up[0], {}, gate_up.view());
          ops_.matmul(middle.view(), *layer->down[0], {}, out.view());
        }
      });
      rest();
      const double all = timed([&] {
        for (const auto& layer : layers_) forward(*layer, x.view());
      });
      if (round < 0) continue;
      milliseconds.add(grouped * 1e3), rates.add(flop / grouped * 1e-9), shares.add(dense / grouped),
          whole.add(all * 1e3);
    }
    fmt::print(
        "| prefill, {} tokens | {:.1f}; whole layers {:.1f} | {:.0f} GFLOP/s | {} of dense products |\n",
        tokens, milliseconds.median(), whole.median(), rates.median(), shares.percent());
  }

 private:
  // Threads of the other side may still be spinning.
  static void rest() { std::this_thread::sleep_for(std::chrono::milliseconds(20)); }

  void forward(const Layer& layer, ConstTensorView x) {
    const Workspace::Scope scope(workspace_);
    ForwardContext context{ops_, workspace_, groups_, DType::bf16, layer_};
    layer.moe.forward(x, context);
  }

  Routing routing_of(int64_t tokens) {
    const int64_t experts = options_.model.experts, per_token = options_.model.per_token;
    const auto take = [&](DType type, const Shape& shape) { return workspace_.take(type, shape); };
    return {.experts = {0, experts},
            .tokens = take(DType::int32, {tokens * per_token}),
            .weights = take(DType::fp32, {tokens * per_token}),
            .offsets = take(DType::int32, {experts + 1}),
            .chosen = take(DType::int32, {tokens, per_token}),
            .places = take(DType::int32, {tokens, per_token}),
            .counts = take(DType::int32, {experts})};
  }

  static double touched(const Layer& layer, const std::vector<int32_t>& before) {
    double bytes = bytes_of(layer.router->matrix);
    const std::vector<int32_t> counts = layer.counts();
    for (size_t e = 0; e < counts.size(); ++e)
      if (counts[e] > before[e]) bytes += bytes_of(*layer.gate_up[e]) + bytes_of(*layer.down[e]);
    return bytes;
  }

  const Options options_;
  CpuDevice device_;
  cpu::CpuOps ops_;
  ThreadPool probe_threads_;
  ReadBandwidth memory_;
  Workspace workspace_;
  SelfWorld world_;
  Groups groups_;
  std::atomic<uint32_t> layer_ = 0;
  Random random_;
  std::vector<std::unique_ptr<Layer>> layers_;
};

void run(const Options& options) {
  Bench bench(options);
  const Model& model = options.model;
  fmt::print(
      "{}: {} experts in {}, {} a token, hidden {}, inner {}, {} layers, path {}, {} threads, {} rounds\n\n",
      model.name, model.experts, model.format == WeightFormat::dense ? "bf16" : name_of(model.format),
      model.per_token, model.hidden, model.inner, model.layers, name_of(options.path), options.threads,
      options.rounds);
  fmt::print("| case | ms | rate | share |\n|---|--:|--:|--:|\n");
  for (const int64_t tokens : {1, 8, 32}) bench.decode(tokens);
  for (const int64_t tokens : {1, 32}) bench.router(tokens);
  bench.prefill(512);
}

}  // namespace
}  // namespace maniple::bench

int main(int argc, char** argv) {
  try {
    maniple::bench::run(maniple::bench::parse(argc, argv));
  } catch (const std::exception& error) {
    fmt::print(stderr, "experts_bench: {}\n", error.what());
    return 1;
  }
}
