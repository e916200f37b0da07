// Quantises a checkpoint in floating point while it is loaded, by rounding to nearest: int8 and fp8 with a scale for each row and
// activations per token, int4 in groups of 32 columns. fp8 leaves the head as it is and has the bits of published models that
// were quantised without data. With int8 and int4 the head, and a tied table with it, becomes int8 by rows, its inputs unrounded.
#include <kernels/reference/rows.hpp>
#include <runtime/checkpoint/quantization/registry.hpp>
#include <runtime/checkpoint/quantization/stored_values.hpp>

#include <algorithm>
#include <cmath>
#include <utility>

namespace maniple {
namespace {

constexpr int64_t int4_group = 32;

// The codes of numbers with a scale in bf16.
struct Coder {
  WeightFormat format;
  // |number| / scale of the largest: 7.5 lets the one negative code more be used.
  float range() const {
    return format == WeightFormat::fp8 ? Float8::largest : format == WeightFormat::int8 ? 127.0F : 7.5F;
  }
  BFloat16 scale_of(std::span<const float> values) const {
    float largest = 0;
    for (const float value : values)
      largest =
          std::isfinite(value) ? std::max(largest, std::abs(value)) : std::numeric_limits<float>::quiet_NaN();
    const BFloat16 scale(largest / range());
    return static_cast<float>(scale) == 0 ? BFloat16(1.0F) : scale;
  }
  uint8_t code_of(float value, float scale) const {
    if (!std::isfinite(value) || std::isnan(scale)) return 0;  // the scale is not finite
    if (format == WeightFormat::fp8) return Float8(value / scale).bits;
    const float code = std::nearbyint(value / scale);
    if (format == WeightFormat::int8) return static_cast<uint8_t>(std::clamp(code, -127.0F, 127.0F) + 128);
    return static_cast<uint8_t>(std::clamp(code, -8.0F, 7.0F) + 8);
  }
};

class RoundedMatrix final : public StoredWeight {
 public:
  RoundedMatrix(const std::string& tensor, const Shape& shape, ModuleQuantization quantization)
      : tensor_(tensor),
        inputs_(shape[shape.rank() - 1]),
        dense_(dense_weight(tensor_, shape)),
        quantization_(std::move(quantization)) {}

  const ModuleQuantization& quantization() const override { return quantization_; }
  std::vector<ExpectedTensor> tensors() const override { return dense_->tensors(); }
  // Whole groups, for their scales.
  std::vector<StoredBox> needs(const Box& wanted) const override {
    const IndexRange groups = covering(wanted.columns, group());
    return {{tensor_, wanted.rows, {groups.begin * group(), std::min(groups.end * group(), inputs_)}}};
  }

  RawRows decode(const Box& wanted, std::span<const StoredPart> stored, DecodedRows& memory) const override {
    const Coder coder{quantization_.format};
    const Box& held = stored[0].box;
    const int64_t rows = wanted.rows.size(), width = held.columns.size();
    const IndexRange groups = covering(wanted.columns, group());
    const ConstTensorView raw =
        view_of(stored[0].bytes.data(), *stored[0].info->dtype, {held.rows.size(), width});
    memory.values.resize(static_cast<size_t>(wanted.elements()));
    memory.scales.resize(static_cast<size_t>(rows * groups.size()) * sizeof(BFloat16));
    auto* code = reinterpret_cast<uint8_t*>(memory.values.data());
    auto* scale = reinterpret_cast<BFloat16*>(memory.scales.data());
    for (int64_t row = 0; row < rows; ++row) {
      const std::vector<float> values =
          reference::read(raw, (wanted.rows.begin - held.rows.begin + row) * width, width);
      for (int64_t first = held.columns.begin; first < held.columns.end; first += group(), ++scale) {
        const int64_t end = std::min(first + group(), held.columns.end);
        *scale = coder.scale_of(std::span(values).subspan(static_cast<size_t>(first - held.columns.begin),
                                                          static_cast<size_t>(end - first)));
        for (int64_t column = std::max(first, wanted.columns.begin);
             column < std::min(end, wanted.columns.end); ++column)
          *code++ = coder.code_of(values[static_cast<size_t>(column - held.columns.begin)],
                                  static_cast<float>(*scale));
      }
    }
    return {view_of(memory.values.data(), DType::uint8, {rows, wanted.columns.size()}),
            view_of(memory.scales.data(), DType::bf16, {rows, groups.size()}),
            {}};
  }

 private:
  int64_t group() const { return quantization_.group < 0 ? inputs_ : quantization_.group; }

  std::string tensor_;
  int64_t inputs_;
  std::unique_ptr<const StoredWeight> dense_;
  ModuleQuantization quantization_;
};

class WhileLoading final : public QuantScheme {
 public:
  WhileLoading(WeightFormat format, bool tied) : format_(format), tied_(tied) {}

  std::string description() const override {
    return fmt::format("quantised to {} while loading{}", name_of(format_),
                       format_ == WeightFormat::int4 ? ", " + groups_text(int4_group) : "");
  }
  std::unique_ptr<const StoredWeight> of(const std::string& module, const Shape& shape,
                                         const WeightIndex* index) const override {
    return covers(module) ? coded(module, shape, index) : dense_weight(module + ".weight", shape);
  }
  std::unique_ptr<const StoredWeight> fused_experts(const std::string& tensor,
                                                    const Shape& shape) const override {
    return std::make_unique<RoundedMatrix>(tensor, shape, quantization_of(shape[2]));
  }

 private:
  bool covers(std::string_view module) const override {
    return is_head(module) ? format_ != WeightFormat::fp8 : is_linear(module);
  }
  bool is_head(std::string_view module) const { return tied_ ? !is_linear(module) : module == "lm_head"; }
  std::unique_ptr<const StoredWeight> coded(const std::string& module, const Shape& shape,
                                            const WeightIndex*) const override {
    return std::make_unique<RoundedMatrix>(
        module + ".weight", shape,
        is_head(module) ? ModuleQuantization{.format = WeightFormat::int8} : quantization_of(shape[1]));
  }
  ModuleQuantization quantization_of(int64_t inputs) const {
    if (format_ == WeightFormat::int4)
      return {.format = format_, .group = int4_group < inputs ? int4_group : -1};
    return {.format = format_, .activation = ActivationRule::per_token};
  }

  WeightFormat format_;
  bool tied_;
};

}  // namespace

std::unique_ptr<const QuantScheme> scheme_while_loading(WeightFormat format, bool tied) {
  return std::make_unique<WhileLoading>(format, tied);
}

}  // namespace maniple
