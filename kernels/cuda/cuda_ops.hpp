// The CUDA backend: checks shapes and calls the kernels or the library. The tests also compile it over their
// emulation, so it uses the device only through its interface and its stream.
#pragma once

#include <kernels/cuda/attention.hpp>
#include <kernels/cuda/codes.hpp>
#include <kernels/cuda/gemm.hpp>
#include <kernels/ops.hpp>
#include <kernels/support/check.hpp>

#include <concepts>
#include <map>
#include <memory>
#include <string>
#include <utility>

namespace maniple::cuda {

struct GroupedArguments;

inline constexpr int64_t scratch_bytes = int64_t{128} << 20;

// Sizes of tensors as kernels take them.
inline int narrow(std::integral auto number) {
  require(number >= 0 && std::in_range<int>(number), "a size beyond the range of a kernel's int");
  return static_cast<int>(number);
}
// Of an fp32 tensor, or null.
inline const float* floats_of(ConstTensorView view) { return view.empty() ? nullptr : view.as<float>(); }
// For vectors.
inline bool is_aligned(ConstTensorView view) { return reinterpret_cast<uintptr_t>(view.data) % 16 == 0; }

class CudaOps : public Ops {
 public:
  CudaOps(Device& device, device::Stream stream, std::unique_ptr<Gemm> gemm);
  Device& device() override { return device_; }

  // Packed weights are plain row major, of any type, rows of codes padded to sixteen bytes; scales and zeros are [rows, groups].
  // Slices have no effect. gather_rows: row numbers outside of x give zeros, since they are on the device, where no error is thrown.
#include <kernels/ops_of_backend.inl>

  void prepare_matmul(ConstTensorView x, const Weight& weight, ConstTensorView bias, TensorView out) override;
  bool matmul_gate_mul(GateActivation activation, ConstTensorView x, const Weight& weight,
                       ConstTensorView bias, TensorView out) override;

  std::optional<int64_t> matmul_route(ConstTensorView x, const Weight& gate, const Router& router,
                                      Routing& routing) override;

  void prepare_attention(const AttentionCall& call) override;

  void scatter(ConstTensorView indices, ConstTensorView values, TensorView out) override;
  void resolve_last_tokens(ConstTensorView last_tokens, TensorView ids, ConstTensorView places,
                           TensorView tokens) override;
  void adjust_logits(TensorView logits, IndexRange vocabulary, std::span<const AdjustedRow> rows,
                     const SequenceTables& tables) override;
  void logits_of(ConstTensorView logits, ConstTensorView ids, IndexRange vocabulary,
                 std::span<float> out) override;
  void raw_logits(ConstTensorView raw, ConstTensorView rows, IndexRange vocabulary,
                  std::span<Candidate> candidates) override;

  std::string attention_path(DType dtype, const HeadLayout& heads, bool windowed) const override {
    return on_tensor_cores(dtype, heads, windowed) ? "tensor cores" : "plain cores";
  }

  std::string warning() const override;

  void choose(std::span<const Candidate> gathered, ConstTensorView seats, std::span<Candidate> out,
              TensorView last_tokens) override;

 private:
  void attend(const AttentionCall& call) override;
  static bool on_tensor_cores(DType dtype, const HeadLayout& heads, bool windowed) {
    return !windowed && heads.key_dim == heads.value_dim && attention_on_tensor_cores(dtype, heads.key_dim);
  }
  static bool on_tensor_cores(const AttentionCall& call) {
    return on_tensor_cores(call.queries.dtype, call.heads, call.window > 0 || !call.sinks.empty());
  }

  // gate: of a gated product. False, and nothing done, in fp32 and beyond max_skinny_rows, of a weight of codes max_code_rows.
  bool multiply_few_rows(ConstTensorView x, const Weight& weight, ConstTensorView bias, TensorView out,
                         ConstTensorView row_maxima, std::optional<GateActivation> gate);
  void multiply_codes(ConstTensorView x, const Weight& weight, ConstTensorView bias, TensorView out,
                      ConstTensorView row_maxima);
  ConstTensorView panel_of(const Weight& weight, DType dtype, int64_t columns);
  void prepare_panels(ConstTensorView x, const Weight& weight, bool as_codes);
  // Where both operands are codes and the library was found to multiply them right.
  bool prepare_by_library(ConstTensorView x, const Weight& weight);
  enum class Trial : uint8_t { right, refused, wrong };
  Trial try_library(WeightFormat format, ActivationRule rule);
  // Makes the library multiply this weight. False where it cannot: rows of a block differ in scale.
  bool take_by_library(const Weight& weight);
  RoundArguments rounding_of(ConstTensorView x, const Weight& weight, ConstTensorView row_maxima,
                             IndexRange rows, TensorView out);
  ConstTensorView rounded_inputs(ConstTensorView x, const Weight& weight, ConstTensorView row_maxima,
                                 IndexRange rows, DType dtype, int64_t stride, IndexRange memory);
  FinishArguments finish_of(const Weight& weight, ConstTensorView bias);
  // Memory of scratch_ from a number of bytes on, up to another.
  TensorView scratch(IndexRange bytes, DType dtype, const Shape& shape);
  // x_rows: the row of x for each row of out; null: the same. biases: as in grouped_matmul_gate_mul.
  void multiply_grouped(ConstTensorView x, const int32_t* x_rows, const Routing& routing,
                        std::span<const Weight* const> weights, ConstTensorView biases, TensorView out,
                        std::optional<GateActivation> gate, ConstTensorView row_maxima);
  // product: as of elements, without weights.
  void multiply_grouped_codes(GroupedArguments product, ConstTensorView x,
                              std::span<const Weight* const> weights, ConstTensorView row_maxima);
  // The weights' addresses in the device's memory.
  const void* const* addresses_of(std::span<const Weight* const> weights);
  const CodeMatrix* codes_of(std::span<const Weight* const> weights);
  // The copy of a table on the device, made at the first call with these bytes.
  const std::byte* table_of(std::span<const std::byte> bytes);
  ConstTensorView rounded_bias(ConstTensorView bias, DType dtype);
  DecodeWorkspace decode_workspace(const AttentionArguments& arguments);

  Device& device_;
  device::Stream stream_;
  std::unique_ptr<Gemm> gemm_;
  // These grow at start-up alone (prepare_attention): captured graphs hold their addresses.
  Tensor bias_;
  Tensor scratch_;  // of one operation: slots of decode, what a product with codes makes
  Tensor decode_counters_;
  Tensor skinny_partials_;
  Tensor skinny_arrivals_;
  std::map<std::string, Tensor> expert_tables_;                      // of each layer
  std::map<std::pair<WeightFormat, ActivationRule>, Trial> trials_;  // of the library's products of codes
  std::map<const std::byte*, Tensor> library_products_;  // by the weight's codes: scales of blocks or empty
};

}  // namespace maniple::cuda
