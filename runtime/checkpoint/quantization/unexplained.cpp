#include <kernels/support/check.hpp>
#include <runtime/checkpoint/quantization/unexplained.hpp>

#include <algorithm>
#include <array>

namespace maniple {
namespace {

using nlohmann::ordered_json;

struct Look {
  std::string_view ending;  // of a tensor's name
  std::string_view type;    // of the .weight beside it; empty: any
  std::string_view format, settings;
};

// The first that fits.
constexpr std::array looks = {
    Look{".g_idx", "", "GPTQ",
         R"("quant_method": "gptq", "bits": 4, "group_size": 128, "desc_act": false, "sym": true)"},
    Look{".qweight", "", "GPTQ or AWQ", R"("quant_method": "gptq" or "awq", "bits": 4, "group_size": 128)"},
    Look{".weight_packed", "", "compressed-tensors",
         R"("quant_method": "compressed-tensors", "format": "pack-quantized", ...)"},
    Look{".weight_scale_inv", "", "FP8 in blocks",
         R"("quant_method": "fp8", "weight_block_size": [128, 128])"},
    Look{".weight_scale", "I8", "compressed-tensors",
         R"("quant_method": "compressed-tensors", "format": "int-quantized", ...)"},
    Look{".weight_scale", "F8_E4M3", "FP8", R"("quant_method": "fp8", "activation_scheme": "dynamic")"},
    Look{"_proj_blocks", "", "MXFP4", R"("quant_method": "mxfp4")"},
    Look{".absmax", "", "bitsandbytes, which is not supported", "use the model in bf16 with --quantize int8"},
};

bool fits(const Look& look, const std::string& name, const WeightIndex& index) {
  if (!name.ends_with(look.ending)) return false;
  const auto weight = index.tensors.find(name.substr(0, name.size() - look.ending.size()) + ".weight");
  return look.type.empty() || (weight != index.tensors.end() && weight->second.info.stored_type == look.type);
}

// AutoAWQ's names of the settings to those of config.json.
ordered_json settings_from(ordered_json file) {
  if (!file.contains("w_bit")) {
    if (!file.contains("quant_method")) file["quant_method"] = "gptq";
    return file;
  }
  ordered_json settings{{"quant_method", "awq"}, {"bits", file["w_bit"]}};
  for (const auto& [old, name] : {std::pair{"q_group_size", "group_size"},
                                  {"zero_point", "zero_point"},
                                  {"version", "version"},
                                  {"modules_to_not_convert", "modules_to_not_convert"}})
    if (file.contains(old)) settings[name] = file[old];
  return settings;
}

}  // namespace

std::string quantization_in(const ordered_json& config) {
  const auto of = [](const ordered_json& fields) {
    const auto found = fields.find("quantization_config");
    return found == fields.end() || found->empty() ? "" : found->dump();
  };
  const std::string inner = config.contains("text_config") ? of(config["text_config"]) : "";
  return inner.empty() ? of(config) : inner;
}

std::string with_settings_beside(const ModelFiles& files, std::string text) {
  for (const std::string_view name : {"quantize_config.json", "quant_config.json"}) {
    if (!files.has(name)) continue;
    ordered_json config = parse_ordered_json(text, files.where("config.json"));
    const WeightIndex index = read_index(files);
    const auto is_packed = [](const auto& tensor) { return tensor.first.ends_with(".qweight"); };
    if (!config.is_object() || !quantization_in(config).empty() ||
        std::ranges::none_of(index.tensors, is_packed))
      return text;
    ordered_json file = parse_ordered_json(files.text(name), files.where(name));
    if (!file.is_object()) fail(ExitCode::input, "{}: the content is not a JSON object", files.where(name));
    config["quantization_config"] = settings_from(std::move(file));
    return config.dump();
  }
  return text;
}

void refuse_unexplained(const WeightIndex& index) {
  for (const Look& look : looks)
    for (const auto& [name, tensor] : index.tensors)
      if (fits(look, name, index))
        throw Error(
            ExitCode::input,
            fmt::format(
                "the checkpoint is quantised: {} looks like {}; but config.json has no quantization_config",
                name, look.format),
            "without it nobody knows what the numbers mean",
            look.ending == ".absmax" ? std::string(look.settings)
                                     : fmt::format("add to config.json, with the values of the program that "
                                                   "made it: \"quantization_config\": {{{}}}",
                                                   look.settings));
}

}  // namespace maniple
