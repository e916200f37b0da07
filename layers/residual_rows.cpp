#include <layers/residual_rows.hpp>
#include <parallel/shard.hpp>

#include <algorithm>

namespace maniple {
namespace {

// Below it the latency of a second collective costs more than fewer bytes save.
constexpr int64_t fewest_tokens = 256, fewest_bytes = int64_t{256} << 10;

bool pays(int64_t tokens, int64_t width, const Communicator& tensor) {
  return tensor.size() > 1 && !tensor.captures() &&
         tokens >= std::max<int64_t>(2 * tensor.size(), fewest_tokens) &&
         tokens * width * static_cast<int64_t>(size_of(DType::fp32)) >= fewest_bytes;
}

}  // namespace

ResidualRows::ResidualRows(int64_t tokens, int64_t width, const Communicator& tensor) {
  if (!pays(tokens, width, tensor)) return;
  for (int rank = 0; rank < tensor.size(); ++rank)
    rows_.push_back(balanced_shard(tokens, tensor.size(), rank).size());
  own_ = balanced_shard(tokens, tensor.size(), tensor.rank());
}

TensorView ResidualRows::sum(TensorView x, Communicator& tensor) const {
  if (sharded())
    tensor.reduce_scatterv(x, own(x), rows_);
  else
    tensor.all_reduce(x);
  return own(x);
}

void ResidualRows::gather(TensorView x, Communicator& tensor) const {
  if (sharded()) tensor.all_gatherv(own(x), x, rows_);
}

}  // namespace maniple
