// Tensors for tests: random by seed, read back as floats, compared bit by bit.
#pragma once

#include <kernels/tensor/tensor.hpp>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

namespace maniple::testing {

// A hash: gives a value by its index.
inline uint64_t hashed(uint64_t x) {
  x += 0x9e3779b97f4a7c15u;
  x = (x ^ (x >> 33)) * 0xff51afd7ed558ccdu;
  x = (x ^ (x >> 33)) * 0xc4ceb9fe1a85ec53u;
  return x ^ (x >> 33);
}
// Uniform in [-1, 1).
inline float uniform(uint64_t seed, uint64_t index) {
  return static_cast<float>(static_cast<int64_t>(hashed(hashed(seed) + index)) >> 32) * 0x1p-31f;
}

// The nearest value that the type holds.
inline float rounded(DType dtype, float value) {
  if (dtype == DType::bf16) return static_cast<float>(BFloat16(value));
  return dtype == DType::fp16 ? static_cast<float>(Float16(value)) : value;
}

inline void set(TensorView tensor, int64_t index, float value) {
  if (tensor.dtype == DType::bf16)
    tensor.as<BFloat16>()[index] = BFloat16(value);
  else if (tensor.dtype == DType::fp16)
    tensor.as<Float16>()[index] = Float16(value);
  else if (tensor.dtype == DType::e8m0)
    tensor.as<PowerScale>()[index] = PowerScale(value);
  else
    tensor.as<float>()[index] = value;
}
inline float get(ConstTensorView tensor, int64_t index) {
  if (tensor.dtype == DType::bf16) return static_cast<float>(tensor.as<BFloat16>()[index]);
  if (tensor.dtype == DType::fp16) return static_cast<float>(tensor.as<Float16>()[index]);
  return tensor.as<float>()[index];
}

inline void fill(TensorView tensor, float value) {
  for (int64_t i = 0; i < tensor.shape.elements(); ++i) set(tensor, i, value);
}
inline void fill_random(TensorView tensor, uint64_t seed, float scale = 1) {
  for (int64_t i = 0; i < tensor.shape.elements(); ++i)
    set(tensor, i, scale * uniform(seed, static_cast<uint64_t>(i)));
}
inline Tensor random_tensor(Device& device, DType dtype, const Shape& shape, uint64_t seed, float scale = 1) {
  Tensor tensor(device, dtype, shape);
  fill_random(tensor, seed, scale);
  return tensor;
}
inline Tensor int_tensor(Device& device, const std::vector<int32_t>& values) {
  Tensor tensor(device, DType::int32, {static_cast<int64_t>(values.size())});
  std::copy(values.begin(), values.end(), tensor.view().as<int32_t>());
  return tensor;
}
inline std::vector<float> floats_of(ConstTensorView tensor) {
  std::vector<float> values;
  for (int64_t i = 0; i < tensor.shape.elements(); ++i) values.push_back(get(tensor, i));
  return values;
}
inline bool same_bits(ConstTensorView a, ConstTensorView b) {
  return a.bytes() == b.bytes() && a.dtype == b.dtype && std::memcmp(a.data, b.data, a.bytes()) == 0;
}

// Contiguous rows with NaN after them: a read beyond the rows spoils the result.
class PoisonedRows {
 public:
  PoisonedRows(Device& device, ConstTensorView rows)
      : memory_(device, rows.dtype, {rows.shape.elements() + 512}), shape_(rows.shape) {
    fill(memory_, std::numeric_limits<float>::quiet_NaN());
    if (!rows.empty()) std::memcpy(memory_.view().data, rows.data, rows.bytes());
  }
  ConstTensorView view() const { return {memory_.view().data, memory_.dtype(), shape_}; }

 private:
  Tensor memory_;
  Shape shape_;
};

// An output followed by a pattern that must not change.
class GuardedTensor {
 public:
  GuardedTensor(Device& device, DType dtype, const Shape& shape)
      : memory_(device, dtype, {shape.elements() + 256}), shape_(shape) {
    fill(memory_, 12345);
  }
  TensorView view() { return {memory_.view().data, memory_.dtype(), shape_}; }
  bool intact() const {
    for (int64_t i = shape_.elements(); i < memory_.shape().elements(); ++i)
      if (get(memory_, i) != rounded(memory_.dtype(), 12345)) return false;
    return true;
  }

 private:
  Tensor memory_;
  Shape shape_;
};

}  // namespace maniple::testing
