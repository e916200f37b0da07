// AWQ in its "gemm" form: qweight [k, n / 8] and qzeros [groups, n / 8] packed along n in an order of its own, scales
// [groups, n].
#include <runtime/checkpoint/quantization/packed_matrix.hpp>
#include <runtime/checkpoint/quantization/registry.hpp>
#include <runtime/checkpoint/quantization/stored_values.hpp>

#include <algorithm>
#include <cctype>

namespace maniple {
namespace {

class Awq final : public QuantScheme {
 public:
  explicit Awq(const JsonFields& fields) : group_(group_size_of(fields, "group_size")) {
    if (fields.integer("bits", 1, 64) != 4) fields.refuse("bits", "4");
    std::string version = fields.text_or("version", "gemm");
    std::ranges::transform(version, version.begin(), [](unsigned char c) { return std::tolower(c); });
    if (version != "gemm") fields.refuse("version", "\"gemm\"");
    if (!fields.boolean_or("zero_point", true)) fields.refuse("zero_point", "true");
    for (const std::string& name : names_of(fields, "modules_to_not_convert"))
      left_out_.push_back(ModulePattern::part_of_name(name));
  }

  std::string description() const override { return "awq 4 bit, " + groups_text(group_); }

 private:
  // AutoAWQ's "gate" is the router: of an expert's name only what comes before its own parts is compared.
  std::optional<std::string> left_out(std::string_view module) const override {
    if (module.find(".experts.") != module.npos) module = module.substr(0, module.rfind('.'));
    return entry_of(left_out_, module);
  }

  std::unique_ptr<const StoredWeight> coded(const std::string& module, const Shape& shape,
                                            const WeightIndex* index) const override {
    constexpr WordPacking packing{.places = {0, 4, 1, 5, 2, 6, 3, 7}};
    if (shape[0] % packing.per_word() != 0)
      refuse_files("{}: awq packs {} outputs in whole words of {}", module, shape[0], packing.per_word());
    const ModuleQuantization quantization{.format = WeightFormat::int4,
                                          .group = group_ >= shape[1] ? -1 : group_,
                                          .zeros = true,
                                          .scale = DType::fp16};
    const PackedLayout layout{.codes = "qweight",
                              .scales = "scales",
                              .zeros = "qzeros",
                              .transposed = true,
                              .code_packing = packing,
                              .zero_packing = packing,
                              .scale_types = {"F16", "BF16", "F32"}};
    return std::make_unique<PackedMatrix>(module, shape, index, layout, quantization);
  }

  int64_t group_;
  ModulePatterns left_out_;
};

}  // namespace

std::unique_ptr<const QuantScheme> awq_scheme(const SchemeConfig& config) {
  return std::make_unique<Awq>(config.fields);
}

}  // namespace maniple
