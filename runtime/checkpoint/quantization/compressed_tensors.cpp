// compressed-tensors, as llm-compressor and others publish it: groups of modules, each with its arguments and a format.
//   float-quantized  weight F8_E4M3 with weight_scale; input_scale where activations are static
//   int-quantized    weight I8 with weight_scale
//   pack-quantized   weight_packed [n, k * bits / 32] along k, weight_scale [n, groups], weight_zero_point packed along n
#include <runtime/checkpoint/quantization/packed_matrix.hpp>
#include <runtime/checkpoint/quantization/registry.hpp>
#include <runtime/checkpoint/quantization/scaled_codes.hpp>
#include <runtime/checkpoint/quantization/stored_values.hpp>

#include <algorithm>
#include <cstring>

namespace maniple {
namespace {

constexpr std::string_view supported_formats = "\"float-quantized\", \"int-quantized\", \"pack-quantized\"";

// The modules of one entry of config_groups.
struct Group {
  ModulePatterns targets;
  std::string format;
  int bits = 8;
  int64_t group = -1;
  bool symmetric = true;
  ActivationRule activation = ActivationRule::none;
};

ActivationRule activation_of(const JsonFields& outer, const std::string& type) {
  if (!outer.find("input_activations")) return ActivationRule::none;
  const JsonFields fields = outer.object("input_activations");
  if (fields.integer("num_bits", 1, 64) != 8) fields.refuse("num_bits", "8");
  if (fields.text("type") != type) fields.refuse("type", "\"" + type + "\", as the weights");
  if (!fields.boolean_or("symmetric", true)) fields.refuse("symmetric", "true");
  const nlohmann::json* dynamic = fields.find("dynamic");
  if (dynamic && !dynamic->is_boolean()) fields.refuse("dynamic", "true, false");
  const bool per_token = dynamic && dynamic->get<bool>();
  const std::string strategy = fields.text("strategy");
  if (strategy != (per_token ? "token" : "tensor"))
    fields.refuse("strategy",
                  per_token ? "\"token\" with dynamic activations" : "\"tensor\" with static activations");
  if (!per_token && type == "int") fields.refuse("dynamic", "true with integers");
  return per_token ? ActivationRule::per_token : ActivationRule::fixed;
}

Group group_of(const JsonFields& fields, const JsonFields& outer, const std::string& where) {
  Group group;
  const JsonFields& stating = fields.find("format") ? fields : outer;
  group.format = stating.text("format");
  const bool packed = group.format == "pack-quantized", floating = group.format == "float-quantized";
  if (!packed && !floating && group.format != "int-quantized") stating.refuse("format", supported_formats);
  for (const std::string& target : names_of(fields, "targets"))
    group.targets.push_back(ModulePattern::name_class_or_regex(target, where));
  if (fields.find("output_activations")) fields.refuse("output_activations", "none");
  const JsonFields weights = fields.object("weights");
  const std::string type = floating ? "float" : "int";
  if (weights.text("type") != type) weights.refuse("type", "\"" + type + "\" with " + group.format);
  group.bits = static_cast<int>(weights.integer("num_bits", 1, 64));
  if (group.bits != 8 && !(packed && group.bits == 4)) weights.refuse("num_bits", packed ? "4, 8" : "8");
  if (weights.boolean_or("dynamic", false)) weights.refuse("dynamic", "false");
  group.symmetric = weights.boolean_or("symmetric", true);
  if (!group.symmetric && !packed) weights.refuse("symmetric", "true with " + group.format);
  const std::string strategy = weights.text("strategy");
  if (packed && strategy == "group")
    group.group = group_size_of(weights, "group_size");
  else if (strategy != "channel" && (packed || strategy != "tensor"))
    weights.refuse("strategy", packed ? "\"channel\", \"group\"" : "\"channel\", \"tensor\"");
  group.activation = activation_of(fields, type);
  if (packed && group.activation != ActivationRule::none)
    fields.refuse("input_activations", "none with pack-quantized");
  return group;
}

bool asks_for_fp8_kv(const JsonFields& outer) {
  if (!outer.find("kv_cache_scheme")) return false;
  const JsonFields fields = outer.object("kv_cache_scheme");
  if (fields.integer("num_bits", 1, 64) != 8) fields.refuse("num_bits", "8");
  if (fields.text("type") != "float") fields.refuse("type", "\"float\"");
  if (fields.text("strategy") != "tensor") fields.refuse("strategy", "\"tensor\"");
  if (!fields.boolean_or("symmetric", true)) fields.refuse("symmetric", "true");
  if (fields.boolean_or("dynamic", false)) fields.refuse("dynamic", "false");
  return true;
}

class CompressedTensors final : public QuantScheme {
 public:
  explicit CompressedTensors(const JsonFields& fields) {
    const std::string where = "config.json: quantization_config";
    for (const std::string_view none : {"sparsity_config", "transform_config"})
      if (!fields.is_neutral(none, {})) fields.refuse(none, "none");
    keeps_fp8_kv_ = asks_for_fp8_kv(fields);
    for (const std::string& entry : names_of(fields, "ignore"))
      ignored_.push_back(ModulePattern::name_class_or_regex(entry, where + ".ignore"));
    const JsonFields groups = fields.object("config_groups");
    for (const auto& [name, value] : groups.items())
      groups_.push_back(group_of(groups.object(name), fields, where + ".config_groups"));
    if (groups_.empty()) fields.refuse("config_groups", "one group or more");
  }

  bool keeps_fp8_kv() const override { return keeps_fp8_kv_; }
  std::string description() const override {
    const Group& group = groups_[0];
    if (group.format == "pack-quantized")
      return fmt::format("pack-quantized {} bit, {}", group.bits, groups_text(group.group));
    return fmt::format("{}, {} activations", group.format,
                       group.activation == ActivationRule::none    ? "unrounded"
                       : group.activation == ActivationRule::fixed ? "static"
                                                                   : "dynamic");
  }

  bool decides(std::string_view tensor, const WeightIndex& index) const override {
    return tensor.ends_with(".weight_g_idx") ||
           (tensor.ends_with(".weight_shape") && !shape_follows(std::string(module_of(tensor)), index));
  }

 private:
  std::optional<std::string> left_out(std::string_view module) const override {
    return entry_of(ignored_, module);
  }

  // A name or a regular expression counts before a class.
  const Group* group_of_module(std::string_view module) const {
    for (const bool by_class : {false, true})
      for (const Group& group : groups_)
        for (const ModulePattern& target : group.targets)
          if (target.is_class() == by_class && target.matches(module)) return &group;
    return nullptr;
  }
  // Whether packed codes and scales say one number of columns, so that weight_shape has nothing left to say.
  bool shape_follows(const std::string& module, const WeightIndex& index) const {
    const IndexedTensor *codes = stored_part(&index, module, "weight_packed"),
                        *scales = stored_part(&index, module, "weight_scale");
    const Group* group = group_of_module(module);
    return codes && scales && group && codes->info.shape.size() == 2 && scales->info.shape.size() == 2 &&
           codes->info.shape[1] * (32 / group->bits) == scales->info.shape[1] * group->group;
  }
  bool covers(std::string_view module) const override { return is_linear(module) && group_of_module(module); }

  std::unique_ptr<const StoredWeight> coded(const std::string& module, const Shape& shape,
                                            const WeightIndex* index) const override {
    const Group* group = group_of_module(module);
    if (!group) refuse_files("{} is stored quantised, but no entry of config_groups targets it", module);
    if (group->format == "pack-quantized") return packed(module, shape, index, *group);
    const bool floating = group->format == "float-quantized";
    return scaled_codes(
        module, shape, index, {floating ? "F8_E4M3" : "I8", "weight_scale"},
        {.format = floating ? WeightFormat::fp8 : WeightFormat::int8, .activation = group->activation});
  }

  static std::unique_ptr<const StoredWeight> packed(const std::string& module, const Shape& shape,
                                                    const WeightIndex* index, const Group& group) {
    ModuleQuantization quantization{.format = group.bits == 4 ? WeightFormat::int4 : WeightFormat::int8,
                                    .group = group.group >= shape[1] ? -1 : group.group,
                                    .zeros = !group.symmetric,
                                    .scale = DType::bf16};
    std::vector<ExpectedTensor> others{{module + ".weight_shape", {"I64", "I32"}, {{2}}}};
    check_shape(module, shape, stored_part(index, module, "weight_shape"));
    if (const IndexedTensor* groups = stored_part(index, module, "weight_g_idx")) {
      quantization.order = order_of(*groups, shape[1], quantization.group, module + ".weight_g_idx");
      others.push_back({module + ".weight_g_idx", {"I32"}, {{shape[1]}}});
    }
    const PackedLayout layout{.codes = "weight_packed",
                              .scales = "weight_scale",
                              .zeros = group.symmetric ? "" : "weight_zero_point",
                              .code_packing = {.bits = group.bits},
                              .zero_packing = {.bits = group.bits, .along_rows = true},
                              .scale_types = {"BF16", "F16", "F32"}};
    return std::make_unique<PackedMatrix>(module, shape, index, layout, std::move(quantization),
                                          std::move(others));
  }

  static void check_shape(const std::string& module, const Shape& shape, const IndexedTensor* stored) {
    int64_t sizes[2] = {};
    int32_t short_sizes[2] = {};
    if (stored && stored->value.size() == sizeof short_sizes) {
      std::memcpy(short_sizes, stored->value.data(), sizeof short_sizes);
      std::ranges::copy(short_sizes, sizes);
    } else if (stored && stored->value.size() == sizeof sizes) {
      std::memcpy(sizes, stored->value.data(), sizeof sizes);
    } else {
      return;
    }
    if (sizes[0] != shape[0] || sizes[1] != shape[1])
      refuse_files("tensor {}.weight_shape says [{}, {}], but config.json asks for {}", module, sizes[0],
                   sizes[1], to_string(shape));
  }

  ModulePatterns ignored_;
  std::vector<Group> groups_;
  bool keeps_fp8_kv_ = false;
};

}  // namespace

std::unique_ptr<const QuantScheme> compressed_tensors_scheme(const SchemeConfig& config) {
  return std::make_unique<CompressedTensors>(config.fields);
}

}  // namespace maniple
