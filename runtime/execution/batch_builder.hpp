// From the sequences of a step to the arrays that the model reads: consequences are derived here, on every
// rank.
#pragma once

#include <layers/models/model.hpp>
#include <layers/sampler.hpp>
#include <runtime/scheduling/sequence_table.hpp>

#include <span>
#include <vector>

namespace maniple {

struct BatchLimits {
  int64_t max_tokens = 0;
  int64_t max_sequences = 0;
  int64_t max_blocks = 0;  // of one sequence
  int64_t block_size = 0;
};

class BatchBuilder {
 public:
  BatchBuilder(Device& device, const BatchLimits& limits);

  // last_tokens: by seat, the token last sampled there. The views hold until the next call.
  StepBatch build(std::span<const SequenceView> sequences, std::span<const int32_t> last_tokens);
  // How the rows of StepBatch::sampled_rows draw, in their order.
  std::span<const SamplerRow> sampler_rows() const { return sampler_rows_; }
  // A batch of the largest sizes, without memory: for the dry forward.
  static StepBatch largest(const BatchLimits& limits);

 private:
  // A host array and its copy on the device.
  class Array {
   public:
    Array(Device& device, int64_t capacity) : device_(device), copy_(device, DType::int32, {capacity}) {}
    void clear() { values_.clear(); }
    void push(int64_t value) { values_.push_back(static_cast<int32_t>(value)); }
    ConstTensorView upload(const Shape& shape);
    int64_t size() const { return static_cast<int64_t>(values_.size()); }

   private:
    Device& device_;
    std::vector<int32_t> values_;
    Tensor copy_;
  };

  void append(const SequenceView& sequence, std::span<const int32_t> last_tokens);

  int64_t block_size_;
  Array token_ids_, query_starts_, past_lengths_, block_tables_, positions_, slots_, sampled_rows_;
  std::vector<SamplerRow> sampler_rows_;
};

}  // namespace maniple
