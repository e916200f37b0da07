// Operations that the backends on the host share.
#pragma once

#include <kernels/ops.hpp>

namespace maniple {

class HostOps : public Ops {
 public:
  explicit HostOps(Device& device) : device_(device) {}
  Device& device() override { return device_; }

  void scatter(ConstTensorView indices, ConstTensorView values, TensorView out) override;
  void resolve_last_tokens(ConstTensorView last_tokens, TensorView ids, ConstTensorView places,
                           TensorView tokens) override;
  // Several threads may adjust different rows at once.
  void adjust_logits(TensorView logits, IndexRange vocabulary, std::span<const AdjustedRow> rows,
                     const SequenceTables& tables) override;
  void raw_logits(ConstTensorView raw, ConstTensorView rows, IndexRange vocabulary,
                  std::span<Candidate> candidates) override;
  void logits_of(ConstTensorView logits, ConstTensorView ids, IndexRange vocabulary,
                 std::span<float> out) override;
  void choose(std::span<const Candidate> gathered, ConstTensorView seats, std::span<Candidate> out,
              TensorView last_tokens) override;

 protected:
  // The largest of maxima[shard * rows + row].
  static float over_shards(std::span<const float> maxima, size_t rows, size_t row);

 private:
  Device& device_;
};

}  // namespace maniple
