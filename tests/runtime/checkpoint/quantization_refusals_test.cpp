#include <kernels/reference/rows.hpp>
// What quantised checkpoints are refused for: one message that names the field or the tensor.
#include "checkpoint_testing.hpp"

#include <layers/models/model.hpp>
#include <runtime/checkpoint/loading/known_tensors.hpp>
#include <runtime/checkpoint/loading/model_config.hpp>
#include <runtime/checkpoint/loading/weight_names.hpp>
#include <runtime/checkpoint/quantization/scheme.hpp>

#include <nlohmann/json.hpp>

#include <cmath>
#include <cstring>
#include <functional>

namespace maniple {
namespace {

TEST(QuantisationConfig, IsRefusedByFieldValueAndWhatIsRead) {
  struct Refusal {
    const char* model;  // whose quantization_config changes
    const char* pointer;
    const char* value;  // JSON; "" takes the field away
    const char* named;
    const char* supported;
  };
  const Refusal refusals[] = {
      {"q-gptq", "/quant_method", R"("aqlm")", "quant_method is \"aqlm\"", "\"gptq\", \"awq\""},
      {"q-gptq", "/bits", "3", "bits is 3", "4, 8"},
      {"q-gptq", "/bits", "", "bits is missing", ""},
      {"q-gptq", "/group_size", "0", "group_size is 0", "-1"},
      {"q-gptq", "/checkpoint_format", R"("marlin")", "checkpoint_format is \"marlin\"", "\"gptq_v2\""},
      {"q-gptq", "/dynamic", R"({"+:.*down": {"bits": 2}})", "bits is 2", "4, 8"},
      {"q-gptq", "/dynamic", R"({"-:model.(layers": {}})", "model.(layers", "at position 13"},
      {"q-awq", "/version", R"("gemv")", "version is \"gemv\"", "\"gemm\""},
      {"q-awq", "/bits", "8", "bits is 8", "4"},
      {"q-awq", "/zero_point", "false", "zero_point is false", "true"},
      {"q-awq", "/modules_to_not_convert", "[1]", "modules_to_not_convert", "names"},
      {"q-fp8-block-1layer", "/fmt", R"("e5m2")", "fmt is \"e5m2\"", "\"e4m3\""},
      {"q-fp8-block-1layer", "/scale_fmt", R"("ue5m3")", "scale_fmt is \"ue5m3\"", "\"ue8m0\""},
      {"q-fp8-block-1layer", "", R"({"quant_method": "fp8", "scale_fmt": "ue8m0"})", "scale_fmt is \"ue8m0\"",
       "weight_block_size"},
      {"q-fp8-block-1layer", "/weight_block_size", "[64,128]", "weight_block_size is [64,128]", "[128,128]"},
      {"q-fp8-block-1layer", "/activation_scheme", R"("static")", "activation_scheme is \"static\"",
       "dynamic"},
      {"q-int8", "/format", R"("marlin-24")", "format is \"marlin-24\"", "\"pack-quantized\""},
      {"q-int8", "/sparsity_config", R"({"format": "sparse-24"})", "sparsity_config", "none"},
      {"q-int8", "/ignore", R"(["re:.*[up"])", "re", "at position"},
      {"q-int8", "/config_groups/group_0/weights/num_bits", "4", "num_bits is 4", "8"},
      {"q-int8", "/config_groups/group_0/weights/strategy", R"("block")", "strategy is \"block\"",
       "\"channel\""},
      {"q-int8", "/config_groups/group_0/weights/symmetric", "false", "symmetric is false", "true"},
      {"q-int8", "/config_groups/group_0/input_activations/symmetric", "false", "symmetric is false", "true"},
      {"q-int8", "/config_groups/group_0/input_activations/dynamic", R"("local")", "dynamic is \"local\"",
       "true"},
      {"q-int8", "/config_groups/group_0/input_activations/num_bits", "4", "num_bits is 4", "8"},
      {"q-fp8-static-kv", "/kv_cache_scheme/num_bits", "4", "kv_cache_scheme.num_bits is 4", "8"},
      {"q-fp8-static-kv", "/kv_cache_scheme/type", R"("int")", "kv_cache_scheme.type is \"int\"",
       "\"float\""},
      {"q-fp8-static-kv", "/kv_cache_scheme/strategy", R"("attn_head")", "strategy is \"attn_head\"",
       "\"tensor\""},
      {"q-fp8-static-kv", "/kv_cache_scheme/dynamic", "true", "kv_cache_scheme.dynamic is true", "false"},
      {"q-fp8-static-kv", "/kv_cache_scheme/symmetric", "false", "kv_cache_scheme.symmetric is false",
       "true"},
      {"q-fp8-block-1layer", "/kv_cache_scheme", R"("dynamic")", "kv_cache_scheme is \"dynamic\"",
       "\"static\""},
      {"q-w4a16", "/config_groups/group_0/weights/num_bits", "2", "num_bits is 2", "4, 8"},
      {"q-w4a16", "/config_groups/group_0/weights/type", R"("float")", "type is \"float\"", "\"int\""},
  };
  for (const Refusal& refusal : refusals) {
    nlohmann::json config = nlohmann::json::parse(read_file(model_directory(refusal.model) / "config.json"));
    const nlohmann::json::json_pointer at("/quantization_config" + std::string(refusal.pointer));
    if (*refusal.value)
      config[at] = nlohmann::json::parse(refusal.value);
    else
      config["quantization_config"].erase(std::string(refusal.pointer).substr(1));
    const std::string message = refusal_of([&] { parse_model_config(config.dump(), "config.json"); });
    expect_contains(message, refusal.named);
    expect_contains(message, refusal.supported);
  }
}

struct DamagedCheckpoint {
  explicit DamagedCheckpoint(const char* name)
      : config(read_model_config(model_directory(name))), index(read_index(model_directory(name))) {
    read_known_tensors(index, config, *scheme_of(config));
  }
  std::string refusal() const {
    return refusal_of([&] { check_names(*make_stored_model(config, {}, index), index, *scheme_of(config)); });
  }
  IndexedTensor& tensor(const std::string& name) { return index.tensors.at("model.layers.0." + name); }
  template <typename T>
  void set(const std::string& name, size_t i, T value) {
    std::memcpy(&tensor(name).value.at(i * sizeof value), &value, sizeof value);
  }
  // Groups of inputs that lie one after the other are not kept.
  void set_groups(const std::string& name, int64_t inputs, int64_t group) {
    tensor(name).value.resize(static_cast<size_t>(inputs) * sizeof(int32_t));
    for (int64_t i = 0; i < inputs; ++i)
      set<int32_t>(name, static_cast<size_t>(i), static_cast<int32_t>(i / group));
  }
  void configure(const std::string& field, const nlohmann::json& value) {
    nlohmann::json fields = nlohmann::json::parse(config.quantization);
    fields[field] = value;
    config.quantization = fields.dump();
  }

  ModelConfig config;
  WeightIndex index;
};

TEST(QuantisedTensors, AreRefusedByTensorAndWhatTheSchemeNeeds) {
  struct Refusal {
    const char* model;
    std::function<void(DamagedCheckpoint&)> change;
    std::vector<std::string> parts;
  };
  const std::string q = "self_attn.q_proj", k = "self_attn.k_proj", layer = "model.layers.0.";
  const auto erase = [layer](const std::string& name) {
    return [layer, name](DamagedCheckpoint& c) { c.index.tensors.erase(layer + name); };
  };
  const Refusal refusals[] = {
      {"q-gptq", erase(q + ".scales"), {"lacks 1", layer + q + ".scales"}},
      {"q-gptq", erase(q + ".qzeros"), {"lacks 1", layer + q + ".qzeros"}},
      {"q-gptq", erase(q + ".qweight"), {"lacks 1", layer + q + ".qweight"}},
      {"q-gptq-act", erase(q + ".g_idx"), {"lacks 1", layer + q + ".g_idx"}},
      {"q-w4a16", erase("mlp.up_proj.weight_scale"), {"lacks 1", "mlp.up_proj.weight_scale"}},
      {"q-fp8-block-1layer", erase(q + ".weight_scale_inv"), {"lacks 1", q + ".weight_scale_inv"}},
      {"q-gptq",
       [&](DamagedCheckpoint& c) { c.tensor(q + ".scales").info.shape[0] += 1; },
       {q + ".scales", "has the shape [3, 256]", "[2, 256]"}},
      {"q-w4a16",
       [&](DamagedCheckpoint& c) {
         c.tensor(q + ".weight_shape").value.resize(2 * sizeof(int64_t));  // it follows, so it is not read
         c.set<int64_t>(q + ".weight_shape", 0, 3);
         c.set<int64_t>(q + ".weight_shape", 1, 128);
       },
       {q + ".weight_shape says [3, 128]", "[256, 128]"}},
      {"q-w4a16",
       [&](DamagedCheckpoint& c) {
         c.tensor(q + ".weight_shape").value.resize(2 * sizeof(int32_t));
         c.set<int32_t>(q + ".weight_shape", 0, 256);
         c.set<int32_t>(q + ".weight_shape", 1, 125);
       },
       {q + ".weight_shape says [256, 125]", "[256, 128]"}},
      {"q-fp8-static-kv",
       [&](DamagedCheckpoint& c) { c.set<uint16_t>(q + ".input_scale", 0, 0); },
       {q + ".input_scale is 0"}},
      {"q-int8",
       [&](DamagedCheckpoint& c) { c.tensor(q + ".weight").info.stored_type = "U8"; },
       {q + ".weight", "U8", "I8 is", "int-quantized"}},
      {"q-fp8-channel",
       [&](DamagedCheckpoint& c) { c.tensor(q + ".weight").info.stored_type = "F8_E5M2"; },
       {q + ".weight", "F8_E5M2", "F8_E4M3 is"}},
      {"q-fp8-block-1layer",
       [&](DamagedCheckpoint& c) { c.tensor(q + ".weight_scale_inv").info.stored_type = "F8_E8M0"; },
       {q + ".weight_scale_inv", "F8_E8M0", "F32"}},
      {"q-gptq-act",
       [&](DamagedCheckpoint& c) { c.set<int32_t>(q + ".g_idx", 7, 4); },
       {q + ".g_idx", "input 7 is in group 4", "4 groups of 32"}},
      {"q-gptq-act",
       [&](DamagedCheckpoint& c) { c.set<int32_t>(q + ".g_idx", 7, -3); },
       {q + ".g_idx", "input 7 is in group -3"}},
      {"q-gptq-act",
       [&](DamagedCheckpoint& c) {
         for (size_t i = 0; i < 128; ++i) c.set<int32_t>(q + ".g_idx", i, 0);
       },
       {q + ".g_idx", "gives group 0 128 inputs instead of 32"}},
      {"q-gptq-act",
       [&](DamagedCheckpoint& c) {
         for (size_t i = 0; i < 128; ++i) c.set<int32_t>(k + ".g_idx", i, static_cast<int32_t>(i / 32));
       },
       {q, k, "different ways"}},
      {"q-gptq",
       [&](DamagedCheckpoint& c) {
         std::vector<std::byte>& zeros = c.tensor(q + ".qzeros").value;
         zeros.assign(zeros.size(), std::byte{0x88});
       },
       {"version 1", "version 2", q}},
      {"q-int8",
       [&](DamagedCheckpoint& c) {
         c.index.tensors.erase(layer + k + ".weight_scale");
         c.tensor(k + ".weight") = c.index.tensors.at("model.layers.0.self_attn.k_proj.weight");
         c.tensor(k + ".weight").info.stored_type = "BF16";
         c.tensor(k + ".weight").info.dtype = DType::bf16;
       },
       {q, k, "different ways"}},
      {"q-int8",
       [&](DamagedCheckpoint& c) {
         c.configure("ignore", {"lm_head", "re:.*layers.0.self_attn.q"});
       },
       {layer + q, "re:.*layers.0.self_attn.q", "stored quantised"}},
      {"q-awq",
       [&](DamagedCheckpoint& c) { c.configure("modules_to_not_convert", {"up_proj"}); },
       {"mlp.up_proj", "\"up_proj\"", "stored quantised"}},
      {"q-moe-awq",
       erase("mlp.experts.3.up_proj.scales"),
       {"lacks 1", layer + "mlp.experts.3.up_proj.scales"}},
      {"q-moe-gptq",
       [&](DamagedCheckpoint& c) { c.tensor("block_sparse_moe.experts.2.w2.scales").info.shape[1] = 64; },
       {layer + "block_sparse_moe.experts.2.w2.scales", "has the shape [3, 64]", "[3, 128]"}},
      {"q-moe-gptq",
       [&](DamagedCheckpoint& c) {
         EXPECT_TRUE(c.tensor("block_sparse_moe.experts.1.w3.g_idx").value.empty());
         c.set_groups("block_sparse_moe.experts.1.w3.g_idx", 128, 64);
         c.set<int32_t>("block_sparse_moe.experts.1.w3.g_idx", 0, 2);
       },
       {"block_sparse_moe.experts.1.w3.g_idx", "input 0 is in group 2", "2 groups of 64"}},
      {"q-moe-gptq",
       [&](DamagedCheckpoint& c) {
         c.set_groups("block_sparse_moe.experts.1.w3.g_idx", 128, 64);
         c.set<int32_t>("block_sparse_moe.experts.1.w3.g_idx", 0, 1);
         c.set<int32_t>("block_sparse_moe.experts.1.w3.g_idx", 64, 0);
       },
       {layer + "block_sparse_moe.experts.1.w3", "desc_act", "experts"}},
      {"q-moe-gptq",
       [&](DamagedCheckpoint& c) {
         c.tensor("block_sparse_moe.experts.2.w2.scales").info.stored_type = "F32";
         c.tensor("block_sparse_moe.experts.2.w2.scales").info.dtype = DType::fp32;
       },
       {"experts.0.w2", "experts.2.w2", "different ways"}},
      {"q-moe-gptq",
       [&](DamagedCheckpoint& c) {
         c.index.tensors[layer + "block_sparse_moe.gate.qweight"] = c.tensor("block_sparse_moe.gate.weight");
         c.index.tensors.erase(layer + "block_sparse_moe.gate.weight");
       },
       {"lacks 1", "block_sparse_moe.gate.weight", "block_sparse_moe.gate.qweight"}},
  };
  for (const Refusal& refusal : refusals) {
    DamagedCheckpoint checkpoint(refusal.model);
    refusal.change(checkpoint);
    const std::string message = checkpoint.refusal();
    for (const std::string& part : refusal.parts) expect_contains(message, part);
  }
}

TEST(QuantisedTensors, AreRefusedWhereWordsWouldBeCut) {
  for (const char* model : {"q-gptq", "q-awq"}) {
    const DamagedCheckpoint checkpoint(model);
    const std::string module = "model.layers.0.self_attn.q_proj";
    expect_contains(refusal_of([&] {
                      scheme_of(checkpoint.config)->of(module, {12, 64}, &checkpoint.index);
                    }),
                    module + ": ");
  }
}

TEST(QuantisedTensors, OfExpertsAreRefusedInTwoForms) {
  DamagedCheckpoint checkpoint("tiny-qwen3-moe");
  checkpoint.index.tensors["model.layers.0.mlp.experts.gate_up_proj"] =
      checkpoint.tensor("mlp.experts.0.up_proj.weight");
  expect_contains(checkpoint.refusal(), "fused (model.layers.0.mlp.experts.gate_up_proj)");
}

TEST(QuantisedTensors, AreRefusedByTypeWhereTheConfigSaysNothingOfThem) {
  DamagedCheckpoint checkpoint("tiny-qwen3");
  checkpoint.tensor("mlp.up_proj.weight").info.stored_type = "F8_E4M3";
  const std::string message = checkpoint.refusal();
  expect_contains(message, "model.layers.0.mlp.up_proj.weight is stored as F8_E4M3");
  expect_contains(message, "BF16, F16, F32 are");
}

// Loading counts them and refuses none. Kernels have no NaN among codes: the scale of the row is NaN instead.
TEST(QuantisedTensors, KeepNumbersThatAreNoneInTheScales) {
  const DamagedCheckpoint fp8("q-fp8-channel");
  const auto stored = scheme_of(fp8.config)->of("m", {2, 4}, &fp8.index);
  const TensorInfo codes{"F8_E4M3", {}, {2, 4}, 8}, scales{"BF16", DType::bf16, {2, 1}, 4};
  const auto scales_of = [&](std::vector<std::byte> code_bytes, std::vector<std::byte> scale_bytes) {
    const StoredPart parts[] = {{&codes, {{0, 2}, {0, 4}}, code_bytes},
                                {&scales, {{0, 2}, {0, 1}}, scale_bytes}};
    DecodedRows memory;
    const RawRows raw = stored->decode({{0, 2}, {0, 4}}, parts, memory);
    return reference::read(raw.scales, 0, 2);
  };
  const std::vector<std::byte> zeros(8),
      ones{std::byte{0x80}, std::byte{0x3f}, std::byte{0x80}, std::byte{0x3f}};
  std::vector<std::byte> bad = zeros;
  bad[5] = std::byte{0xff};
  EXPECT_EQ(scales_of(bad, ones)[0], 1);
  EXPECT_TRUE(std::isnan(scales_of(bad, ones)[1]));
  bad = ones;
  bad[2] = std::byte{0xc0};
  bad[3] = std::byte{0x7f};
  EXPECT_EQ(scales_of(zeros, bad)[0], 1);
  EXPECT_TRUE(std::isnan(scales_of(zeros, bad)[1]));
}

TEST(QuantisedTensors, HaveAWarningWhereProgramsReadZeroPointsInDifferentWays) {
  const auto warning = [](const DamagedCheckpoint& c) { return scheme_of(c.config)->warning(c.index); };
  for (const char* symmetric : {"q-gptq", "q-moe-gptq", "q-awq", "q-w8a16", "tiny-qwen3"})
    EXPECT_EQ(warning(DamagedCheckpoint(symmetric)), "") << symmetric;
  DamagedCheckpoint asymmetric("q-gptq-act");
  expect_contains(warning(asymmetric), "zero points are asymmetric and stored minus one");
  asymmetric.configure("checkpoint_format", "gptq_v2");
  EXPECT_EQ(warning(asymmetric), "");
  DamagedCheckpoint one_module("q-gptq");
  one_module.tensor("mlp.up_proj.qzeros").value = {std::byte{0x77}, std::byte{0x77}, std::byte{0x77},
                                                   std::byte{0x76}};
  expect_contains(warning(one_module), "version 1 of GPTQ");
}

// Old programs store a bias of zeros beside every matrix; another bias would be lost.
TEST(QuantisedTensors, MayHaveABiasOfZerosThatTheModelHasNone) {
  DamagedCheckpoint checkpoint("q-gptq-act");
  IndexedTensor& bias = checkpoint.index.tensors["model.layers.0.self_attn.o_proj.bias"];
  bias = {{"F16", DType::fp16, {128}, 256}, {}, std::vector<std::byte>(256)};
  check_names(*make_stored_model(checkpoint.config, {}, checkpoint.index), checkpoint.index,
              *scheme_of(checkpoint.config));
  bias.value[9] = std::byte{1};
  expect_contains(checkpoint.refusal(), "no place for: model.layers.0.self_attn.o_proj.bias");
}

TEST(ModulePatterns, MatchAsTheirPublishersRead) {
  const auto matches = [](const ModulePattern& pattern, const char* module) {
    return pattern.matches(module);
  };
  const auto named = [](const char* entry) { return ModulePattern::name_class_or_regex(entry, "w"); };
  EXPECT_TRUE(matches(named("re:model.*q_proj"), "model.layers.3.self_attn.q_proj"));
  EXPECT_TRUE(matches(named("re:model.layers.3"), "model.layers.30.mlp.up_proj"))
      << "not anchored at the end";
  EXPECT_FALSE(matches(named("re:layers"), "model.layers.3")) << "anchored at the start";
  EXPECT_TRUE(matches(named("Linear"), "lm_head"));
  EXPECT_FALSE(matches(named("Linear"), "model.embed_tokens"));
  EXPECT_FALSE(matches(named("q_proj"), "model.layers.3.self_attn.q_proj")) << "names are whole";
  EXPECT_TRUE(matches(ModulePattern::part_of_name("layers.3."), "model.layers.3.mlp.up_proj"));
  EXPECT_TRUE(matches(ModulePattern::prefix_or_suffix("model.layers.3"), "model.layers.3.mlp.up_proj"));
  EXPECT_FALSE(matches(ModulePattern::prefix_or_suffix("model.layers.3"), "model.layers.30.mlp.up_proj"));
  EXPECT_TRUE(matches(ModulePattern::prefix_or_suffix("lm_head"), "lm_head"));
  EXPECT_TRUE(matches(ModulePattern::prefix_or_suffix("up_proj"), "model.layers.3.mlp.up_proj"));
  const std::string slow = refusal_of(
      [&] { matches(ModulePattern::regex("(a|aa)+$", "w"), (std::string(40, 'a') + "!").c_str()); });
  expect_contains(slow, "(a|aa)+$");
}

}  // namespace
}  // namespace maniple
