// Row kernels in plain pointers: one set for each instruction path and element type (fp32 or bf16).
#pragma once

#include <kernels/gate_activation.hpp>

#include <cstdint>

namespace maniple::cpu {

struct RowKernels {
  void (*rms_norm)(const void* x, const float* weight, float epsilon, int64_t width, void* out);
  void (*gate_mul)(GateActivation activation, const void* gate, const void* up, int64_t width, void* out);
  void (*gate_mul_floats)(GateActivation activation, const float* gate, const float* up, int64_t width,
                          void* out);
  void (*add)(const void* a, const void* b, int64_t count, void* out);
  // The sum of `parts` pointers along the tree of Ops::add_tree; copy may be null.
  void (*add_tree)(const void* const* parts, int64_t num_parts, int64_t count, void* out, void* copy);
  void (*add_floats)(void* x, const float* b, int64_t count);  // x += b
};

// A score is logit / temperature + noise(keys, id), or the
// plain logit for temperature 0. See reference/noise.hpp.
struct Draw {
  float temperature;
  uint32_t first_key;
  uint32_t second_key;
};

// Logits that are not a number count as -inf, but for all_finite.
struct SamplingKernels {
  bool (*all_finite)(const float* logits, int64_t count);
  // The id with the best score, the lowest among equals, and its score. ids may be null: then the ids are
  // first_id, first_id + 1, ...
  int32_t (*best)(const float* logits, const int32_t* ids, int32_t first_id, int64_t count, Draw draw,
                  float* score);
  float (*maximum)(const float* logits, int64_t count);
  // The places of logits that are at least `floor`, ascending. Returns how many; places has room for all.
  int64_t (*at_least)(const float* logits, int64_t count, float floor, int32_t* places);
  // Sum of exp(logit - maximum).
  float (*exp_sum)(const float* logits, int64_t count, float maximum);
  // shares[i] = exp(logits[i] / temperature - maximum / temperature).
  void (*shares)(const float* logits, int64_t count, float temperature, float maximum, float* shares);
};

RowKernels row_kernels_avx512(bool bf16);
RowKernels row_kernels_avx2(bool bf16);
RowKernels row_kernels_portable(bool bf16);
SamplingKernels sampling_kernels_avx512();
SamplingKernels sampling_kernels_avx2();
SamplingKernels sampling_kernels_portable();

}  // namespace maniple::cpu
