// Self-attention with heads of any size against plain loops in double precision, which know no padding.
#include <gtest/gtest.h>
#include <layers/attention.hpp>
#include <layers/layer_testing.hpp>
#include <layers/rotary.hpp>
#include <support/random_tensors.hpp>

#include <fmt/format.h>

#include <cmath>

namespace maniple {
namespace {

using namespace testing;

constexpr int64_t hidden = 20, heads = 4, kv_heads = 2, tokens = 9, block_size = 16;

SourceTensor random_source(uint64_t seed, float middle = 0) {
  return [=](int64_t row, int64_t column) {
    return middle + uniform(seed, static_cast<uint64_t>(1000 * row + column));
  };
}

const Sources sources{{"a.q_proj.weight", random_source(1)},
                      {"a.k_proj.weight", random_source(2)},
                      {"a.v_proj.weight", random_source(3)},
                      {"a.o_proj.weight", random_source(4)},
                      {"a.q_norm.weight", random_source(5, 1)},
                      {"a.k_norm.weight", random_source(6, 1)},
                      {"a.q_proj.bias", random_source(7)},
                      {"a.k_proj.bias", random_source(8)},
                      {"a.v_proj.bias", random_source(9)},
                      {"a.o_proj.bias", random_source(10)},
                      {"a.sinks", random_source(11)}};

float input(int64_t token, int64_t column) {
  return uniform(99, static_cast<uint64_t>(token * hidden + column));
}

using Vector = std::vector<double>;

Vector product(const std::string& name, int64_t first_row, int64_t rows, const Vector& x, bool bias) {
  Vector y;
  for (int64_t row = first_row; row < first_row + rows; ++row) {
    double sum = bias ? sources.at(name + ".bias")(row, 0) : 0;
    for (size_t i = 0; i < x.size(); ++i)
      sum += sources.at(name + ".weight")(row, static_cast<int64_t>(i)) * x[i];
    y.push_back(sum);
  }
  return y;
}

double squares_of(const Vector& head) {
  double sum = 0;
  for (const double value : head) sum += value * value;
  return sum;
}

// A head's query or key of a token: normalised, then pairs (i, i + half) of the lanes that rotate.
Vector rotated(const ModelConfig& config, const std::string& name, int64_t head, int64_t token,
               const Vector& x) {
  const int64_t size = config.head_dim;
  const auto width = static_cast<size_t>(config.rotaries[0].width_of(size)), half = width / 2;
  Vector y = product("a." + name + "_proj", head * size, size, x, config.qkv_bias);
  if (config.qk_norm || config.whole_qk_norm) {
    const int64_t all = config.qk_norm ? size : size * (name == "q" ? heads : kv_heads);
    const double squares = config.qk_norm
                               ? squares_of(y)
                               : squares_of(product("a." + name + "_proj", 0, all, x, config.qkv_bias));
    for (int64_t i = 0; i < size; ++i)
      y[static_cast<size_t>(i)] *=
          sources.at("a." + name + "_norm.weight")(config.qk_norm ? i : head * size + i, 0) /
          std::sqrt(squares / static_cast<double>(all) + config.rms_norm_eps);
  }
  for (size_t i = 0; i < half; ++i) {
    const double angle =
        static_cast<double>(token) *
        std::pow(config.rotaries[0].theta, -2.0 * static_cast<double>(i) / static_cast<double>(width));
    const double a = y[i], b = y[half + i];
    y[i] = a * std::cos(angle) - b * std::sin(angle);
    y[half + i] = b * std::cos(angle) + a * std::sin(angle);
  }
  return y;
}

Vector expected(const ModelConfig& config, int64_t window, int64_t token) {
  std::vector<Vector> x(tokens);
  for (int64_t t = 0; t < tokens; ++t)
    for (int64_t i = 0; i < hidden; ++i) x[static_cast<size_t>(t)].push_back(input(t, i));
  Vector attended;
  for (int64_t head = 0; head < heads; ++head) {
    const int64_t kv = head / (heads / kv_heads);
    const Vector query = rotated(config, "q", head, token, x[static_cast<size_t>(token)]);
    Vector sum(query.size());
    double total = config.sinks ? std::exp(double{sources.at("a.sinks")(head, 0)}) : 0;
    for (int64_t t = window > 0 ? std::max<int64_t>(token + 1 - window, 0) : 0; t <= token; ++t) {
      const Vector key = rotated(config, "k", kv, t, x[static_cast<size_t>(t)]);
      double score = 0;
      for (size_t i = 0; i < key.size(); ++i) score += query[i] * key[i];
      const double share = std::exp(score / std::sqrt(static_cast<double>(config.head_dim)));
      const Vector value = product("a.v_proj", kv * config.head_dim, config.head_dim,
                                   x[static_cast<size_t>(t)], config.qkv_bias);
      for (size_t i = 0; i < sum.size(); ++i) sum[i] += share * value[i];
      total += share;
    }
    for (const double value : sum) attended.push_back(value / total);
  }
  return product("a.o_proj", 0, hidden, attended, config.o_bias);
}

// One sequence of all tokens, in the first block.
struct Batch {
  std::vector<int32_t> starts{0, tokens}, zero{0}, positions;
  AttentionBatch batch;

  Batch() {
    for (int32_t t = 0; t < tokens; ++t) positions.push_back(t);
    const auto view = [](std::vector<int32_t>& numbers) {
      return view_of(numbers.data(), DType::int32, {static_cast<int64_t>(numbers.size())});
    };
    const TensorView tables = view_of(zero.data(), DType::int32, {1, 1});
    batch = {view(starts), view(zero), view(zero), tables, view(positions), view(positions)};
  }
};

TEST(Attention, OfHeadsOfAnySizeIsThatOfHeadsWithoutPadding) {
  for (const int64_t head_dim : {2, 6, 10, 16, 24, 34})
    for (const auto& [norm, width] : {std::pair{0, 0}, {1, 0}, {2, 0}, {0, 2}, {2, 6}, {3, 0}})
      for (const int tensor : {1, 2, 4})
        for (const BackendKind kind : {BackendKind::reference, BackendKind::cpu})
          run_ranks(tensor, [&, norm = norm, width = width](World& world) {
            if (width > head_dim) return;
            ModelConfig config;
            config.hidden_size = hidden;
            config.num_heads = heads;
            config.num_kv_heads = kv_heads;
            config.head_dim = head_dim;
            config.qk_norm = norm == 1;
            config.whole_qk_norm = norm == 2;
            config.qkv_bias = norm == 0;
            config.sinks = config.o_bias = norm == 3;
            const LayerConfig layer{.window = norm == 3 ? 4 : 0};
            config.rotaries[0].width = width;
            config.rms_norm_eps = 1e-3;
            Rank rank(world, kind);
            Attention attention("a", layer, config, rank.place());
            Parameters parameters;
            attention.append_parameters(parameters);
            testing::fill(parameters, sources, *rank.backend.ops);
            const HeadLayout layout = attention.heads();
            Device& device = *rank.backend.device;
            attention.prepare(device);
            const KvLayout in_cache{layout.kv_heads, layout.key_dim, block_size, DType::fp32};
            Tensor cache(device, DType::uint8, {1, static_cast<int64_t>(in_cache.block_bytes())});
            const int64_t rotating = config.rotaries[0].width_of(head_dim),
                          padded = (rotating + 15) / 16 * 16;
            std::vector<float> angles = rotary_table(config.rotaries[0], rotating, padded, tokens), x;
            for (int64_t t = 0; t < tokens; ++t)
              for (int64_t i = 0; i < hidden; ++i) x.push_back(input(t, i));
            Batch batch;
            ForwardContext context = rank.context();
            const TensorView out = attention.forward(view_of(x.data(), DType::fp32, {tokens, hidden}),
                                                     view_of(angles.data(), DType::fp32, {tokens, padded}),
                                                     batch.batch, {cache.view(), in_cache}, context);
            for (int64_t t = 0; t < tokens; ++t) {
              const Vector exact = expected(config, layer.window, t);
              for (int64_t i = 0; i < hidden; ++i)
                EXPECT_NEAR(out.as<float>()[t * hidden + i], exact[static_cast<size_t>(i)], 2e-4)
                    << fmt::format("heads of {}, tp {}, token {}", head_dim, tensor, t);
            }
          });
}

}  // namespace
}  // namespace maniple
