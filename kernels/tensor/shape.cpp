#include <kernels/tensor/shape.hpp>

namespace maniple {

std::string to_string(const Shape& shape) {
  std::string text = "[";
  for (int d = 0; d < shape.rank(); ++d) text += fmt::format("{}{}", d ? ", " : "", shape[d]);
  return text + "]";
}

}  // namespace maniple
