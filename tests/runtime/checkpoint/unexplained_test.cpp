// Quantised checkpoints whose config.json says nothing of it.
#include <runtime/checkpoint/loading/model_config.hpp>
#include <runtime/checkpoint/quantization/unexplained.hpp>

#include "checkpoint_testing.hpp"

#include <nlohmann/json.hpp>
#include <support/safetensors_writer.hpp>

namespace maniple {
namespace {

using nlohmann::ordered_json;

// A copy of a quantised model without quantization_config; its weights are a link.
struct Silent {
  TempDirectory folder;
  ordered_json settings;
  explicit Silent(std::string_view model) {
    ordered_json config = ordered_json::parse(read_file(model_directory(model) / "config.json"));
    settings = config["quantization_config"];
    config.erase("quantization_config");
    write_file(folder / "config.json", config.dump());
    std::filesystem::create_symlink(model_directory(model) / "model.safetensors",
                                    folder / "model.safetensors");
  }
  ordered_json read() const { return ordered_json::parse(read_model_config(folder.path()).quantization); }
};

TEST(SettingsBeside, OfAutoGptqAreRead) {
  Silent model("q-gptq-act");
  model.settings.erase("quant_method");
  write_file(model.folder / "quantize_config.json", model.settings.dump());
  model.settings["quant_method"] = "gptq";
  EXPECT_EQ(model.read(), model.settings);
}

TEST(SettingsBeside, OfAutoAwqAreReadInTheirOwnNames) {
  const Silent model("q-awq");
  write_file(model.folder / "quant_config.json",
             R"({"zero_point": true, "q_group_size": 64, "w_bit": 4, "version": "GEMM"})");
  EXPECT_EQ(model.read().dump(),
            R"({"quant_method":"awq","bits":4,"group_size":64,"zero_point":true,"version":"GEMM"})");
}

TEST(SettingsBeside, AreNotReadWhereConfigSpeaksOrNothingIsQuantised) {
  const std::string text = read_file(model_directory("q-awq") / "config.json");
  const TempDirectory folder;
  write_file(folder / "quantize_config.json", R"({"bits": 8})");
  std::filesystem::create_symlink(model_directory("q-awq") / "model.safetensors",
                                  folder / "model.safetensors");
  EXPECT_EQ(with_settings_beside(folder.path(), text), text);
  std::filesystem::remove(folder / "model.safetensors");
  std::filesystem::create_symlink(model_directory("tiny-qwen3") / "model.safetensors",
                                  folder / "model.safetensors");
  EXPECT_EQ(with_settings_beside(folder.path(), "{}"), "{}");
}

std::string refusal_with(const std::vector<TensorToWrite>& tensors) {
  const TempDirectory folder;
  write_safetensors(folder / "model.safetensors", tensors);
  return refusal_of([&] { refuse_unexplained(read_index(folder.path())); });
}

TEST(Unexplained, TensorsAreRefusedByWhatTheyLookLike) {
  const auto bytes = [](size_t count) { return std::vector<std::byte>(count); };
  const TensorToWrite words{"m.qweight", "I32", {2, 2}, bytes(16)};
  expect_contains(refusal_with({words, {"m.g_idx", "I32", {2}, bytes(8)}}), "m.g_idx looks like GPTQ;");
  expect_contains(refusal_with({words}), "m.qweight looks like GPTQ or AWQ;");
  expect_contains(refusal_with({{"m.weight_packed", "I32", {2}, bytes(8)}}),
                  "looks like compressed-tensors;");
  expect_contains(
      refusal_with({{"m.weight", "F8_E4M3", {2}, bytes(2)}, {"m.weight_scale_inv", "F32", {1}, bytes(4)}}),
      "FP8 in blocks");
  expect_contains(
      refusal_with({{"m.weight", "F8_E4M3", {2}, bytes(2)}, {"m.weight_scale", "F32", {1}, bytes(4)}}),
      "looks like FP8;");
  expect_contains(refusal_with({{"m.weight", "I8", {2}, bytes(2)}, {"m.weight_scale", "F32", {1}, bytes(4)}}),
                  "compressed-tensors");
  expect_contains(refusal_with({{"m.weight.absmax", "F32", {1}, bytes(4)}}), "bitsandbytes");
  EXPECT_NO_THROW(refuse_unexplained(read_index(model_directory("tiny-qwen3"))));
}

}  // namespace
}  // namespace maniple
