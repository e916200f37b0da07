// Sizes of tensors as kernels take them.
#pragma once

#include <kernels/support/check.hpp>

#include <cstdint>
#include <limits>

namespace maniple::cuda {

inline int narrow(int64_t number) {
  require(0 <= number && number <= std::numeric_limits<int>::max(),
          "a size beyond the range of a kernel's int");
  return static_cast<int>(number);
}

}  // namespace maniple::cuda
