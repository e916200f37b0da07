#include "checkpoint_testing.hpp"

#include <layers/models/model.hpp>
#include <runtime/checkpoint/loading/known_tensors.hpp>
#include <runtime/checkpoint/loading/kv_scales.hpp>
#include <runtime/checkpoint/loading/model_config.hpp>
#include <runtime/checkpoint/loading/weight_names.hpp>

#include <cstring>

namespace maniple {
namespace {

constexpr const char* attention = "model.layers.0.self_attn.";

struct Checkpoint {
  explicit Checkpoint(const char* model)
      : config(read_model_config(model_directory(model))),
        scheme(scheme_of(config)),
        index(read_index(model_directory(model))) {
    read_known_tensors(index, config, *scheme_of(config));
  }
  void add(const std::string& name, float value, std::vector<int64_t> shape = {1}) {
    IndexedTensor& tensor = index.tensors[name];
    tensor = {{"F32", DType::fp32, std::move(shape), sizeof value}, {}, std::vector<std::byte>(sizeof value)};
    std::memcpy(tensor.value.data(), &value, sizeof value);
  }
  std::vector<KvScales> scales(IndexRange layers = {0, 1}) const {
    return kv_scales_of(index, *scheme, layers);
  }
  std::string refusal() const {
    return refusal_of([this] { scales(); });
  }
  void check() const { check_names(*make_stored_model(config, {}, index), index, *scheme); }

  ModelConfig config;
  std::unique_ptr<const QuantScheme> scheme;
  WeightIndex index;
};

TEST(KvScales, AreReadOfEachLayer) {
  const Checkpoint checkpoint("q-fp8-static-kv");
  EXPECT_TRUE(checkpoint.scheme->keeps_fp8_kv());
  checkpoint.check();
  const std::vector<KvScales> scales = checkpoint.scales({0, 2}), second = checkpoint.scales({1, 2});
  ASSERT_EQ(scales.size(), 2U);
  ASSERT_EQ(second.size(), 1U);
  for (size_t layer = 0; layer < 2; ++layer) {  // as make_quantised.py has them, in bf16
    const auto in_bf16 = [&](double value) {
      return static_cast<float>(BFloat16(static_cast<float>(value)));
    };
    EXPECT_EQ(scales[layer].key, in_bf16(0.021 + 0.004 * static_cast<double>(layer)));
    EXPECT_EQ(scales[layer].value, in_bf16(0.008 + 0.002 * static_cast<double>(layer)));
  }
  EXPECT_EQ(second[0].key, scales[1].key);
  EXPECT_EQ(second[0].value, scales[1].value);
}

TEST(KvScales, AreReadUnderEveryName) {
  const std::pair<const char*, const char*> names[] = {{"k_scale", "v_scale"},
                                                       {"attn.k_scale", "attn.v_scale"},
                                                       {"k_proj.k_scale", "v_proj.v_scale"},
                                                       {"k_proj.output_scale", "v_proj.output_scale"},
                                                       {"kv_scale", "kv_scale"}};
  for (const auto& [key, value] : names)
    for (const std::vector<int64_t>& shape : {std::vector<int64_t>{}, {1}, {1, 1}}) {
      Checkpoint checkpoint("tiny-qwen3");
      EXPECT_TRUE(checkpoint.scales().empty());
      checkpoint.add(std::string(attention) + key, 0.5F, shape);
      checkpoint.add(std::string(attention) + value, 0.25F, shape);
      checkpoint.check();
      const std::vector<KvScales> scales = checkpoint.scales();
      ASSERT_EQ(scales.size(), 1U) << key;
      EXPECT_EQ(scales[0].key, std::string_view(key) == value ? 0.25F : 0.5F) << key;
      EXPECT_EQ(scales[0].value, 0.25F) << value;
    }
  EXPECT_FALSE(is_kv_scale("model.layers.0.self_attn.q_proj.output_scale"));
  EXPECT_FALSE(is_kv_scale("model.layers.0.mlp.k_scale"));
}

TEST(KvScales, AreRefusedByTensor) {
  const std::string key = std::string(attention) + "k_scale", value = std::string(attention) + "v_scale";
  for (const float wrong : {0.0F, -1.0F}) {
    Checkpoint checkpoint("q-fp8-static-kv");
    checkpoint.add(value, wrong);
    expect_contains(checkpoint.refusal(), fmt::format("tensor {} holds {}", value, wrong));
  }
  Checkpoint missing("q-fp8-static-kv");
  missing.index.tensors.erase(key);
  expect_contains(missing.refusal(), "lacks a scale of the KV cache: " + key);
  Checkpoint half("tiny-qwen3");
  half.add(key, 1);
  expect_contains(half.refusal(), "lacks a scale of the KV cache: " + value);
  half.add(value, 1);
  expect_contains(input_error_of([&] { half.scales({0, 2}); }), "model.layers.1.self_attn.k_scale");
  Checkpoint list("q-fp8-static-kv");
  list.index.tensors.at(key).info.shape = {2};
  expect_contains(list.refusal(), key + " is stored as BF16 of shape [2]");
  Checkpoint integer("q-fp8-static-kv");
  integer.index.tensors.at(key).info = {"I64", {}, {1}, 8};
  expect_contains(integer.refusal(), key + " is stored as I64");
}

}  // namespace
}  // namespace maniple
