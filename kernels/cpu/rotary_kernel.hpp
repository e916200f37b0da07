// The input of an instruction path's rotary kernel, in plain pointers. attention_kernel.hpp says why.
#pragma once

#include <cstdint>

namespace maniple::cpu {

// One token. Query heads are contiguous in `qkv` and
// `queries`. Keys and values have one slot for each KV head, in the order of CpuPages.
struct RotaryToken {
  const void* qkv;
  void* queries;
  void* keys;               // slot of KV head 0
  void* values;             // slot of KV head 0
  int64_t head_bytes;       // between the slots of two KV heads
  const float* cos_sin;     // [rotary_width], cosines and sines
  const float* query_norm;  // null: none
  const float* key_norm;
  float epsilon;
  // Of a norm over all heads, whose weights go on from head to head; negative: of each head by itself.
  float query_inverse;
  float key_inverse;
  int norm_size;  // lanes in the mean of squares: a head without its padding
  int query_heads;
  int kv_heads;
  int head_dim;
  int rotary_width;
  bool stores_e4m3;  // else in the type of qkv
  float key_scale;   // what e4m3 keys are divided by
  float value_scale;
};

inline constexpr int max_rotary_head_dim = 1024;

using RotaryKernel = void (*)(const RotaryToken& token);

// bf16: activations are bf16, else fp32.
RotaryKernel rotary_kernel_avx512(bool bf16);
RotaryKernel rotary_kernel_avx2(bool bf16);
RotaryKernel rotary_kernel_portable(bool bf16);

}  // namespace maniple::cpu
