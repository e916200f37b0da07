// The schemes by the name that quantization_config gives.
#pragma once

#include <runtime/checkpoint/json_fields.hpp>
#include <runtime/checkpoint/quantization/scheme.hpp>

namespace maniple {

// fields: of quantization_config; where the order of its fields counts, ordered has it. Throws Error (input) on what is not
// read.
struct SchemeConfig {
  const JsonFields& fields;
  const nlohmann::ordered_json& ordered;
};
using SchemeFactory = std::unique_ptr<const QuantScheme> (*)(const SchemeConfig& config);

std::unique_ptr<const QuantScheme> gptq_scheme(const SchemeConfig& config);
std::unique_ptr<const QuantScheme> awq_scheme(const SchemeConfig& config);
std::unique_ptr<const QuantScheme> compressed_tensors_scheme(const SchemeConfig& config);
std::unique_ptr<const QuantScheme> fp8_scheme(const SchemeConfig& config);
std::unique_ptr<const QuantScheme> mxfp4_scheme(const SchemeConfig& config);

// Of a checkpoint in floating point. tied: its table of tokens is its head.
std::unique_ptr<const QuantScheme> scheme_while_loading(WeightFormat format, bool tied);

// Columns that share a scale: 1 or more, or -1 for all.
int64_t group_size_of(const JsonFields& fields, std::string_view name);
// A list of names, absent or null.
std::vector<std::string> names_of(const JsonFields& fields, std::string_view name);
// "groups of 128", "one group"
std::string groups_text(int64_t group);

}  // namespace maniple
