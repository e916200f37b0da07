#include <runtime/checkpoint/quantization/registry.hpp>

#include <fmt/format.h>

namespace maniple {
namespace {

using nlohmann::json;

struct Registered {
  std::string_view name;  // quant_method
  SchemeFactory make;
};

constexpr Registered schemes[] = {
    {"gptq", gptq_scheme}, {"awq", awq_scheme},     {"compressed-tensors", compressed_tensors_scheme},
    {"fp8", fp8_scheme},   {"mxfp4", mxfp4_scheme},
};

class FloatingPoint final : public QuantScheme {
 public:
  std::string description() const override { return ""; }
  std::unique_ptr<const StoredWeight> of(const std::string& module, const Shape& shape,
                                         const WeightIndex*) const override {
    return dense_weight(module + ".weight", shape);
  }
};

std::unique_ptr<const QuantScheme> scheme_in(const std::string& quantization_config) {
  const std::string_view where = "config.json";
  const nlohmann::ordered_json ordered = parse_ordered_json(quantization_config, where);
  const json plain = parse_json(quantization_config, where);
  const JsonFields fields(plain, where, "quantization_config");
  const std::string method = fields.text("quant_method");
  std::string supported;
  for (const Registered& scheme : schemes) {
    if (method == scheme.name) return scheme.make({fields, ordered});
    supported += fmt::format("{}\"{}\"", supported.empty() ? "" : ", ", scheme.name);
  }
  fields.refuse("quant_method", supported);
}

}  // namespace

std::unique_ptr<const QuantScheme> scheme_of(const ModelConfig& config) {
  if (config.quantize) return scheme_while_loading(*config.quantize, config.tie_word_embeddings);
  if (config.quantization.empty()) return std::make_unique<FloatingPoint>();
  try {
    return scheme_in(config.quantization);
  } catch (const Error& error) {
    if (!error.why().empty()) throw;
    throw Error(error.code(), error.what(), "read in another way, the weights would be other numbers",
                "use a checkpoint in a supported format, or the model in bf16 with --quantize int8");
  }
}

int64_t group_size_of(const JsonFields& fields, std::string_view name) {
  const int64_t size = fields.integer(name, -1, 1 << 24);
  if (size == 0) fields.refuse(name, "-1 (all columns), or a number of columns");
  return size;
}

std::vector<std::string> names_of(const JsonFields& fields, std::string_view name) {
  std::vector<std::string> names;
  const json* list = fields.find(name);
  if (!list) return names;
  if (!list->is_array()) fields.refuse(name, "a list of names");
  for (const json& entry : *list) {
    if (!entry.is_string()) fields.refuse(name, "a list of names");
    names.push_back(entry.get<std::string>());
  }
  return names;
}

std::string groups_text(int64_t group) {
  return group < 0 ? "one group a row" : fmt::format("groups of {}", group);
}

}  // namespace maniple
