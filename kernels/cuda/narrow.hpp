// Sizes of tensors as kernels take them.
#pragma once

#include <kernels/support/check.hpp>

#include <concepts>
#include <utility>

namespace maniple::cuda {

inline int narrow(std::integral auto number) {
  require(number >= 0 && std::in_range<int>(number), "a size beyond the range of a kernel's int");
  return static_cast<int>(number);
}

}  // namespace maniple::cuda
