// Rotary position embedding (arXiv 2104.09864): the table of angles. kernels rotate by it.
#pragma once

#include <layers/model_config.hpp>

#include <vector>

namespace maniple {

// Angular frequency of each of head_dim / 2 pairs. llama3 as in Llama 3.1: pairs slower than the original
// context are divided by the factor, those between the two frequency factors are interpolated.
std::vector<double> rotary_frequencies(const RotaryConfig& config, int64_t head_dim);

// fp32 [positions, head_dim], each row head_dim / 2 cosines, then as many sines.
std::vector<float> rotary_table(const RotaryConfig& config, int64_t head_dim, int64_t positions);

}  // namespace maniple
