// publish_fp8 MODEL TARGET: writes a model in floating point as llm-compressor publishes it without data: e4m3 with a scale in
// bf16 for each output, amax / 448, everything rounded to the nearest, half to even. Shares no rounding with the program.
#include <nlohmann/json.hpp>
#include <runtime/checkpoint/safetensors.hpp>
#include <support/safetensors_writer.hpp>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <iostream>

namespace maniple {
namespace {

namespace fs = std::filesystem;

bool is_projection(const std::string& name) {
  constexpr std::string_view endings[] = {"_proj.weight", ".w1.weight", ".w2.weight", ".w3.weight"};
  return std::ranges::any_of(endings, [&](std::string_view ending) { return name.ends_with(ending); });
}

float float_of(uint16_t bf16) {
  const uint32_t bits = uint32_t{bf16} << 16;
  float value = 0;
  std::memcpy(&value, &bits, sizeof value);
  return value;
}

uint16_t bf16_of(float positive) {
  uint32_t bits = 0;
  std::memcpy(&bits, &positive, sizeof bits);
  const uint32_t rest = bits & 0xffff, upper = bits >> 16;
  return static_cast<uint16_t>(upper + (rest > 0x8000 || (rest == 0x8000 && upper % 2 == 1) ? 1 : 0));
}

double e4m3_value(int code) {
  const int exponent = code >> 3, mantissa = code & 7;
  return exponent == 0 ? std::ldexp(mantissa, -9) : std::ldexp(8 + mantissa, exponent - 10);
}

// Codes ascend with their values; half way between two the even code wins.
uint8_t e4m3_of(float value) {
  const double magnitude = std::abs(double{value});
  int code = 0;
  while (code < 0x7e && e4m3_value(code + 1) <= magnitude) ++code;
  if (code < 0x7e) {
    const double below = magnitude - e4m3_value(code), above = e4m3_value(code + 1) - magnitude;
    if (above < below || (above == below && code % 2 == 1)) ++code;
  }
  return static_cast<uint8_t>(code | (std::signbit(value) ? 0x80 : 0));
}

void quantise(const TensorToWrite& weight, std::vector<TensorToWrite>& out) {
  const auto rows = static_cast<size_t>(weight.shape[0]), columns = static_cast<size_t>(weight.shape[1]);
  TensorToWrite codes{weight.name, "F8_E4M3", weight.shape, std::vector<std::byte>(rows * columns)},
      scales{weight.name + "_scale", "BF16", {weight.shape[0], 1}, std::vector<std::byte>(rows * 2)};
  std::vector<float> row(columns);
  for (size_t r = 0; r < rows; ++r) {
    float largest = 0;
    for (size_t c = 0; c < columns; ++c) {
      uint16_t stored = 0;
      std::memcpy(&stored, &weight.bytes[2 * (r * columns + c)], sizeof stored);
      row[c] = float_of(stored);
      largest = std::max(largest, std::abs(row[c]));
    }
    const uint16_t scale = bf16_of(largest / 448);
    std::memcpy(&scales.bytes[2 * r], &scale, sizeof scale);
    for (size_t c = 0; c < columns; ++c)
      codes.bytes[r * columns + c] = std::byte{e4m3_of(row[c] / float_of(scale))};
  }
  out.push_back(std::move(codes));
  out.push_back(std::move(scales));
}

void write_config(const fs::path& from, const fs::path& to) {
  nlohmann::json config = nlohmann::json::parse(std::ifstream(from));
  config["quantization_config"] = nlohmann::json::parse(R"({
    "quant_method": "compressed-tensors", "format": "float-quantized", "ignore": ["lm_head", "re:.*gate$"],
    "config_groups": {"group_0": {"targets": ["Linear"],
      "weights": {"num_bits": 8, "type": "float", "strategy": "channel", "symmetric": true, "dynamic": false},
      "input_activations": {"num_bits": 8, "type": "float", "strategy": "token", "symmetric": true, "dynamic": true}}}})");
  std::ofstream(to) << config;
}

void publish(const fs::path& from, const fs::path& to) {
  const InputFile file(from / "model.safetensors");
  std::vector<TensorToWrite> tensors;
  for (const auto& [name, stored] : read_safetensors_header(file)) {
    TensorToWrite tensor{name, stored.info.stored_type, stored.info.shape,
                         std::vector<std::byte>(stored.info.byte_size)};
    file.read(stored.offset, tensor.bytes);
    if (!is_projection(name))
      tensors.push_back(std::move(tensor));
    else if (tensor.dtype == "BF16")
      quantise(tensor, tensors);
    else
      throw std::runtime_error(name + " is stored as " + tensor.dtype);
  }
  fs::create_directory(to);
  write_safetensors(to / "model.safetensors", tensors);
  write_config(from / "config.json", to / "config.json");
  for (const char* name : {"tokenizer.json", "generation_config.json"})
    if (fs::exists(from / name)) fs::copy(from / name, to / name);
}

}  // namespace
}  // namespace maniple

int main(int, char** argv) {
  try {
    maniple::publish(argv[1], argv[2]);
  } catch (const std::exception& error) {
    std::cerr << error.what() << '\n';
    return 1;
  }
}
