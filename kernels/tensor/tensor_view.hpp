// Non-owning, contiguous, row-major views. As a parameter a ConstTensorView is read, a TensorView is written.
#pragma once

#include <kernels/tensor/dtype.hpp>
#include <kernels/tensor/shape.hpp>

#include <cstddef>

namespace maniple {

template <typename Byte>
struct BasicTensorView {
  Byte* data = nullptr;
  DType dtype = DType::fp32;
  Shape shape;

  size_t bytes() const { return static_cast<size_t>(shape.elements()) * size_of(dtype); }
  bool empty() const { return shape.elements() == 0; }

  // The elements as T. Checks their size, not their meaning.
  template <typename T>
  auto as() const {
    require(sizeof(T) == size_of(dtype), "a tensor is viewed with another element size");
    if constexpr (std::is_const_v<Byte>)
      return reinterpret_cast<const T*>(data);
    else
      return reinterpret_cast<T*>(data);
  }

  // Entries [begin, begin + count) of the outermost dimension.
  BasicTensorView rows(int64_t begin, int64_t count) const {
    require(0 <= begin && 0 <= count && begin + count <= shape[0], "rows outside the tensor");
    BasicTensorView part = *this;
    if (data) part.data += static_cast<size_t>(begin * shape.row_elements()) * size_of(dtype);
    part.shape[0] = count;
    return part;
  }

  BasicTensorView reshaped(const Shape& other) const {
    require(other.elements() == shape.elements(), "reshaped to another number of elements");
    return {data, dtype, other};
  }

  operator BasicTensorView<const std::byte>() const { return {data, dtype, shape}; }
};

using TensorView = BasicTensorView<std::byte>;
using ConstTensorView = BasicTensorView<const std::byte>;

template <typename T>
TensorView view_of(T* data, DType dtype, const Shape& shape) {
  return {reinterpret_cast<std::byte*>(data), dtype, shape};
}
template <typename T>
ConstTensorView view_of(const T* data, DType dtype, const Shape& shape) {
  return {reinterpret_cast<const std::byte*>(data), dtype, shape};
}

}  // namespace maniple
