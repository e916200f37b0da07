#include <parallel/communicator.hpp>

#include <vector>

namespace maniple {

void Communicator::all_gather(ConstTensorView in, TensorView out) {
  require(out.shape.elements() == size() * in.shape.elements(), "all_gather: out is not [size, in.shape...]");
  const std::vector<int64_t> rows(size(), 1);
  if (!in.empty())
    all_gatherv(in.reshaped({1, in.shape.elements()}), out.reshaped({size(), in.shape.elements()}), rows);
}

}  // namespace maniple
