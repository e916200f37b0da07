// Which rows of a step's grouped products belong to which token and expert.
#pragma once

#include <kernels/tensor/tensor_view.hpp>

#include <algorithm>

namespace maniple {

enum class RouterScoring : uint8_t { softmax, sigmoid };
// Of a group of experts: the largest c (see Router) among them, or the sum of the two largest.
enum class GroupScore : uint8_t { max, top2 };

// How a router chooses. An expert's score s is that of its logit l, in fp32: softmax over all experts, or sigmoid. The choice is by
// (c descending, id ascending), c = s + bias; a NaN: -inf. A chosen expert's weight is s * scale, or s / (sum of the chosen s + epsilon)
// * scale; 0 where this divisor is 0. NaN logits: softmax makes all weights of the token NaN, as where its largest logit is infinite;
// sigmoid counts s = 0 and c = -inf.
struct Router {
  int64_t per_token = 1;   // experts of each token
  bool normalise = false;  // their weights are divided by their sum
  RouterScoring scoring = RouterScoring::softmax;
  ConstTensorView bias = {};  // fp32 [all experts], for the choice alone; or empty
  // Groups of as many neighbours each. The best kept_groups, by (score descending, id ascending), keep their c, the others get -inf.
  int64_t groups = 1, kept_groups = 1;
  GroupScore group_score = GroupScore::max;
  float epsilon = 0;
  float scale = 1;
  ConstTensorView logit_bias = {};  // fp32 [all experts], added to the logits; or empty

  // Whether the logit is as good a c as the score, and better where scores are rounded to the same number.
  bool chooses_by_logits() const {
    return scoring == RouterScoring::softmax && bias.empty() &&
           (groups == 1 || group_score == GroupScore::max);
  }
  bool suits(int64_t experts) const {
    const int64_t group = groups > 0 ? experts / groups : 0;
    const auto is_of_all = [&](ConstTensorView view) {
      return view.empty() || (view.dtype == DType::fp32 && view.shape == Shape{experts});
    };
    return 0 < group && group * groups == experts && 0 < kept_groups && kept_groups <= groups &&
           (group_score == GroupScore::max || group > 1) && 0 < per_token &&
           per_token <= kept_groups * group && is_of_all(bias) && is_of_all(logit_bias);
  }
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
