// Rotary position embedding (arXiv 2104.09864): the table of angles, which the kernels apply.
#pragma once

#include <layers/model_config.hpp>

#include <vector>

namespace maniple {

// The angular frequency of each of width / 2 pairs. llama3 (Llama 3.1) counts a pair's turns over the
// original context: below low_freq_factor the frequency is divided by factor, above high_freq_factor it
// stays, in between it is interpolated.
std::vector<double> rotary_frequencies(const RotaryConfig& config, int64_t width);

// What latent attention multiplies its scale with: the square of yarn's factor of mscale_all_dim.
double latent_score_factor(const RotaryConfig& config);
// What cosines and sines are multiplied with.
double rotary_amplitude(const RotaryConfig& config);

// fp32 [positions, padded], each row padded / 2 cosines, then as many sines: those of the pairs of the first
// `width` lanes, then angles of 0.
std::vector<float> rotary_table(const RotaryConfig& config, int64_t width, int64_t padded, int64_t positions);

}  // namespace maniple
