// FP8 as AutoFP8 and the makers of models publish it: weight in e4m3 with a scale for the tensor (weight_scale), or for
// blocks of 128 x 128 (weight_scale_inv, which multiplies). Activations: input_scale of the checkpoint, else one scale for a token,
// with blocks one for 128 inputs, which scale_fmt ue8m0 (DeepSeek-V3.1) raises to a power of two.
#include <runtime/checkpoint/quantization/registry.hpp>
#include <runtime/checkpoint/quantization/scaled_codes.hpp>

namespace maniple {
namespace {

constexpr int64_t block = 128;

class Fp8 final : public QuantScheme {
 public:
  explicit Fp8(const JsonFields& fields) {
    const std::string rule = fields.text_or("activation_scheme", "dynamic");
    if (rule != "dynamic" && rule != "static") fields.refuse("activation_scheme", "\"dynamic\", \"static\"");
    if (fields.text_or("fmt", "e4m3") != "e4m3") fields.refuse("fmt", "\"e4m3\"");
    keeps_fp8_kv_ = fields.find("kv_cache_scheme") != nullptr;
    if (keeps_fp8_kv_ && *fields.find("kv_cache_scheme") != "static")
      fields.refuse("kv_cache_scheme", "\"static\"");
    if (fields.find("weight_block_size")) {
      blocks_ = true;
      if (fields.sizes("weight_block_size") != std::vector{block, block})
        fields.refuse("weight_block_size", "[128,128]");
      if (rule == "static") fields.refuse("activation_scheme", "\"dynamic\" with weight_block_size");
      power_scales_ = fields.find("scale_fmt") != nullptr;
    }
    if (fields.find("scale_fmt") && (!blocks_ || *fields.find("scale_fmt") != "ue8m0"))
      fields.refuse("scale_fmt", "\"ue8m0\" with weight_block_size, or none");
    activation_ = blocks_            ? ActivationRule::per_group
                  : rule == "static" ? ActivationRule::fixed
                                     : ActivationRule::per_token;
    for (const std::string_view list : {"modules_to_not_convert", "ignored_layers"})
      for (const std::string& name : names_of(fields, list))
        left_out_.push_back(ModulePattern::prefix_or_suffix(name));
  }

  std::string description() const override {
    return blocks_ ? fmt::format("fp8, blocks of 128 x 128, activations in groups of 128{}",
                                 power_scales_ ? " with powers of two as scales" : "")
                   : fmt::format("fp8, {} activations",
                                 activation_ == ActivationRule::fixed ? "static" : "dynamic");
  }
  bool keeps_fp8_kv() const override { return keeps_fp8_kv_; }
  int64_t activation_group() const override { return blocks_ ? block : 1; }

 private:
  std::optional<std::string> left_out(std::string_view module) const override {
    return entry_of(left_out_, module);
  }

  std::unique_ptr<const StoredWeight> coded(const std::string& module, const Shape& shape,
                                            const WeightIndex* index) const override {
    const CodesLayout layout{"F8_E4M3", blocks_ ? "weight_scale_inv" : "weight_scale", blocks_ ? block : 0};
    return scaled_codes(module, shape, index, layout,
                        {.format = WeightFormat::fp8,
                         .group = blocks_ ? block : -1,
                         .activation = activation_,
                         .power_scales = power_scales_});
  }

  bool blocks_ = false;
  bool power_scales_ = false;
  bool keeps_fp8_kv_ = false;
  ActivationRule activation_;
  ModulePatterns left_out_;
};

}  // namespace

std::unique_ptr<const QuantScheme> fp8_scheme(const SchemeConfig& config) {
  return std::make_unique<Fp8>(config.fields);
}

}  // namespace maniple
