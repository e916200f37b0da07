// Sizes of a tensor, outermost dimension first, and half-open ranges of indices.
#pragma once

#include <kernels/support/check.hpp>

#include <array>
#include <cstdint>
#include <initializer_list>
#include <string>

namespace maniple {

struct IndexRange {
  int64_t begin = 0;
  int64_t end = 0;

  int64_t size() const { return end - begin; }
  bool contains(int64_t index) const { return begin <= index && index < end; }
  bool operator==(const IndexRange&) const = default;
};

// Up to four dimensions, contiguous, row major.
class Shape {
 public:
  static constexpr int max_rank = 4;

  Shape() = default;
  Shape(std::initializer_list<int64_t> sizes) {
    require(sizes.size() <= max_rank, "a shape has at most four dimensions");
    for (const int64_t size : sizes) sizes_[rank_++] = size;
  }

  int rank() const { return rank_; }
  int64_t operator[](int dimension) const { return sizes_[dimension]; }
  int64_t& operator[](int dimension) { return sizes_[dimension]; }
  // 0 for the default shape, which means an absent tensor.
  int64_t elements() const {
    int64_t product = rank_ > 0 ? 1 : 0;
    for (int d = 0; d < rank_; ++d) product *= sizes_[d];
    return product;
  }
  // Elements of one entry of the outermost dimension.
  int64_t row_elements() const {
    int64_t product = rank_ > 0 ? 1 : 0;
    for (int d = 1; d < rank_; ++d) product *= sizes_[d];
    return product;
  }
  bool operator==(const Shape&) const = default;

 private:
  std::array<int64_t, max_rank> sizes_{};
  int rank_ = 0;
};

// "[2, 3]"
inline std::string to_string(const Shape& shape) {
  std::string text = "[";
  for (int d = 0; d < shape.rank(); ++d) text += fmt::format("{}{}", d ? ", " : "", shape[d]);
  return text + "]";
}

}  // namespace maniple
