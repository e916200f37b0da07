#include <layers/rotary.hpp>

#include <algorithm>
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

// The pair that turns so often in the original context.
double yarn_pair(double turns, const RotaryConfig& config, int64_t width) {
  const auto original = static_cast<double>(config.original_max_position_embeddings);
  return static_cast<double>(width) * std::log(original / (2 * std::numbers::pi * turns)) /
         (2 * std::log(config.theta));
}

struct Ramp {
  double low, high;

  Ramp(const RotaryConfig& config, int64_t width)
      : low(yarn_pair(config.beta_fast, config, width)), high(yarn_pair(config.beta_slow, config, width)) {
    if (config.truncate) low = std::floor(low), high = std::ceil(high);
    low = std::max(low, 0.0);
    high = std::min(high, static_cast<double>(width - 1));
    if (low == high) high += 0.001;
  }
  double at(double pair) const { return std::clamp((pair - low) / (high - low), 0.0, 1.0); }
};

double yarn_mscale(double factor, double mscale) {
  return factor > 1 ? 0.1 * mscale * std::log(factor) + 1 : 1;
}

}  // namespace

std::vector<double> rotary_frequencies(const RotaryConfig& config, int64_t width) {
  std::vector<double> frequencies;
  for (int64_t pair = 0; pair < width / 2; ++pair) {
    const double frequency =
        std::pow(config.theta, -2.0 * static_cast<double>(pair) / static_cast<double>(width));
    frequencies.push_back(config.type == RotaryType::llama3 ? llama3_frequency(frequency, config)
                                                            : frequency);
  }
  if (config.type != RotaryType::yarn) return frequencies;
  const Ramp ramp(config, width);
  for (size_t pair = 0; pair < frequencies.size(); ++pair) {
    const double slowed = ramp.at(static_cast<double>(pair));
    frequencies[pair] *= slowed / config.factor + (1 - slowed);
  }
  return frequencies;
}

double rotary_amplitude(const RotaryConfig& config) {
  if (config.type != RotaryType::yarn) return 1;
  if (config.attention_factor) return *config.attention_factor;
  if (config.mscale != 0 && config.mscale_all_dim != 0)
    return yarn_mscale(config.factor, config.mscale) / yarn_mscale(config.factor, config.mscale_all_dim);
  return yarn_mscale(config.factor, 1);
}

double latent_score_factor(const RotaryConfig& config) {
  const double factor =
      config.type == RotaryType::yarn ? yarn_mscale(config.factor, config.mscale_all_dim) : 1;
  return factor * factor;
}

std::vector<float> rotary_table(const RotaryConfig& config, int64_t width, int64_t padded,
                                int64_t positions) {
  std::vector<double> frequencies = rotary_frequencies(config, width);
  const double amplitude = rotary_amplitude(config);
  const size_t pairs = frequencies.size();
  frequencies.resize(static_cast<size_t>(padded / 2));
  const size_t half = frequencies.size();
  std::vector<float> table(static_cast<size_t>(positions) * 2 * half);
  for (int64_t position = 0; position < positions; ++position) {
    float* row = table.data() + static_cast<size_t>(position) * 2 * half;
    for (size_t pair = 0; pair < half; ++pair) {
      const double angle = static_cast<double>(position) * frequencies[pair];
      const double scale = pair < pairs ? amplitude : 1;
      row[pair] = static_cast<float>(scale * std::cos(angle));
      row[half + pair] = static_cast<float>(scale * std::sin(angle));
    }
  }
  return table;
}

}  // namespace maniple
