// GPTQ as AutoGPTQ and GPTQModel publish it: qweight [k * bits / 32, n] packed along k, qzeros [groups, n * bits / 32] along n,
// scales [groups, n], g_idx [k]. Version 1 stores zero points minus one, version 2 as they are.
#include <runtime/checkpoint/quantization/packed_matrix.hpp>
#include <runtime/checkpoint/quantization/registry.hpp>
#include <runtime/checkpoint/quantization/stored_values.hpp>

#include <algorithm>
#include <cstring>

namespace maniple {
namespace {

struct GptqSettings {
  int bits = 4;
  int64_t group = 128;
  bool symmetric = true;
  bool act_order = false;
};

// An entry of `dynamic`: modules that are left out, or have settings of their own.
struct DynamicRule {
  ModulePattern pattern;
  bool leaves_out = false;
  GptqSettings settings = {};
};

GptqSettings settings_of(const JsonFields& fields, const GptqSettings& outer) {
  GptqSettings settings = outer;
  settings.bits = static_cast<int>(fields.integer_or("bits", outer.bits, 1, 64));
  if (settings.bits != 4 && settings.bits != 8) fields.refuse("bits", "4, 8");
  if (fields.find("group_size")) settings.group = group_size_of(fields, "group_size");
  settings.symmetric = fields.boolean_or("sym", outer.symmetric);
  settings.act_order = fields.boolean_or("desc_act", outer.act_order);
  return settings;
}

// The one value of all zero points of a module, if there is one.
std::optional<int> uniform_zero(const IndexedTensor& zeros, int bits) {
  const size_t words = zeros.value.size() / sizeof(uint32_t);
  uint32_t first = 0;
  for (size_t i = 0; i < words; ++i) {
    uint32_t word = 0;
    std::memcpy(&word, &zeros.value[i * sizeof word], sizeof word);
    if (i == 0) first = word;
    const bool repeats = ((word >> bits) | (word << (32 - bits))) == word;
    if (word != first || !repeats) return std::nullopt;
  }
  if (words == 0) return std::nullopt;
  return static_cast<int>(first & ((1U << bits) - 1));
}

bool is_ascending(std::span<const int32_t> groups, int64_t size) {
  for (size_t input = 0; input < groups.size(); ++input)
    if (groups[input] != static_cast<int64_t>(input) / size) return false;
  return true;
}

class Gptq final : public QuantScheme {
 public:
  explicit Gptq(const SchemeConfig& config) {
    const JsonFields& fields = config.fields;
    fields.integer("bits", 1, 64);
    settings_ = settings_of(fields, settings_);
    head_ = fields.boolean_or("lm_head", false);
    const std::string_view key = fields.find("checkpoint_format") ? "checkpoint_format" : "format";
    const std::string format = fields.text_or(key, "gptq");
    if (format != "gptq" && format != "gptq_v2") fields.refuse(key, "\"gptq\", \"gptq_v2\"");
    minus_one_ = format == "gptq";
    if (fields.boolean_or("is_marlin_format", false)) fields.refuse("is_marlin_format", "false");
    if (!fields.find("dynamic")) return;
    const JsonFields rules = fields.object("dynamic");
    for (const auto& [key_of_rule, value] : config.ordered["dynamic"].items()) add_rule(rules, key_of_rule);
  }

  std::string description() const override {
    return fmt::format("gptq {} bit, {}", settings_.bits, groups_text(settings_.group));
  }

  bool decides(std::string_view tensor, const WeightIndex&) const override {
    return tensor.ends_with(".g_idx") ||
           (tensor.ends_with(".qzeros") && settings_of_module(module_of(tensor)).symmetric);
  }

  // Nothing of groups that lie one after the other, and one word of zero points that are all the same.
  std::vector<std::byte> condensed(std::string_view tensor, std::vector<std::byte> value) const override {
    std::vector<int32_t> words(value.size() / sizeof(int32_t));
    if (words.empty()) return value;
    std::memcpy(words.data(), value.data(), words.size() * sizeof(int32_t));
    const auto inputs = static_cast<int64_t>(words.size());
    const int64_t group = settings_of_module(module_of(tensor)).group;
    if (tensor.ends_with(".qzeros") && std::ranges::count(words, words[0]) == inputs)
      value.resize(sizeof(int32_t));
    else if (tensor.ends_with(".g_idx") && is_ascending(words, group < 0 ? inputs : group))
      value.clear();
    return value;
  }

  // Symmetric zero points say which version a file has, whatever its config says; all modules must have the same.
  void check(const WeightIndex& index) const override {
    std::string stored_as[2];
    for (const auto& [name, tensor] : index.tensors) {
      if (!name.ends_with(".qzeros")) continue;
      const std::string_view module = module_of(name);
      const GptqSettings settings = settings_of_module(module);
      const std::optional<int> zero = symmetric_zero(tensor, settings);
      if (zero) stored_as[*zero == middle(settings) ? 1 : 0] = module;
    }
    if (!stored_as[0].empty() && !stored_as[1].empty())
      throw Error(
          ExitCode::input,
          fmt::format("the zero points of {} are stored minus one (version 1 of GPTQ), those of {} as they "
                      "are (version 2)",
                      stored_as[0], stored_as[1]),
          "one version is read in a checkpoint", "quantise the model again, with one program");
  }

  // A zero point of 0 or 16 is stored as 15; we read 0, as the authors of the format do.
  std::string warning(const WeightIndex& index) const override {
    const auto wraps = [&](const auto& entry) {
      const auto& [name, tensor] = entry;
      return name.ends_with(".qzeros") && !symmetric_zero(tensor, settings_of_module(module_of(name)));
    };
    if (!minus_one_ || std::ranges::none_of(index.tensors, wraps)) return "";
    return "zero points are asymmetric and stored minus one (version 1 of GPTQ): one with all bits set means "
           "0 here, and 2^bits in some programs";
  }

 private:
  void add_rule(const JsonFields& rules, const std::string& key) {
    const bool leaves_out = key.starts_with("-:");
    const std::string pattern = leaves_out || key.starts_with("+:") ? key.substr(2) : key;
    DynamicRule rule{ModulePattern::regex(pattern, "config.json: quantization_config.dynamic"), leaves_out};
    if (!leaves_out) rule.settings = settings_of(rules.object(key), settings_);
    rules_.push_back(std::move(rule));
  }

  const DynamicRule* rule_of(std::string_view module) const {
    const auto found =
        std::ranges::find_if(rules_, [&](const DynamicRule& r) { return r.pattern.matches(module); });
    return found == rules_.end() ? nullptr : &*found;
  }
  GptqSettings settings_of_module(std::string_view module) const {
    const DynamicRule* rule = rule_of(module);
    return rule && !rule->leaves_out ? rule->settings : settings_;
  }

  std::optional<std::string> left_out(std::string_view module) const override {
    const DynamicRule* rule = rule_of(module);
    return rule && rule->leaves_out ? std::optional("-:" + rule->pattern.text()) : std::nullopt;
  }
  bool covers(std::string_view module) const override {
    return is_linear(module) && (head_ || module != "lm_head");
  }

  static int middle(const GptqSettings& settings) { return 1 << (settings.bits - 1); }
  // The zero point of a symmetric module, as it is stored.
  static std::optional<int> symmetric_zero(const IndexedTensor& zeros, const GptqSettings& settings) {
    const std::optional<int> zero = settings.symmetric ? uniform_zero(zeros, settings.bits) : std::nullopt;
    return zero == middle(settings) || zero == middle(settings) - 1 ? zero : std::nullopt;
  }

  std::unique_ptr<const StoredWeight> coded(const std::string& module, const Shape& shape,
                                            const WeightIndex* index) const override {
    const GptqSettings settings = settings_of_module(module);
    const int64_t group = settings.group >= shape[1] ? -1 : settings.group, outputs = shape[0];
    if (shape[1] * settings.bits % 32 != 0 || outputs * settings.bits % 32 != 0)
      refuse_files("{}: gptq packs {} inputs and {} outputs of {} bits in whole words of 32", module,
                   shape[1], outputs, settings.bits);
    ModuleQuantization quantization{.format = settings.bits == 4 ? WeightFormat::int4 : WeightFormat::int8,
                                    .group = group,
                                    .scale = DType::fp16};
    const IndexedTensor* zeros = stored_part(index, module, "qzeros");
    quantization.zeros = zeros ? !symmetric_zero(*zeros, settings) : !settings.symmetric;
    std::vector<ExpectedTensor> others;
    const IndexedTensor* groups = stored_part(index, module, "g_idx");
    if (groups) quantization.order = order_of(*groups, shape[1], group, module + ".g_idx");
    if (groups || (index && settings.act_order)) others.push_back({module + ".g_idx", {"I32"}, {{shape[1]}}});
    const PackedLayout layout{.codes = "qweight",
                              .scales = "scales",
                              .zeros = "qzeros",
                              .transposed = true,
                              .code_packing = {.bits = settings.bits, .along_rows = true},
                              .zero_packing = {.bits = settings.bits},
                              .zero_offset = minus_one_ ? 1 : 0,
                              .scale_types = {"F16", "BF16", "F32"}};
    return std::make_unique<PackedMatrix>(module, shape, index, layout, std::move(quantization),
                                          std::move(others));
  }

  GptqSettings settings_;
  std::vector<DynamicRule> rules_;
  bool head_ = false;
  bool minus_one_ = true;  // version 1
};

}  // namespace

std::unique_ptr<const QuantScheme> gptq_scheme(const SchemeConfig& config) {
  return std::make_unique<Gptq>(config);
}

}  // namespace maniple
