// MXFP4 as gpt-oss publishes it: the experts of a layer in <tensor>_blocks [experts, outputs, inputs / 32, 16], two e2m1 codes a byte,
// the lower half first, and <tensor>_scales [experts, outputs, inputs / 32] in e8m0. Inputs are not rounded.
#include <runtime/checkpoint/quantization/packed_words.hpp>
#include <runtime/checkpoint/quantization/registry.hpp>
#include <runtime/checkpoint/quantization/stored_values.hpp>

#include <algorithm>
#include <cstring>
#include <utility>

namespace maniple {
namespace {

constexpr int64_t inputs_of_block = 32;  // that share a scale

class Mxfp4Experts final : public StoredWeight {
 public:
  Mxfp4Experts(std::string tensor, const Shape& shape) : tensor_(std::move(tensor)), shape_(shape) {
    if (shape[2] % inputs_of_block != 0)
      refuse_files("{}: mxfp4 stores {} inputs in whole blocks of {}", tensor_, shape[2], inputs_of_block);
  }

  const ModuleQuantization& quantization() const override { return quantization_; }
  std::vector<ExpectedTensor> tensors() const override {
    const int64_t blocks = shape_[2] / inputs_of_block;
    return {{blocks_name(), {"U8"}, {{shape_[0], shape_[1], blocks, inputs_of_block / 2}}},
            {scales_name(), {"U8"}, {{shape_[0], shape_[1], blocks}}}};
  }
  std::vector<StoredBox> needs(const Box& wanted) const override {
    return {{blocks_name(), wanted.rows, covering(wanted.columns, 2)},
            {scales_name(), wanted.rows, covering(wanted.columns, inputs_of_block)}};
  }

  RawRows decode(const Box& wanted, std::span<const StoredPart> stored, DecodedRows& memory) const override {
    const int64_t rows = wanted.rows.size(), columns = wanted.columns.size(),
                  across = covering(wanted.columns, inputs_of_block).size();
    memory.values.resize(static_cast<size_t>(rows * columns));
    memory.scales.resize(static_cast<size_t>(rows * across));
    auto* code = reinterpret_cast<uint8_t*>(memory.values.data());
    for (int64_t row = wanted.rows.begin; row < wanted.rows.end; ++row) {
      const std::byte* const bytes = place(stored[0], row, wanted.columns.begin / 2);
      for (int64_t column = 0, nibble = wanted.columns.begin % 2; column < columns; ++column, ++nibble)
        *code++ = static_cast<uint8_t>(bytes[nibble / 2] >> 4 * (nibble % 2) & std::byte{0xf});
      std::memcpy(&memory.scales[static_cast<size_t>((row - wanted.rows.begin) * across)],
                  place(stored[1], row, wanted.columns.begin / inputs_of_block), static_cast<size_t>(across));
    }
    if (std::ranges::count(memory.scales, std::byte{PowerScale::nan}) > 0)
      throw Error(ExitCode::input,
                  fmt::format("tensor {} holds a scale of 255, which is no number", scales_name()),
                  "no weight that it multiplies would be one", "download the model's files again");
    return {view_of(memory.values.data(), DType::uint8, {rows, columns}),
            view_of(memory.scales.data(), DType::e8m0, {rows, across}),
            {}};
  }

 private:
  std::string blocks_name() const { return tensor_ + "_blocks"; }
  std::string scales_name() const { return tensor_ + "_scales"; }

  static const std::byte* place(const StoredPart& part, int64_t row, int64_t column) {
    return part.bytes.data() + (row - part.box.rows.begin) * part.box.columns.size() +
           (column - part.box.columns.begin);
  }

  std::string tensor_;
  Shape shape_;
  ModuleQuantization quantization_{
      .format = WeightFormat::mxfp4, .group = inputs_of_block, .scale = DType::e8m0};
};

class Mxfp4 final : public QuantScheme {
 public:
  explicit Mxfp4(const JsonFields& fields) {
    for (const std::string& name : names_of(fields, "modules_to_not_convert"))
      left_out_.push_back(
          ModulePattern::regex(name, "config.json: quantization_config.modules_to_not_convert"));
  }

  std::string description() const override {
    return "mxfp4, " + groups_text(inputs_of_block) + ", of experts";
  }
  std::unique_ptr<const StoredWeight> fused_experts(const std::string& tensor,
                                                    const Shape& shape) const override {
    return std::make_unique<Mxfp4Experts>(tensor, shape);
  }

 private:
  std::optional<std::string> left_out(std::string_view module) const override {
    return entry_of(left_out_, module);
  }
  bool covers(std::string_view) const override { return false; }

  ModulePatterns left_out_;
};

}  // namespace

std::unique_ptr<const QuantScheme> mxfp4_scheme(const SchemeConfig& config) {
  return std::make_unique<Mxfp4>(config.fields);
}

}  // namespace maniple
