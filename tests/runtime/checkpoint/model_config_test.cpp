#include <layers/rotary.hpp>
#include <runtime/checkpoint/loading/model_config.hpp>

#include "checkpoint_testing.hpp"

#include <nlohmann/json.hpp>

namespace maniple {
namespace {

using nlohmann::json;

json config_of(std::string_view model) {
  return json::parse(read_file(model_directory(model) / "config.json"));
}
ModelConfig parse(const json& config) { return parse_model_config(config.dump(), "config.json"); }

// The config of a tiny model with the fields of a JSON merge patch changed (null: removed, as in RFC 7386).
json patched(std::string_view model, std::string_view patch) {
  json config = config_of(model);
  config.merge_patch(json::parse(patch));
  return config;
}

TEST(ModelConfig, ReadsQwen3InTheNewSchema) {
  const ModelConfig config = read_model_config(model_directory("tiny-qwen3"));
  EXPECT_EQ(config.architecture, "Qwen3ForCausalLM");
  EXPECT_EQ(config.hidden_size, 64);
  EXPECT_EQ(config.layers[0].dense_width, 160);
  EXPECT_EQ(config.num_layers(), 3);
  EXPECT_EQ(config.num_heads, 8);
  EXPECT_EQ(config.num_kv_heads, 4);
  EXPECT_EQ(config.head_dim, 32);
  EXPECT_EQ(config.vocab_size, 515);
  EXPECT_EQ(config.max_position_embeddings, 1024);
  EXPECT_EQ(config.rms_norm_eps, 1e-6);
  EXPECT_EQ(config.rotaries[0], (RotaryConfig{.theta = 1e6}));
  EXPECT_FALSE(config.tie_word_embeddings);
  EXPECT_FALSE(config.qkv_bias || config.o_bias || config.mlp_bias);
  EXPECT_TRUE(config.qk_norm);
  EXPECT_EQ(config.dtype, DType::bf16);
  EXPECT_TRUE(config.eos_token_ids.empty());
}

TEST(ModelConfig, ReadsQwen3InTheOldSchema) {
  const ModelConfig config = read_model_config(model_directory("tiny-qwen3-kv1"));
  EXPECT_EQ(config.num_kv_heads, 1);
  EXPECT_EQ(config.rotaries[0].theta, 1e6);
  EXPECT_TRUE(config.tie_word_embeddings);
  EXPECT_EQ(config.dtype, DType::bf16);
}

TEST(ModelConfig, ReadsLlamaWithItsRotaryScaling) {
  const ModelConfig config = read_model_config(model_directory("tiny-llama3"));
  const RotaryConfig expected{.type = RotaryType::llama3,
                              .theta = 500000.0,
                              .factor = 8.0,
                              .low_freq_factor = 1.0,
                              .high_freq_factor = 4.0,
                              .original_max_position_embeddings = 64};
  EXPECT_EQ(config.architecture, "LlamaForCausalLM");
  EXPECT_EQ(config.rotaries[0], expected);
  EXPECT_EQ(config.rms_norm_eps, 1e-5);
  EXPECT_FALSE(config.qk_norm);
}

TEST(ModelConfig, GivesQwen2ItsBiasAndDerivesTheHeadSize) {
  const ModelConfig config = read_model_config(model_directory("tiny-qwen2"));
  EXPECT_EQ(config.head_dim, 16);
  EXPECT_TRUE(config.qkv_bias);
  EXPECT_FALSE(config.o_bias);
  EXPECT_FALSE(config.qk_norm);
}

TEST(ModelConfig, ReadsTheDemoModelAndItsStopToken) {
  const ModelConfig config = read_model_config(model_directory("shakespeare"));
  EXPECT_EQ(config.eos_token_ids, std::vector<int32_t>{2047});
}

// Of transformers' config classes; config_defaults.py compares all of them.
TEST(ModelConfig, TakesTheDefaultsOfItsArchitectureForAbsentFields) {
  const auto bare = [](std::string_view name) { return parse({{"architectures", {name}}}); };
  EXPECT_EQ(bare("MixtralForCausalLM").rotaries[0].theta, 1e6);
  EXPECT_EQ(bare("MixtralForCausalLM").experts.count, 8);
  EXPECT_EQ(bare("MixtralForCausalLM").layers[0].window, 0);
  EXPECT_EQ(bare("MistralForCausalLM").layers[0].window, 4096);
  EXPECT_EQ(bare("MinistralForCausalLM").layers[31].window, 4096);
  EXPECT_EQ(bare("MistralForCausalLM").num_kv_heads, 8);
  EXPECT_EQ(bare("Qwen3ForCausalLM").head_dim, 128);
  EXPECT_EQ(bare("Qwen3ForCausalLM").layers[31].window, 0);
  EXPECT_EQ(bare("Qwen3MoeForCausalLM").experts.width, 768);
  EXPECT_EQ(bare("LlamaForCausalLM").num_kv_heads, 32);
  EXPECT_EQ(bare("LlamaForCausalLM").default_eos_token_id, 2);
  EXPECT_FALSE(bare("Qwen2ForCausalLM").default_eos_token_id);
}

// A null is no absent field: no window, as many KV heads as heads, no end token.
TEST(ModelConfig, TellsANullFromAnAbsentField) {
  json config = {{"architectures", {"MistralForCausalLM"}}};
  for (const char* field : {"sliding_window", "num_key_value_heads", "eos_token_id"}) config[field] = nullptr;
  const ModelConfig read = parse(config);
  EXPECT_EQ(read.layers[0].window, 0);
  EXPECT_EQ(read.num_kv_heads, 32);
  EXPECT_FALSE(read.default_eos_token_id);
  EXPECT_EQ(parse({{"architectures", {"MistralForCausalLM"}}, {"text_config", {{"sliding_window", nullptr}}}})
                .layers[0]
                .window,
            0);
}

// As transformers' modelling files and config classes decide.
TEST(ModelConfig, GivesLayersTheirWindows) {
  const char* const flagged =
      R"({"sliding_window": 64, "use_sliding_window": true, "num_hidden_layers": 4, )";
  const auto with = [&](const char* more) { return flagged + std::string(more) + "}"; };
  const auto windows = [](const char* model, const std::string& patch) {
    std::vector<int64_t> found;
    for (const LayerConfig& layer : parse(patched(model, patch)).layers) found.push_back(layer.window);
    return found;
  };
  using Windows = std::vector<int64_t>;
  EXPECT_EQ(windows("tiny-mistral", "{}"), Windows(3, 48));
  EXPECT_EQ(windows("tiny-mixtral", R"({"sliding_window": 64, "num_hidden_layers": 2})"), Windows(2, 64));
  EXPECT_EQ(windows("tiny-llama3", R"({"sliding_window": 64})"), Windows(3, 0));
  EXPECT_EQ(windows("tiny-mixtral", R"({"sliding_window": 1099511627776, "num_hidden_layers": 2})"),
            Windows(2, INT32_MAX));
  for (const char* type : {"MistralForCausalLM", "MinistralForCausalLM"})
    EXPECT_EQ(windows("tiny-mistral", fmt::format(R"({{"architectures": ["{}"], "layer_types":
                        ["sliding_attention", "full_attention", "sliding_attention"]}})",
                                                  type)),
              (Windows{48, 0, 48}));
  for (const char* qwen : {"tiny-qwen3", "tiny-qwen2"}) {
    EXPECT_EQ(windows(qwen, with(R"("layer_types": null)")), Windows(4, 0)) << "max_window_layers is 28";
    EXPECT_EQ(windows(qwen, with(R"("layer_types": null, "max_window_layers": 3)")), (Windows{0, 0, 0, 64}));
    EXPECT_EQ(windows(qwen, with(R"("max_window_layers": 0, "layer_types":
                ["full_attention", "sliding_attention", "full_attention", "full_attention"])")),
              (Windows{0, 64, 0, 0}));
  }
  EXPECT_EQ(windows("tiny-qwen3-moe", with(R"("layer_types": null, "max_window_layers": 2)")),
            Windows(4, 64));
  EXPECT_EQ(windows("tiny-qwen2-moe", with(R"("layer_types": null, "max_window_layers": 3)")),
            (Windows{64, 0, 64, 0}));
  EXPECT_EQ(windows("tiny-qwen2-moe", with(R"("layer_types": null, "max_window_layers": 2)")),
            (Windows{64, 0, 0, 0}));
}

TEST(ModelConfig, AcceptsMistralWithoutAWindow) {
  json unwindowed = config_of("tiny-mistral");
  unwindowed["sliding_window"] = nullptr;
  const ModelConfig config = parse(unwindowed);
  EXPECT_EQ(config.architecture, "MistralForCausalLM");
  EXPECT_EQ(config.dtype, DType::fp16);
  EXPECT_FALSE(config.qkv_bias);
}

TEST(ModelConfig, IgnoresTheWindowThatAQwenConfigSwitchesOff) {
  for (const char* flag : {"false", "null"})
    EXPECT_EQ(parse(patched("tiny-qwen3", fmt::format(R"({{"sliding_window": 4096, "max_window_layers": 0,
                                                          "layer_types": null, "use_sliding_window": {}}})",
                                                      flag)))
                  .layers[0]
                  .window,
              0);
}

TEST(ModelConfig, TakesAsManyKvHeadsAsHeadsWhereNoneAreGiven) {
  EXPECT_EQ(parse(patched("tiny-llama3", R"({"num_key_value_heads": null})")).num_kv_heads, 6);
}

TEST(ModelConfig, AppliesTheBiasFlagsOfLlamaToEveryProjection) {
  const ModelConfig config = parse(patched("tiny-llama3", R"({"attention_bias": true, "mlp_bias": true})"));
  EXPECT_TRUE(config.qkv_bias && config.o_bias && config.mlp_bias);
}

TEST(ModelConfig, FindsThetaInEveryPlaceItHasHad) {
  const std::string_view locations[] = {
      R"({"rope_parameters": null, "rope_theta": 12345})", R"({"rope_parameters": {"rope_theta": 12345.0}})",
      R"({"rope_parameters": {"rope_theta": 12345.0}, "rope_theta": 12345.0})",
      R"({"rope_parameters": null, "rope_scaling": {"type": "default", "rope_theta": 12345}})",
      R"({"rope_parameters": null, "rope_scaling": {"rope_type": "default"}, "rope_theta": 12345})"};
  for (const auto location : locations)
    EXPECT_EQ(parse(patched("tiny-qwen3", location)).rotaries[0].theta, 12345.0) << location;
  EXPECT_EQ(parse(patched("tiny-qwen3", R"({"rope_parameters": null})")).rotaries[0].theta, 10000.0);
}

TEST(ModelConfig, TakesAnEmptyRotaryScalingForNone) {
  EXPECT_EQ(parse(patched("tiny-llama3", R"({"rope_scaling": {}})")).rotaries[0],
            read_model_config(model_directory("tiny-llama3")).rotaries[0]);
  json old = config_of("tiny-llama3");
  old["rope_scaling"] = old["rope_parameters"];
  old["rope_parameters"] = json::object();
  EXPECT_EQ(parse(old).rotaries[0].type, RotaryType::llama3);
  old["rope_scaling"] = json::object();
  old["rope_theta"] = 12345;
  EXPECT_EQ(parse(old).rotaries[0], (RotaryConfig{.theta = 12345}));
}

TEST(ModelConfig, ReadsOldLlamaRotaryScalingAsTheNew) {
  json old = config_of("tiny-llama3");
  json scaling = old["rope_parameters"];
  old.erase("rope_parameters");
  old["rope_theta"] = scaling["rope_theta"];
  scaling.erase("rope_theta");
  scaling["type"] = scaling["rope_type"];
  scaling.erase("rope_type");
  old["rope_scaling"] = scaling;
  EXPECT_EQ(parse(old).rotaries[0], read_model_config(model_directory("tiny-llama3")).rotaries[0]);
}

TEST(ModelConfig, LooksInsideTextConfigFirst) {
  json inner = config_of("tiny-qwen3");
  inner.erase("architectures");
  inner.erase("eos_token_id");
  const json outer = {{"architectures", {"Qwen3ForCausalLM"}},
                      {"text_config", inner},
                      {"hidden_size", 99},
                      {"eos_token_id", 7}};
  const ModelConfig config = parse(outer);
  EXPECT_EQ(config.hidden_size, 64);
  EXPECT_EQ(config.eos_token_ids, std::vector<int32_t>{7});
}

TEST(ModelConfig, TakesSeveralStopTokens) {
  EXPECT_EQ(parse(patched("tiny-llama3", R"({"eos_token_id": [128001, 128008, 128009]})")).eos_token_ids,
            (std::vector<int32_t>{128001, 128008, 128009}));
}

TEST(ModelConfig, AcceptsNeutralValuesOfSettingsItDoesNotCompute) {
  EXPECT_NO_THROW(
      parse(patched("tiny-llama3", R"({"partial_rotary_factor": 1.0, "num_local_experts": 0, "logit_scale": 1,
                                                  "mlp_bias": false, "hidden_act": "silu"})")));
}

TEST(ModelConfig, ReadsTheExpertsOfQwen3Moe) {
  const ModelConfig config = read_model_config(model_directory("tiny-qwen3-moe"));
  EXPECT_EQ(config.experts.count, 8);
  EXPECT_EQ(config.experts.router.per_token, 2);
  EXPECT_EQ(config.experts.width, 48);
  EXPECT_TRUE(config.experts.router.normalise);
  EXPECT_EQ(config.experts.names, ExpertNames::qwen);
  EXPECT_EQ(config.sparse_layers(), 3);
  EXPECT_TRUE(config.qk_norm);
}

TEST(ModelConfig, ReadsTheExpertsOfMixtralAndItsHeadSizeOfNull) {
  const ModelConfig config = read_model_config(model_directory("tiny-mixtral"));
  EXPECT_EQ(config.experts.count, 8);
  EXPECT_EQ(config.experts.router.per_token, 2);
  EXPECT_EQ(config.experts.width, 112);
  EXPECT_TRUE(config.experts.router.normalise);
  EXPECT_EQ(config.experts.names, ExpertNames::mixtral);
  EXPECT_EQ(config.sparse_layers(), 2);
  EXPECT_EQ(config.head_dim, 8);
}

TEST(ModelConfig, ReadsRoutersSharedExpertsAndDenseLayers) {
  const ModelConfig glm = read_model_config(model_directory("tiny-glm4-moe"));
  EXPECT_EQ(glm.experts.router.scoring, RouterScoring::sigmoid);
  EXPECT_EQ(glm.experts.router.scale, 2.5F);
  EXPECT_EQ(glm.experts.shared_width, 48);
  EXPECT_EQ(glm.layers[0].dense_width, 160);
  EXPECT_EQ(glm.rotaries[0], (RotaryConfig{.theta = 1e5, .width = 16}));
  EXPECT_TRUE(glm.qkv_bias && glm.qk_norm && !glm.o_bias);
  EXPECT_EQ(experts_text(glm), "8, 3 a token, 1 shared; first layer dense");
  const ModelConfig groups = parse(patched(
      "tiny-glm4-moe",
      R"({"n_group": 4, "topk_group": 2, "first_k_dense_replace": 2, "n_shared_experts": 2, "use_qk_norm": null})"));
  EXPECT_EQ(experts_text(groups), "8 in 4 groups (2 kept), 3 a token, 2 shared; first 2 layers dense");
  EXPECT_EQ(groups.experts.router.group_score, GroupScore::top2);
  EXPECT_FALSE(groups.qk_norm);
  const ModelConfig hunyuan = read_model_config(model_directory("tiny-hy3"));
  EXPECT_EQ(hunyuan.experts.router.scale, 2.826F);
  EXPECT_EQ(hunyuan.experts.names, ExpertNames::hunyuan);
  EXPECT_EQ(hunyuan.sparse_layers(), 2);
  const ModelConfig minimax = read_model_config(model_directory("tiny-minimax-m2"));
  EXPECT_TRUE(minimax.whole_qk_norm && minimax.experts.router.normalise);
  EXPECT_EQ(minimax.experts.router.epsilon, 0);
  EXPECT_EQ(minimax.rotaries[0].width, 16);
  EXPECT_EQ(experts_text(minimax), "8, 2 a token");
  const ModelConfig qwen2 = read_model_config(model_directory("tiny-qwen2-moe"));
  EXPECT_EQ(qwen2.experts.shared_width, 72);
  EXPECT_FALSE(qwen2.experts.router.normalise);
  EXPECT_TRUE(qwen2.qkv_bias);
  EXPECT_EQ(experts_text(qwen2), "8, 3 a token, 1 shared of width 72");
}

TEST(ModelConfig, ReadsLatentAttention) {
  const ModelConfig v3 =
      parse_model_config(R"({"architectures": ["DeepseekV3ForCausalLM"], "num_nextn_predict_layers": 1,
    "rope_scaling": {"type": "yarn", "factor": 40, "beta_fast": 32, "beta_slow": 1, "mscale": 1.0, "mscale_all_dim": 1.0,
                     "original_max_position_embeddings": 4096}, "max_position_embeddings": 163840})",
                         "config.json");
  EXPECT_EQ(v3.latent->row_lanes(), 576);
  EXPECT_EQ(v3.num_kv_heads, 1);
  EXPECT_EQ(v3.attention_width(), 128 * 128);
  EXPECT_NEAR(latent_score_factor(v3.rotaries[0]), std::pow(0.1 * std::log(40.0) + 1, 2), 1e-12);
  EXPECT_EQ(experts_text(v3), "256 in 8 groups (4 kept), 8 a token, 1 shared; first 3 layers dense");
  EXPECT_EQ(latent_text(v3, DType::bf16),
            "latent, 576 lanes a token and layer (68.6 KiB a token, 1/3.5 of 8 KV heads of 128)");
  const ModelConfig v2 = read_model_config(model_directory("tiny-deepseek-v2-lite"));
  EXPECT_EQ(v2.latent->query_rank, 0);
  EXPECT_EQ(v2.experts.router.scoring, RouterScoring::softmax);
  EXPECT_EQ(experts_text(v2), "8, 3 a token, 2 shared; first layer dense");
  const ModelConfig glm = read_model_config(model_directory("tiny-glm4-moe-lite"));
  EXPECT_EQ(latent_score_factor(glm.rotaries[0]), 1);
  EXPECT_EQ(glm.experts.router.scale, 1.8F);
  EXPECT_EQ(glm.index_topk, 0);
}

TEST(ModelConfig, ReadsSparseAttentionAsLatent) {
  const ModelConfig v32 = parse_model_config(
      R"({"architectures": ["DeepseekV32ForCausalLM"], "num_hidden_layers": 2, "index_topk": 512,
    "layer_types": ["deepseek_sparse_attention", "deepseek_sparse_attention"], "mlp_layer_types": ["dense", "sparse"]})",
      "config.json");
  EXPECT_EQ(v32.index_topk, 512);
  EXPECT_EQ(v32.latent->row_lanes(), 576);
  EXPECT_EQ(experts_text(v32), "256 in 8 groups (4 kept), 8 a token, 1 shared; first layer dense");
  const ModelConfig glm5 =
      parse_model_config(R"({"architectures": ["GlmMoeDsaForCausalLM"]})", "config.json");
  EXPECT_EQ(glm5.index_topk, 2048);
  EXPECT_EQ(glm5.latent->query_rank, 2048);
  EXPECT_EQ(glm5.attention_width(), 64 * 256);
  EXPECT_EQ(experts_text(glm5), "256, 8 a token, 1 shared; first 3 layers dense");
  EXPECT_TRUE(latent_text(glm5, DType::bf16).starts_with("latent, 576 lanes a token and layer (87.8 KiB"));
}

TEST(ModelConfig, ReadsTheFieldsOfYarn) {
  const RotaryConfig rotary = parse(patched("tiny-qwen3", R"({"rope_parameters": {"rope_type": "yarn",
      "original_max_position_embeddings": 64, "beta_fast": 16, "mscale": 0.5, "mscale_all_dim": 0.25, "truncate": false,
      "attention_factor": 1.5}})"))
                                  .rotaries[0];
  EXPECT_EQ(rotary.type, RotaryType::yarn);
  EXPECT_EQ(rotary.factor, parse(config_of("tiny-qwen3")).max_position_embeddings / 64.0);
  EXPECT_EQ(rotary.beta_fast, 16);
  EXPECT_EQ(rotary.beta_slow, 1);
  EXPECT_EQ(rotary.mscale_all_dim, 0.25);
  EXPECT_EQ(rotary.attention_factor, 1.5);
  EXPECT_FALSE(rotary.truncate);
}

TEST(ModelConfig, ReadsGptOss) {
  const ModelConfig tiny = read_model_config(model_directory("tiny-gpt-oss"));
  EXPECT_EQ(tiny.gate, (GateActivation{.limit = 7, .alpha = 1.702F}));
  EXPECT_TRUE(tiny.sinks && tiny.qkv_bias && tiny.o_bias && tiny.experts.transposed);
  EXPECT_TRUE(tiny.experts.router.normalise);
  EXPECT_EQ(tiny.experts.names, ExpertNames::gpt_oss);
  for (size_t layer = 0; layer < 4; ++layer) EXPECT_EQ(tiny.layers[layer].window, layer % 2 == 0 ? 24 : 0);
  const ModelConfig absent =
      parse(json::parse(R"({"architectures": ["GptOssForCausalLM"], "num_hidden_layers": 3})"));
  EXPECT_EQ(absent.rotaries[0], (RotaryConfig{.type = RotaryType::yarn,
                                              .theta = 150000,
                                              .factor = 32,
                                              .original_max_position_embeddings = 4096,
                                              .truncate = false}));
  EXPECT_EQ(absent.layers[2].window, 128);
  EXPECT_EQ(absent.layers[1].window, 0);
  EXPECT_TRUE(absent.o_bias);
  EXPECT_EQ(experts_text(absent), "128, 4 a token");
  const ModelConfig other = parse(patched(
      "tiny-gpt-oss",
      R"({"swiglu_limit": 5, "swiglu_alpha": 1.5, "attention_bias": false, "layer_types": ["full_attention",
"sliding_attention", "full_attention", "full_attention"], "rope_parameters": {"rope_type": "default"}})"));
  EXPECT_EQ(other.gate, (GateActivation{.limit = 5, .alpha = 1.5F}));
  EXPECT_FALSE(other.qkv_bias || other.o_bias);
  EXPECT_EQ(other.layers[0].window, 0);
  EXPECT_EQ(other.layers[1].window, 24);
  json without = patched("tiny-gpt-oss", R"({"layer_types": null})");
  without["sliding_window"] = nullptr;
  EXPECT_EQ(parse(without).layers[0].window, 0);
}

TEST(ModelConfig, CountsExpertsByEitherNameAndFillsInDefaults) {
  const auto experts = [](std::string_view patch) { return parse(patched("tiny-qwen3-moe", patch)).experts; };
  EXPECT_EQ(experts(R"({"num_experts": 8})").count, 8);
  EXPECT_EQ(experts(R"({"num_experts": 60, "num_local_experts": null, "num_experts_per_tok": null})")
                .router.per_token,
            8);
  EXPECT_EQ(experts(R"({"num_local_experts": null})").count, 128);
  EXPECT_FALSE(experts(R"({"norm_topk_prob": null})").router.normalise);
  EXPECT_EQ(parse(patched("tiny-qwen3-moe", R"({"decoder_sparse_step": null, "mlp_only_layers": null})"))
                .sparse_layers(),
            3);
  EXPECT_EQ(experts(R"({"num_local_experts": 0})").count, 0);
}

TEST(ModelConfig, KnowsWhichLayersAreSparse) {
  const ModelConfig config = parse(patched(
      "tiny-qwen3-moe", R"({"num_hidden_layers": 9, "decoder_sparse_step": 2, "mlp_only_layers": [3, 4]})"));
  std::vector<int64_t> sparse;
  for (int64_t layer = 0; layer < config.num_layers(); ++layer)
    if (config.layers[static_cast<size_t>(layer)].is_sparse()) sparse.push_back(layer);
  EXPECT_EQ(sparse, (std::vector<int64_t>{1, 5, 7}));
}

struct Refusal {
  std::string_view model;
  std::string_view patch;
  std::string_view named;      // the field that the message names
  std::string_view otherwise;  // and what else it says
};

TEST(ModelConfig, RefusesByNameWhatItCannotCompute) {
  const Refusal refusals[] = {
      {"tiny-qwen3", R"({"architectures": ["GPT2LMHeadModel"]})", "architectures", "Qwen3ForCausalLM"},
      {"tiny-qwen3", R"({"architectures": []})", "architectures", "[]"},
      {"tiny-qwen3", R"({"architectures": null})", "architectures", "missing"},
      {"tiny-qwen3", R"({"architectures": [3]})", "architectures", "[3]"},
      {"tiny-qwen3", R"({"architectures": "Qwen3ForCausalLM"})", "architectures", "[\"Qwen3ForCausalLM\"]"},
      {"tiny-qwen3", R"({"text_config": 1})", "text_config", "not a JSON object"},
      {"tiny-qwen3", R"({"hidden_act": "gelu"})", "hidden_act", "silu"},
      {"tiny-qwen3", R"({"swiglu_limit": 7.0})", "swiglu_limit", "none"},
      {"tiny-gpt-oss", R"({"swiglu_limit": 0})", "swiglu_limit", "0"},
      {"tiny-gpt-oss", R"({"layer_types": ["sliding_attention"]})", "layer_types", "4 layers"},
      {"tiny-qwen3", R"({"rope_parameters": {"rope_type": "su", "factor": 4.0}})",
       "rope_parameters.rope_type", "yarn"},
      {"tiny-qwen3", R"({"rope_parameters": {"rope_type": "yarn", "factor": 4.0, "mscale": 1.0}})",
       "rope_parameters.mscale_all_dim", "both or none"},
      {"tiny-qwen3", R"({"rope_parameters": {"rope_type": "yarn", "factor": 4.0, "mscale_all_dim": 1.0}})",
       "rope_parameters.mscale", "both or none"},
      {"tiny-qwen3", R"({"rope_parameters": {"rope_type": "yarn", "factor": 0.5}})", "rope_parameters.factor",
       "0.5"},
      {"tiny-qwen3", R"({"rope_parameters": {"rope_type": "yarn", "factor": 4, "beta_fast": 0.5}})",
       "rope_parameters.beta_fast", "beta_slow (1)"},
      {"tiny-deepseek-v3", R"({"qk_rope_head_dim": 15})", "qk_rope_head_dim", "even"},
      {"tiny-deepseek-v3", R"({"kv_lora_rank": 1020})", "kv_lora_rank", "1024 lanes"},
      {"tiny-deepseek-v3", R"({"layer_types": ["deepseek_sparse_attention"]})", "layer_types",
       "full_attention"},
      {"tiny-deepseek-v3", R"({"architectures": ["DeepseekV32ForCausalLM"], "rope_interleave": false})",
       "rope_interleave", "true"},
      {"tiny-deepseek-v2-lite", R"({"norm_topk_prob": true})", "norm_topk_prob", "false"},
      {"tiny-deepseek-v2-lite", R"({"topk_method": "group_limited_greedy", "n_group": null})", "n_group",
       "a number"},
      {"tiny-deepseek-v2-lite", R"({"num_experts_per_tok": null})", "num_experts_per_tok", ""},
      {"tiny-glm4-moe", R"({"n_group": 3})", "n_group is 3", "a divisor of the 8 experts"},
      {"tiny-glm4-moe", R"({"n_group": 8})", "n_group is 8", "2 or more in a group"},
      {"tiny-glm4-moe", R"({"n_group": 4, "topk_group": 5})", "topk_group is 5", "1 to 4"},
      {"tiny-glm4-moe", R"({"n_group": 4, "topk_group": 1})", "num_experts_per_tok is 3", "1 to 2"},
      {"tiny-glm4-moe", R"({"scoring_func": "tanh"})", "scoring_func", "sigmoid"},
      {"tiny-glm4-moe", R"({"topk_method": "best"})", "topk_method", "noaux_tc"},
      {"tiny-glm4-moe", R"({"moe_layer_freq": 2})", "moe_layer_freq", "2"},
      {"tiny-glm4-moe", R"({"rope_parameters": {"partial_rotary_factor": 0.03}})", "partial_rotary_factor",
       "32 lanes"},
      {"tiny-hy3", R"({"mlp_layer_types": ["dense", "sparse"]})", "mlp_layer_types", "each of 3 layers"},
      {"tiny-hy3", R"({"mlp_layer_types": ["dense", "sparse", "none"]})", "mlp_layer_types", "\"dense\""},
      {"tiny-minimax-m2", R"({"rotary_dim": 15})", "rotary_dim is 15", "32 lanes"},
      {"tiny-minimax-m2", R"({"shared_intermediate_size": 64})", "shared_intermediate_size", "64"},
      {"tiny-qwen3", R"({"rope_scaling": {"type": "linear", "factor": 4.0}})", "rope_scaling.type", "linear"},
      {"tiny-qwen3", R"({"rope_scaling": {"rope_type": "dynamic"}})", "rope_scaling.rope_type", "dynamic"},
      {"tiny-qwen3", R"({"rope_scaling": {"rope_type": "longrope"}})", "rope_scaling.rope_type", "llama3"},
      {"tiny-qwen3", R"({"rope_scaling": {"type": "mrope", "mrope_section": [1, 2]}})",
       "rope_scaling.mrope_section", ""},
      {"tiny-qwen3", R"({"rope_scaling": {"factor": 2.0}})", "rope_scaling.rope_type", "missing"},
      {"tiny-qwen3", R"({"rope_scaling": "llama3"})", "rope_scaling", "not a JSON object"},
      {"tiny-qwen3", R"({"rope_parameters": {"full_attention": {"rope_theta": 1.0}}})", "full_attention", ""},
      {"tiny-qwen3", R"({"rope_theta": 5.0})", "rope_parameters.rope_theta", "5"},
      {"tiny-qwen3", R"({"rope_parameters": null, "rope_theta": 0})", "rope_theta", "0"},
      {"tiny-llama3", R"({"rope_parameters": {"factor": null}})", "rope_parameters.factor", "missing"},
      {"tiny-llama3", R"({"rope_parameters": {"factor": 0.5}})", "rope_parameters.factor", "0.5"},
      {"tiny-llama3", R"({"rope_parameters": {"high_freq_factor": 1.0}})", "high_freq_factor",
       "low_freq_factor"},
      {"tiny-llama3", R"({"rope_parameters": {"original_max_position_embeddings": 0}})", "original_max", "0"},
      {"tiny-llama3", R"({"rope_scaling": {"rope_type": "default"}})", "rope_scaling", "rope_parameters"},
      {"tiny-llama3", R"({"rope_parameters": {"partial_rotary_factor": 0.5}})",
       "rope_parameters.partial_rotary_factor", "0.5"},
      {"tiny-llama3", R"({"partial_rotary_factor": 0.25})", "partial_rotary_factor", "0.25"},
      {"tiny-mistral", R"({"sliding_window": 0})", "sliding_window", "0"},
      {"tiny-mistral", R"({"sliding_window": "48"})", "sliding_window", "48"},
      {"tiny-qwen3", R"({"layer_types": ["full_attention", "chunked_attention"]})", "layer_types",
       "chunked_attention"},
      {"tiny-qwen3", R"({"layer_types": ["full_attention", "sliding_attention"]})", "layer_types",
       "sliding_attention"},
      {"tiny-qwen3", R"({"layer_types": "full_attention"})", "layer_types", "full_attention"},
      {"tiny-qwen3", R"({"num_experts": 128})", "num_experts", "128"},
      {"tiny-qwen3", R"({"num_local_experts": 8})", "num_local_experts", "8"},
      {"tiny-qwen3", R"({"num_local_experts": "8"})", "num_local_experts", "8"},
      {"tiny-qwen3-moe", R"({"num_local_experts": 4097})", "num_local_experts is 4097", "4096"},
      {"tiny-qwen3-moe", R"({"num_local_experts": 20, "num_hidden_layers": 10000})",
       "num_local_experts is 20", "13"},
      {"tiny-qwen3-moe", R"({"num_experts_per_tok": 9})", "num_experts_per_tok is 9", "1 to 8"},
      {"tiny-qwen3-moe", R"({"num_experts_per_tok": 0})", "num_experts_per_tok", "0"},
      {"tiny-qwen3-moe", R"({"decoder_sparse_step": 0})", "decoder_sparse_step is 0", "from 1"},
      {"tiny-qwen3-moe", R"({"mlp_only_layers": [99]})", "mlp_only_layers is [99]", "layers of 0 to 2"},
      {"tiny-qwen3-moe", R"({"mlp_only_layers": [-1]})", "mlp_only_layers", "[-1]"},
      {"tiny-qwen3-moe", R"({"num_experts": 16})", "num_experts is 16", "num_local_experts says (8)"},
      {"tiny-qwen3-moe", R"({"quantization_config": {"quant_method": "nvfp4"}})",
       "quantization_config.quant_method is \"nvfp4\"", "\"mxfp4\""},
      {"tiny-qwen3-moe", R"({"shared_expert_intermediate_size": 64})", "shared_expert_intermediate_size",
       "64"},
      {"tiny-mixtral", R"({"num_local_experts": 0})", "num_local_experts", "0"},
      {"tiny-mixtral", R"({"num_experts_per_tok": 9})", "num_experts_per_tok is 9", "1 to 8"},
      {"tiny-mixtral", R"({"head_dim": 7})", "head_dim", "7"},
      {"tiny-qwen3", R"({"quantization_config": {"quant_method": "bitsandbytes"}})",
       "quantization_config.quant_method is \"bitsandbytes\"",
       "\"gptq\", \"awq\", \"compressed-tensors\", \"fp8\""},
      {"tiny-qwen3", R"({"quantization_config": {"bits": 4}})", "quantization_config.quant_method",
       "missing"},
      {"tiny-llama3", R"({"attention_multiplier": 0.1})", "attention_multiplier", "0.1"},
      {"tiny-llama3", R"({"logit_scale": 0.5})", "logit_scale", "0.5"},
      {"tiny-llama3", R"({"final_logit_softcapping": 30.0})", "final_logit_softcapping", "30"},
      {"tiny-llama3", R"({"residual_multiplier": 0.22})", "residual_multiplier", "0.22"},
      {"tiny-llama3", R"({"embedding_multiplier": 12})", "embedding_multiplier", "12"},
      {"tiny-mistral", R"({"attention_bias": true})", "attention_bias", "false"},
      {"tiny-qwen3", R"({"mlp_bias": true})", "mlp_bias", "false"},
      {"tiny-qwen3", R"({"dtype": "float8_e4m3fn"})", "dtype", "bfloat16"},
      {"tiny-qwen2", R"({"torch_dtype": "int8"})", "torch_dtype", "int8"},
      {"tiny-qwen3", R"({"rms_norm_eps": 0})", "rms_norm_eps", "0"},
      {"tiny-qwen3", R"({"rms_norm_eps": "NaN"})", "rms_norm_eps", "NaN"},
      {"tiny-qwen3", R"({"hidden_size": "64"})", "hidden_size", "\"64\""},
      {"tiny-qwen3", R"({"hidden_size": 64.5})", "hidden_size", "64.5"},
      {"tiny-qwen3", R"({"hidden_size": 0})", "hidden_size", "0"},
      {"tiny-qwen3", R"({"hidden_size": -64})", "hidden_size", "-64"},
      {"tiny-qwen3", R"({"vocab_size": 9223372036854775808})", "vocab_size", "9223372036854775808"},
      {"tiny-qwen3", R"({"vocab_size": 18446744073709551615})", "vocab_size", "18446744073709551615"},
      {"tiny-qwen3", R"({"vocab_size": 1e30})", "vocab_size", "1e+30"},
      {"tiny-qwen3", R"({"num_hidden_layers": 1000000})", "num_hidden_layers", "1000000"},
      {"tiny-qwen3", R"({"num_key_value_heads": 3})", "num_key_value_heads", "(8)"},
      {"tiny-qwen3", R"({"num_key_value_heads": 16})", "num_key_value_heads", "16"},
      {"tiny-qwen3", R"({"head_dim": 33})", "head_dim", "33"},
      {"tiny-qwen2", R"({"num_attention_heads": 6})", "head_dim", "(128)"},
      {"tiny-qwen3", R"({"tie_word_embeddings": "yes"})", "tie_word_embeddings", "yes"},
      {"tiny-qwen3", R"({"eos_token_id": "</s>"})", "eos_token_id", "</s>"},
      {"tiny-qwen3", R"({"eos_token_id": [1, -1]})", "eos_token_id", "-1"},
      {"tiny-qwen3", R"({"eos_token_id": 4294967296})", "eos_token_id", "4294967296"},
  };
  for (const Refusal& refusal : refusals) {
    SCOPED_TRACE(refusal.patch);
    const std::string message = input_error_of([&] { parse(patched(refusal.model, refusal.patch)); });
    expect_contains(message, "config.json: ");
    expect_contains(message, std::string(refusal.named));
    expect_contains(message, std::string(refusal.otherwise));
  }
}

TEST(ModelConfig, RefusesWhatIsNotAJsonObject) {
  const std::string deep(100'000'000, '[');
  const std::string_view texts[] = {"",
                                    "[]",
                                    "3",
                                    "null",
                                    "{",
                                    R"({"a": 1, "a": 2})",
                                    R"({"rms_norm_eps": NaN})",
                                    "\xff\xfe",
                                    "{\"\xc3\x28\": 1}",
                                    R"({"rms_norm_eps": 1e999})",
                                    deep};
  for (const auto text : texts) {
    SCOPED_TRACE(std::string(text.substr(0, 40)));
    expect_contains(input_error_of([&] { parse_model_config(text, "here/config.json"); }),
                    "here/config.json: ");
  }
}

TEST(ModelConfig, ExplainsAMissingDirectoryOrFile) {
  const TempDirectory directory;
  expect_contains(input_error_of([&] { read_model_config(directory.path()); }), "config.json");
  try {
    read_model_config(std::filesystem::path("Qwen/Qwen3-0.6B"));
    FAIL();
  } catch (const Error& error) {
    expect_contains(error.what(), "Qwen/Qwen3-0.6B does not exist");
    expect_contains(error.why(), "local directories");
    EXPECT_FALSE(error.remedy().empty());
  }
}

}  // namespace
}  // namespace maniple
