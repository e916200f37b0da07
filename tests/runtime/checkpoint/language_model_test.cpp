// The language model inside a larger checkpoint: config.json, names, what is left out; and models that are refused by name.
#include <gtest/gtest.h>
#include <runtime/checkpoint/loading/known_tensors.hpp>
#include <runtime/checkpoint/loading/language_model.hpp>
#include <runtime/checkpoint/loading/model_config.hpp>
#include <runtime/checkpoint/loading/refused_models.hpp>
#include <runtime/checkpoint/loading/weight_names.hpp>
#include <support/wrapped_checkpoint.hpp>

#include "checkpoint_testing.hpp"

namespace maniple {
namespace {

using nlohmann::json;

ModelConfig parsed(const json& config) { return parse_model_config(config.dump(), "config.json"); }

json wrapped_config(const char* model, const char* wrapper) {
  json inner = json::parse(read_file(model_directory(model) / "config.json"));
  inner.erase("architectures");
  return {{"architectures", {wrapper}}, {"model_type", "some_wrapper"}, {"text_config", inner}};
}

TEST(LanguageModelConfig, OfEveryWrapperIsThatOfItsModelType) {
  for (const char* wrapper : {"Gemma3ForConditionalGeneration", "Gemma4ForConditionalGeneration",
                              "Mistral3ForConditionalGeneration", "KimiK25ForConditionalGeneration"})
    for (const char* model :
         {"tiny-llama3", "tiny-mistral", "tiny-qwen2", "tiny-qwen3-moe", "tiny-mixtral"}) {
      const ModelConfig plain = read_model_config(model_directory(model)),
                        inner = parsed(wrapped_config(model, wrapper));
      EXPECT_EQ(inner.architecture, plain.architecture);
      EXPECT_EQ(inner.hidden_size, plain.hidden_size);
      EXPECT_EQ(inner.eos_token_ids, plain.eos_token_ids);
    }
  json config = wrapped_config("tiny-llama3", "Mistral3ForConditionalGeneration");
  config["text_config"]["model_type"] = "clip";
  const std::string message = input_error_of([&] { parsed(config); });
  expect_contains(message, "model_type is \"clip\"");
  expect_contains(message, "\"mistral\"");
}

TEST(LanguageModelConfig, EndsAtTheIdsOfBothLevels) {
  json config = wrapped_config("tiny-llama3", "Gemma3ForConditionalGeneration");
  config["text_config"]["eos_token_id"] = 1;
  config["eos_token_id"] = {1, 106};
  EXPECT_EQ(parsed(config).eos_token_ids, (std::vector<int32_t>{1, 106}));
  config["text_config"]["eos_token_id"] = {7, 1};
  EXPECT_EQ(parsed(config).eos_token_ids, (std::vector<int32_t>{1, 106, 7}));
}

WeightIndex index_of(const std::vector<const char*>& names) {
  WeightIndex index;
  for (const char* name : names) index.tensors[name].info = {"BF16", DType::bf16, {4}, 8};
  return index;
}

std::vector<std::string> kept(const std::vector<const char*>& names, const ModelConfig& config) {
  WeightIndex index = index_of(names);
  keep_language_model(index, config);
  std::vector<std::string> left;
  for (const auto& [name, tensor] : index.tensors) left.push_back(name);
  return left;
}

TEST(LanguageModel, IsWhatIsLeftOfTowersPredictionsAndIndexers) {
  ModelConfig config;
  config.layers.resize(2);
  config.index_topk = 2048;
  WeightIndex index =
      index_of({"model.visual.patch.weight", "visual.a", "mm_projector.b", "vision_tower.c",
                "multi_modal_projector.d", "model.vision_tower.e", "mtp.fc", "model.layers.2.eh_proj.weight",
                "model.layers.2.mlp.up_proj.weight", "model.layers.1.self_attn.indexer.wk.weight",
                "model.layers.1.mlp.up_proj.weight", "model.norm.weight"});
  keep_language_model(index, config);
  EXPECT_EQ(
      index.left_out,
      "6 tensors (48 B) of a tower for images, 3 tensors (24 B) of layers that predict further tokens, 1 "
      "tensor (8 B) of an indexer of sparse attention");
  EXPECT_EQ(index.tensors.size(), 2u);
}

// A config.json with too few layers is not taken for one.
TEST(LanguageModel, KeepsLayersThatNobodySaysArePredictions) {
  ModelConfig config;
  config.layers.resize(2);
  const std::vector<const char*> names{"model.layers.0.self_attn.indexer.wk.weight", "model.layers.2.norm"};
  EXPECT_EQ(kept(names, config).size(), 2u);
  config.prediction_layers = 1;
  EXPECT_EQ(kept(names, config).size(), 1u);
}

TEST(LanguageModel, HasItsPlainNamesUnderEveryPrefix) {
  const ModelConfig config;
  EXPECT_EQ(kept({"language_model.model.norm.weight", "language_model.lm_head.weight"}, config),
            (std::vector<std::string>{"lm_head.weight", "model.norm.weight"}));
  EXPECT_EQ(kept({"model.language_model.norm.weight", "lm_head.weight"}, config),
            (std::vector<std::string>{"lm_head.weight", "model.norm.weight"}));
  EXPECT_EQ(kept({"language_model.lm_head.weight_scale"}, config),
            std::vector<std::string>{"lm_head.weight_scale"});
  WeightIndex twice = index_of({"model.norm.weight", "language_model.model.norm.weight"});
  expect_contains(input_error_of([&] { keep_language_model(twice, config); }), "one tensor");
}

TEST(ModulePattern, MeansModulesAsAWrapperStoresThemToo) {
  const auto matches = [](const ModulePattern& pattern, const char* module) {
    return pattern.matches(module);
  };
  const auto name = [](const char* entry) {
    return ModulePattern::name_class_or_regex(entry, "config.json");
  };
  EXPECT_TRUE(matches(name("language_model.lm_head"), "lm_head"));
  EXPECT_TRUE(matches(name("language_model.model.layers.0.mlp.gate"), "model.layers.0.mlp.gate"));
  EXPECT_TRUE(matches(name("model.language_model.layers.0.mlp.gate"), "model.layers.0.mlp.gate"));
  EXPECT_TRUE(matches(name("re:language_model.*mlp"), "model.layers.0.mlp.gate"));
  EXPECT_TRUE(matches(name("lm_head"), "lm_head"));
  EXPECT_FALSE(matches(name("re:vision_tower.*"), "model.layers.0.mlp.gate"));
  EXPECT_TRUE(
      matches(ModulePattern::prefix_or_suffix("model.language_model.layers.0"), "model.layers.0.mlp"));
  EXPECT_FALSE(matches(ModulePattern::part_of_name("visual"), "model.layers.0.mlp"));
}

TEST(KnownModels, AreRefusedWithWhatIsMissing) {
  struct Refused {
    const char *config, *name, *missing;
  };
  const Refused refused[] = {
      {R"({"architectures": ["DeepseekV4ForCausalLM"]})", "DeepSeek-V4", "residual streams"},
      {R"({"architectures": ["KimiK3ForConditionalGeneration"], "text_config": {"model_type": "kimi_linear"}})",
       "Kimi-K3", "KDA"},
      {R"({"architectures": ["Glm5_3ForCausalLM"]})", "GLM-5.3", "KDA"},
      {R"({"architectures": ["Mistral4ForCausalLM"]})", "Mistral-Large-4", "router"},
      {R"({"architectures": ["Unheard"], "model_type": "qwen4_exp"})", "Qwen4-Exp", "n-grams"},
      {R"({"architectures": ["Llama4ForConditionalGeneration"], "text_config": {"model_type": "llama4_text"}})",
       "Llama 4", "chunks"},
      {R"({"architectures": ["NemotronHForCausalLM"]})", "Nemotron-H", "Mamba-2"},
      {R"({"architectures": ["Gemma4ForConditionalGeneration"], "text_config": {"model_type": "gemma4_text"}})",
       "Gemma 4 E2B or E4B", "hidden_size_per_layer_input"},
  };
  for (const auto& [config, name, missing] : refused) try {
      parse_model_config(config, "config.json");
      ADD_FAILURE() << name;
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ExitCode::input);
      expect_contains(error.what(), std::string(name) + " is not read");
      expect_contains(error.what(), missing);
      expect_contains(error.remedy(), "Qwen3MoeForCausalLM");
    }
}

TEST(MistralLayout, IsRefused) {
  const TempDirectory model;
  write_file(model / "params.json", "{}");
  expect_contains(refusal_of([&] { refuse_mistral_layout(model.path()); }), "params.json");
  write_file(model / "config.json", "{}");
  write_file(model / "consolidated-00001-of-00002.safetensors", "");
  expect_contains(refusal_of([&] { refuse_mistral_layout(model.path()); }), "consolidated");
  write_file(model / "model.safetensors", "");
  EXPECT_NO_THROW(refuse_mistral_layout(model.path()));
  EXPECT_NO_THROW(refuse_mistral_layout(model_directory("tiny-qwen3")));
}

// Packed codes and scales that agree say the shape: 207,000 tensors are not opened for it.
TEST(KnownTensors, ReadTheShapeOfPackedCodesOnlyWhereItCouldDiffer) {
  const ModelConfig config = read_model_config(model_directory("q-w4a16"));
  WeightIndex index = read_index(model_directory("q-w4a16"));
  const std::string module = "model.layers.0.mlp.down_proj.";
  read_known_tensors(index, config, *scheme_of(config));
  EXPECT_TRUE(index.tensors.at(module + "weight_shape").value.empty());
  index.tensors.at(module + "weight_scale").info.shape[1] += 1;
  read_known_tensors(index, config, *scheme_of(config));
  EXPECT_EQ(index.tensors.at(module + "weight_shape").value.size(), 16u);
}

}  // namespace
}  // namespace maniple
