#include <runtime/checkpoint/quantization/scaled_codes.hpp>
#include <runtime/checkpoint/quantization/stored_values.hpp>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <utility>

namespace maniple {
namespace {

class ScaledCodes final : public StoredWeight {
 public:
  ScaledCodes(std::string module, const Shape& shape, const IndexedTensor* scales, const CodesLayout& layout,
              ModuleQuantization quantization)
      : module_(std::move(module)),
        outputs_(shape[0]),
        inputs_(shape[1]),
        layout_(layout),
        quantization_(std::move(quantization)) {
    if (!scales) return;
    quantization_.scale = scales->info.dtype.value_or(quantization_.scale);
    if (layout_.block == 0 && is_scalar(scales->info)) for_tensor_ = scales->value;
  }

  const ModuleQuantization& quantization() const override { return quantization_; }

  std::vector<ExpectedTensor> tensors() const override {
    std::vector<std::vector<int64_t>> shapes{{outputs_, 1}, {outputs_}, {}, {1}, {1, 1}};
    const Box scales = scales_of({{0, outputs_}, {0, inputs_}});
    if (layout_.block > 0) shapes = {{scales.rows.end, scales.columns.end}};
    std::vector<ExpectedTensor> tensors{{module_ + ".weight", {layout_.type}, {{outputs_, inputs_}}},
                                        {scale_name(), {"BF16", "F16", "F32"}, std::move(shapes)}};
    if (quantization_.activation == ActivationRule::fixed)
      tensors.push_back({module_ + ".input_scale", {"BF16", "F16", "F32"}, {{}, {1}, {1, 1}}});
    return tensors;
  }

  std::vector<StoredBox> needs(const Box& wanted) const override {
    std::vector<StoredBox> boxes{{module_ + ".weight", wanted.rows, wanted.columns}};
    const Box scales = scales_of(wanted);
    if (for_tensor_.empty()) boxes.push_back({scale_name(), scales.rows, scales.columns});
    return boxes;
  }

  RawRows decode(const Box& wanted, std::span<const StoredPart> stored, DecodedRows& memory) const override {
    const int64_t rows = wanted.rows.size(), width = wanted.columns.size();
    const std::span<const std::byte> codes =
        stored[0].bytes.subspan(static_cast<size_t>((wanted.rows.begin - stored[0].box.rows.begin) * width),
                                static_cast<size_t>(rows * width));
    RawRows raw{view_of(codes.data(), DType::uint8, {rows, width}), {}, {}};
    if (quantization_.format != WeightFormat::fp8) {  // two's complement to unsigned
      memory.values.resize(codes.size());
      std::ranges::transform(codes, memory.values.begin(),
                             [](std::byte code) { return code ^ std::byte{0x80}; });
      raw.values.data = memory.values.data();
    }
    const int64_t across = layout_.block > 0 ? scales_of(wanted).columns.size() : 1;
    const size_t item = size_of(quantization_.scale);
    memory.scales.resize(static_cast<size_t>(rows * across) * item);
    for (int64_t row = 0; row < rows; ++row)
      std::memcpy(&memory.scales[static_cast<size_t>(row * across) * item],
                  scales_at(wanted.rows.begin + row, stored), static_cast<size_t>(across) * item);
    if (quantization_.format == WeightFormat::fp8)
      for (int64_t row = 0; row < rows; ++row)
        if (has_nan(codes.subspan(static_cast<size_t>(row * width), static_cast<size_t>(width))))
          std::memset(&memory.scales[static_cast<size_t>(row * across) * item], 0xff, item);
    raw.scales = view_of(memory.scales.data(), quantization_.scale, {rows, across});
    return raw;
  }

 private:
  std::string scale_name() const { return fmt::format("{}.{}", module_, layout_.scales); }

  Box scales_of(const Box& wanted) const {
    if (layout_.block == 0) return {wanted.rows, {0, 1}};
    return {covering(wanted.rows, layout_.block), covering(wanted.columns, layout_.block)};
  }

  // The scales of a row of W. A block may begin before the rows that are held.
  const std::byte* scales_at(int64_t row, std::span<const StoredPart> stored) const {
    if (!for_tensor_.empty()) return for_tensor_.data();
    const int64_t at = (layout_.block > 0 ? row / layout_.block : row) - stored[1].box.rows.begin;
    return &stored[1]
                .bytes[static_cast<size_t>(at * stored[1].box.columns.size()) * size_of(quantization_.scale)];
  }

  // Kernels have no NaN among codes: the row gets a scale of NaN (all ones, in every type).
  static bool has_nan(std::span<const std::byte> codes) {
    return std::ranges::any_of(codes,
                               [](std::byte code) { return (code & std::byte{0x7f}) == std::byte{0x7f}; });
  }

  std::string module_;
  int64_t outputs_, inputs_;
  CodesLayout layout_;
  ModuleQuantization quantization_;
  std::vector<std::byte> for_tensor_;  // the scale of the whole tensor
};

// Not finite is infinity: the product is then NaN, and requests fail.
float positive(float input_scale, const std::string& module) {
  if (!std::isfinite(input_scale)) return std::numeric_limits<float>::infinity();
  if (input_scale <= 0)
    throw Error(ExitCode::input, fmt::format("tensor {}.input_scale is {}", module, input_scale),
                "inputs are divided by it", "download the model's files again");
  return input_scale;
}

}  // namespace

std::unique_ptr<const StoredWeight> scaled_codes(const std::string& module, const Shape& shape,
                                                 const WeightIndex* index, const CodesLayout& layout,
                                                 ModuleQuantization quantization) {
  const IndexedTensor* input = stored_part(index, module, "input_scale");
  if (quantization.activation == ActivationRule::fixed && input && is_scalar(input->info) &&
      is_floating(input->info))
    quantization.input_scale = positive(scalar_of(*input), module);
  return std::make_unique<ScaledCodes>(module, shape, stored_part(index, module, layout.scales), layout,
                                       std::move(quantization));
}

}  // namespace maniple
