// The kernels of a layer of experts, for host code. Pointers are device memory, the layouts are those of routing.hpp. No size
// depends on what a step routes, so captured graphs serve every routing: grids are sized for the most rows, and blocks find
// their work from the offsets on the device.
#pragma once

#include <kernels/cuda/codes.hpp>
#include <kernels/gate_activation.hpp>

#include <cstdint>

namespace maniple::cuda {

// A router (kernels/routing.hpp).
struct RouterArguments {
  int per_token;
  bool normalise;
  bool sigmoid = false;  // else softmax
  bool top_two = false;  // a group's score
  int groups = 1, kept_groups = 1;
  float epsilon = 0, scale = 1;
  const float *bias = nullptr, *logit_bias = nullptr;  // [all_experts] or null
};
// Of more tokens the library multiplies.
inline constexpr int max_routed_tokens = 64;
// Where logits are made: x widened to fp32, times the gate's rows; of both each row begins at a multiple of sixteen bytes. Without x they
// are there already.
struct RouterProduct {
  DType dtype = DType::fp32;    // of x
  const void* x = nullptr;      // [tokens, k]
  const float* gate = nullptr;  // [all_experts, k]
  int k = 0;
  int32_t* arrivals = nullptr;  // one for eight tokens; zero before the call, and left zero
};
struct RoutingArguments {
  float* logits;                // [tokens, all_experts]
  const int32_t* past_lengths;  // [tokens] or null; a negative one: the token chooses nobody
  int tokens;
  int all_experts;
  int first;            // expert of this rank
  int experts;          // of this rank
  int most;             // of them that a token chooses
  int32_t* row_tokens;  // [tokens * most]
  float* row_weights;
  int32_t* offsets;  // [experts + 1]
  int32_t* chosen;   // [tokens, most]
  int32_t* places;
  int32_t* counts;  // [all_experts]
  RouterProduct product = {};
};
void route_tokens(device::Stream stream, const RouterArguments& router, const RoutingArguments& arguments);

struct GroupedArguments {
  DType dtype;                 // of x and weights
  DType out_type;              // the same or fp32
  const void* x;               // [., k]; with codes k is a multiple of 8, zeros behind their columns
  const int32_t* x_rows;       // [most_rows]: the row of x for each row; null: the same
  const int32_t* offsets;      // [experts + 1]
  const void* const* weights;  // by expert: [n, k]
  void* out;                   // [most_rows, width]
  int experts;
  int64_t most_rows;
  int n;
  int k;
  int width;  // of out; where gated, the first `width` columns gate those n / 2 after them
  bool gated;
  bool aligned;  // weights and rows of x begin at multiples of sixteen bytes
  // Of weights of codes. The rows are first_row .. first_row + most_rows - 1; without x_rows x has only these.
  int bits = 0;                         // of a code; 0: elements
  const CodeMatrix* codes = nullptr;    // by expert, instead of weights
  const float* input_scales = nullptr;  // by row of x
  int64_t first_row = 0;
  GateActivation gate = {};       // where gated
  const float* biases = nullptr;  // [experts, n], added before the gate; or null
};
// The order in which k is summed is fixed: a row's bits do not depend on the other rows. bf16 and fp16 run on tensor cores.
void grouped_product(device::Stream stream, const GroupedArguments& arguments);

struct CombineArguments {
  const float* rows;      // [., width]
  const float* weights;   // by row
  const int32_t* chosen;  // [tokens, most]
  const int32_t* places;
  float* out;  // [tokens, width]
  int tokens;
  int most;
  int width;
  int experts;                    // of this rank
  int slices;                     // of them, a power of two
  const float* biases = nullptr;  // [experts, width] or null: added to the rows of an expert
};
// The bits of Ops::combine.
void combine_rows(device::Stream stream, const CombineArguments& arguments);

}  // namespace maniple::cuda
