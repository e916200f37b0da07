// Which rows of a step's grouped products belong to which token and expert.
#pragma once

#include <kernels/tensor/tensor_view.hpp>

#include <algorithm>

namespace maniple {

// How a router chooses.
struct Router {
  int64_t per_token = 1;   // experts of each token
  bool normalise = false;  // their weights are divided by their sum
};

// The choices of a step's tokens that fall on the experts of this rank: a row for each, ordered by (expert, token). The memory
// is the caller's, on the device.
struct Routing {
  IndexRange experts;  // of this rank, of all experts
  TensorView tokens;   // int32 [most rows]: of each row
  TensorView weights;  // fp32 [most rows]
  TensorView offsets;  // int32 [experts + 1]: the first row of each
  TensorView
      chosen;  // int32 [tokens, most experts a token]: a token's experts, counted from experts.begin, ascending; then -1
  TensorView places;  // int32, beside `chosen`: their rows
  TensorView counts;  // int32 [all experts]: grows by the tokens that chose each
  // int32 [tokens] where each token is a sequence of its own, else empty: that of a padding row, which chooses nobody, is
  // negative.
  ConstTensorView past_lengths = {};

  static int64_t experts_a_token(const Router& router, IndexRange experts) {
    return std::min(router.per_token, experts.size());
  }
  // On the host.
  bool is_padding(int64_t token) const {
    return !past_lengths.empty() && past_lengths.as<int32_t>()[token] < 0;
  }
  // expert: counted from experts.begin.
  IndexRange rows_of(int64_t expert) const {
    return {offsets.as<int32_t>()[expert], offsets.as<int32_t>()[expert + 1]};
  }
  int64_t rows() const { return offsets.as<int32_t>()[experts.size()]; }
};

}  // namespace maniple
