// Golden data of tests/data/models, made by an independent implementation (see the README there).
#pragma once

#include <nlohmann/json.hpp>
#include <support/test_data.hpp>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

namespace maniple::testing {

inline std::string read_file(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) throw std::runtime_error("cannot open " + path.string());
  return {std::istreambuf_iterator<char>(file), {}};
}

struct GoldenSequence {
  std::vector<int32_t> prompt;
  std::vector<int32_t> tokens;  // greedy continuation
  std::vector<float> logits;    // [rows, vocabulary]: row t chose token t
};

struct Golden {
  std::vector<GoldenSequence> sequences;
  double bf16_max_abs = 0;  // errors of the independent implementation's own bf16 run
  double bf16_rms = 0;
  std::optional<double> bf16_median_row;  // rms of the row of logits in the middle
  // Of a model that rounds its activations: the rms that fp32 may have. One code that flips is seen by all that follows.
  std::optional<double> fp32_rms;
};

inline std::filesystem::path model_directory(const std::string& name) {
  return test_data() / "models" / name;
}

inline Golden read_golden(const std::string& model) {
  const std::string bytes = read_file(model_directory(model) / "golden.safetensors");
  uint64_t header_bytes = 0;
  std::memcpy(&header_bytes, bytes.data(), 8);
  const auto header = nlohmann::json::parse(bytes.substr(8, header_bytes));
  const auto array = [&](const std::string& name, auto& out) {
    const auto offsets = header.at(name).at("data_offsets");
    const size_t begin = offsets[0], end = offsets[1];
    out.resize((end - begin) / 4);
    std::memcpy(out.data(), bytes.data() + 8 + header_bytes + begin, end - begin);
  };
  Golden golden;
  for (int i = 0; header.contains("prompt_" + std::to_string(i)); ++i) {
    GoldenSequence& sequence = golden.sequences.emplace_back();
    array("prompt_" + std::to_string(i), sequence.prompt);
    array("tokens_" + std::to_string(i), sequence.tokens);
    array("logits_" + std::to_string(i), sequence.logits);
  }
  const auto meta = nlohmann::json::parse(read_file(model_directory(model) / "golden.json"));
  golden.bf16_max_abs = meta.at("bf16_max_abs");
  golden.bf16_rms = meta.at("bf16_rms");
  if (meta.contains("bf16_median_row_rms")) golden.bf16_median_row = meta["bf16_median_row_rms"];
  const double without_rule =
      meta.contains("without_activation_rule") ? meta["without_activation_rule"].at("rms").get<double>() : 0;
  if (without_rule > 0)
    golden.fp32_rms = std::max(0.1 * without_rule, 2 * meta.at("fp32_noise_rms").get<double>());
  return golden;
}

}  // namespace maniple::testing
