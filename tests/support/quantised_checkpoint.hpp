// Rewrites models in bf16 with projections as codes: 4 bits with a scale of 16 inputs, packed as three programs do it, or e4m3 with a
// scale of 128 x 128 numbers. Beside it the numbers that the codes mean, in fp32.
#pragma once

#include <support/fused_checkpoint.hpp>
#include <support/golden.hpp>

#include <cmath>
#include <functional>

namespace maniple::testing {

enum class Codes { pack_quantized, gptq, awq, fp8_blocks };

inline nlohmann::json quantization_of(Codes codes) {
  switch (codes) {
    case Codes::pack_quantized:
      return {{"quant_method", "compressed-tensors"},
              {"format", "pack-quantized"},
              {"config_groups",
               {{"group_0",
                 {{"targets", {"Linear"}},
                  {"weights",
                   {{"num_bits", 4},
                    {"group_size", 16},
                    {"strategy", "group"},
                    {"type", "int"},
                    {"symmetric", true}}}}}}}};
    case Codes::gptq:
      return {{"quant_method", "gptq"}, {"bits", 4}, {"group_size", 16}, {"sym", true}, {"desc_act", false}};
    case Codes::awq:
      return {{"quant_method", "awq"},
              {"bits", 4},
              {"group_size", 16},
              {"zero_point", true},
              {"version", "gemm"}};
    default:
      return {{"quant_method", "fp8"}, {"activation_scheme", "dynamic"}, {"weight_block_size", {128, 128}}};
  }
}

// The codes of a matrix [rows, columns], and what they mean.
class CodedMatrix {
 public:
  CodedMatrix(std::span<const BFloat16> values, int64_t rows, int64_t columns, Codes codes)
      : rows_(rows), columns_(columns), form_(codes), height_(fp8() ? 128 : 1), width_(fp8() ? 128 : 16) {
    scales_.assign(static_cast<size_t>(down() * across()), 0);
    const auto at = [&](int64_t row, int64_t column) { return static_cast<size_t>(row * columns + column); };
    for (int64_t row = 0; row < rows; ++row)
      for (int64_t column = 0; column < columns; ++column)
        scale(row, column) =
            std::max(scale(row, column),
                     std::abs(static_cast<float>(values[at(row, column)])) / (fp8() ? 448.0F : 7.0F));
    for (float& scale : scales_) scale = static_cast<float>(BFloat16(std::max(scale, 1e-3F)));
    for (int64_t row = 0; row < rows; ++row)
      for (int64_t column = 0; column < columns; ++column) {
        const float divided = static_cast<float>(values[at(row, column)]) / scale(row, column);
        const Float8 e4m3(divided);
        const float code =
            fp8() ? static_cast<float>(e4m3) : std::clamp(std::nearbyint(divided), -8.0F, 7.0F);
        codes_.push_back(fp8() ? e4m3.bits : static_cast<uint8_t>(code + 8));
        numbers_.push_back(code * scale(row, column));
      }
  }

  TensorToWrite numbers(const std::string& name) const {
    return {name, "F32", {rows_, columns_}, bytes_of_all(numbers_)};
  }

  std::vector<TensorToWrite> tensors(const std::string& module) const {
    const auto tensor = [&](const char* part, const char* type, std::vector<int64_t> shape, auto&& values) {
      return TensorToWrite{module + part, type, std::move(shape), bytes_of_all(values)};
    };
    const int64_t n = rows_, k = columns_;
    if (form_ == Codes::fp8_blocks)
      return {tensor(".weight", "F8_E4M3", {n, k}, codes_),
              tensor(".weight_scale_inv", "F32", {down(), across()}, scales_)};
    if (form_ == Codes::pack_quantized)
      return {tensor(".weight_packed", "I32", {n, k / 8},
                     words({n, k / 8},
                           [](int64_t row, int64_t word, int64_t i) {
                             return std::pair{row, 8 * word + i};
                           })),
              tensor(".weight_scale", "F32", {n, k / 16}, scales_),
              tensor(".weight_shape", "I64", {2}, std::vector<int64_t>{n, k})};
    std::vector<float> turned;
    for (int64_t group = 0; group < across(); ++group)
      for (int64_t row = 0; row < n; ++row)
        turned.push_back(scales_[static_cast<size_t>(row * across() + group)]);
    const bool gptq = form_ == Codes::gptq;
    const std::vector<uint32_t> zeros(static_cast<size_t>(across() * n / 8),
                                      gptq ? 0x77777777U : 0x88888888U);
    const std::vector<uint32_t> packed = gptq
                                             ? words({k / 8, n},
                                                     [](int64_t word, int64_t row, int64_t i) {
                                                       return std::pair{row, 8 * word + i};
                                                     })
                                             : words({k, n / 8}, [](int64_t column, int64_t word, int64_t i) {
                                                 constexpr int64_t order[] = {0, 2, 4, 6, 1, 3, 5, 7};
                                                 return std::pair{8 * word + order[i], column};
                                               });
    return {tensor(".qweight", "I32", gptq ? std::vector{k / 8, n} : std::vector{k, n / 8}, packed),
            tensor(".qzeros", "I32", {across(), n / 8}, zeros),
            tensor(".scales", "F32", {across(), n}, turned)};
  }

 private:
  bool fp8() const { return form_ == Codes::fp8_blocks; }
  int64_t down() const { return (rows_ + height_ - 1) / height_; }
  int64_t across() const { return (columns_ + width_ - 1) / width_; }
  float& scale(int64_t row, int64_t column) {
    return scales_[static_cast<size_t>(row / height_ * across() + column / width_)];
  }

  // Words in their order; code i of a word, from the lowest bits on, is that of the (row, column) that place(a, b, i) names.
  template <typename Place>
  std::vector<uint32_t> words(std::pair<int64_t, int64_t> shape, Place place) const {
    std::vector<uint32_t> words;
    for (int64_t a = 0; a < shape.first; ++a)
      for (int64_t b = 0; b < shape.second; ++b) {
        uint32_t& word = words.emplace_back(0);
        for (int64_t i = 0; i < 8; ++i) {
          const auto [row, column] = place(a, b, i);
          word |= uint32_t{codes_[static_cast<size_t>(row * columns_ + column)]} << 4 * i;
        }
      }
    return words;
  }

  template <typename T>
  static std::vector<std::byte> bytes_of_all(const std::vector<T>& values) {
    const auto bytes = std::as_bytes(std::span(values));
    return {bytes.begin(), bytes.end()};
  }

  int64_t rows_, columns_;
  Codes form_;
  int64_t height_, width_;  // of what shares a scale
  std::vector<uint8_t> codes_;
  std::vector<float> scales_, numbers_;
};

// The projections whose names have `part` in them. plain: the model with their numbers.
inline void write_quantised(const std::filesystem::path& model, Codes codes, std::string_view part,
                            const std::filesystem::path& to, const std::filesystem::path& plain) {
  std::vector<TensorToWrite> coded, numbers;
  const WeightIndex index = read_index(model);
  for (const auto& [name, tensor] : index.tensors) {
    const std::vector<std::byte> bytes = bytes_of(index, name);
    const std::vector<int64_t>& shape = tensor.info.shape;
    const bool projection = name.find("_proj") != name.npos && name.find(part) != name.npos;
    if (!projection || !name.ends_with(".weight")) {
      coded.push_back({name, tensor.info.stored_type, shape, bytes});
      numbers.push_back(coded.back());
      continue;
    }
    const CodedMatrix matrix({reinterpret_cast<const BFloat16*>(bytes.data()), bytes.size() / 2}, shape[0],
                             shape[1], codes);
    numbers.push_back(matrix.numbers(name));
    for (TensorToWrite& made : matrix.tensors(name.substr(0, name.rfind('.'))))
      coded.push_back(std::move(made));
  }
  auto config = nlohmann::json::parse(read_file(model / "config.json"));
  write_safetensors(plain / "model.safetensors", numbers);
  std::ofstream(plain / "config.json") << config;
  config["quantization_config"] = quantization_of(codes);
  write_safetensors(to / "model.safetensors", coded);
  std::ofstream(to / "config.json") << config;
}

}  // namespace maniple::testing
