#include <layers/rotary.hpp>

#include <cmath>
#include <numbers>

namespace maniple {
namespace {

double llama3_frequency(double frequency, const RotaryConfig& config) {
  const double turns =
      static_cast<double>(config.original_max_position_embeddings) * frequency / (2 * std::numbers::pi);
  if (turns < config.low_freq_factor) return frequency / config.factor;
  if (turns > config.high_freq_factor) return frequency;
  const double smooth = (turns - config.low_freq_factor) / (config.high_freq_factor - config.low_freq_factor);
  return (1 - smooth) * frequency / config.factor + smooth * frequency;
}

}  // namespace

std::vector<double> rotary_frequencies(const RotaryConfig& config, int64_t head_dim) {
  std::vector<double> frequencies;
  for (int64_t pair = 0; pair < head_dim / 2; ++pair) {
    const double frequency =
        std::pow(config.theta, -2.0 * static_cast<double>(pair) / static_cast<double>(head_dim));
    frequencies.push_back(config.type == RotaryType::llama3 ? llama3_frequency(frequency, config)
                                                            : frequency);
  }
  return frequencies;
}

std::vector<float> rotary_table(const RotaryConfig& config, int64_t head_dim, int64_t padded,
                                int64_t positions) {
  std::vector<double> frequencies = rotary_frequencies(config, head_dim);
  frequencies.resize(static_cast<size_t>(padded / 2));
  const size_t half = frequencies.size();
  std::vector<float> table(static_cast<size_t>(positions) * 2 * half);
  for (int64_t position = 0; position < positions; ++position) {
    float* row = table.data() + static_cast<size_t>(position) * 2 * half;
    for (size_t pair = 0; pair < half; ++pair) {
      const double angle = static_cast<double>(position) * frequencies[pair];
      row[pair] = static_cast<float>(std::cos(angle));
      row[half + pair] = static_cast<float>(std::sin(angle));
    }
  }
  return table;
}

}  // namespace maniple
