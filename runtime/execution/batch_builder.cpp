#include <runtime/execution/batch_builder.hpp>

#include <algorithm>

namespace maniple {

ConstTensorView BatchBuilder::Array::upload(const Shape& shape) {
  ConstTensorView all = copy_.view();
  require(size() <= all.shape[0] && shape.elements() == size(), "a batch is larger than its limits");
  device_.upload(copy_.view().data, reinterpret_cast<const std::byte*>(values_.data()),
                 values_.size() * sizeof(int32_t));
  return {all.data, DType::int32, shape};
}

BatchBuilder::BatchBuilder(Device& device, const BatchLimits& limits)
    : block_size_(limits.block_size),
      token_ids_(device, limits.max_tokens),
      query_starts_(device, limits.max_sequences + 1),
      past_lengths_(device, limits.max_sequences),
      block_tables_(device, limits.max_sequences * limits.max_blocks),
      positions_(device, limits.max_tokens),
      slots_(device, limits.max_tokens),
      sampled_rows_(device, limits.max_sequences) {}

StepBatch BatchBuilder::build(std::span<const SequenceView> sequences, std::span<const int32_t> last_tokens) {
  for (Array* array :
       {&token_ids_, &query_starts_, &past_lengths_, &block_tables_, &positions_, &slots_, &sampled_rows_})
    array->clear();
  sampler_rows_.clear();
  size_t width = 0;
  for (const SequenceView& sequence : sequences) width = std::max(width, sequence.blocks.size());

  query_starts_.push(0);
  for (const SequenceView& sequence : sequences) {
    append(sequence, last_tokens);
    for (size_t i = 0; i < width; ++i)
      block_tables_.push(i < sequence.blocks.size() ? sequence.blocks[i] : -1);
  }

  const int64_t tokens = token_ids_.size(), count = past_lengths_.size();
  AttentionBatch attention{query_starts_.upload({count + 1}), past_lengths_.upload({count}),
                           block_tables_.upload({count, static_cast<int64_t>(width)}),
                           positions_.upload({tokens}), slots_.upload({tokens})};
  return {token_ids_.upload({tokens}), attention, sampled_rows_.upload({sampled_rows_.size()})};
}

void BatchBuilder::append(const SequenceView& sequence, std::span<const int32_t> last_tokens) {
  for (uint32_t i = 0; i < sequence.query_length; ++i) {
    const int64_t position = int64_t{sequence.past_length} + i;
    token_ids_.push(sequence.needs_last_token ? last_tokens[sequence.seat] : sequence.known_tokens[i]);
    positions_.push(position);
    slots_.push(sequence.blocks[static_cast<size_t>(position / block_size_)] * block_size_ +
                position % block_size_);
  }
  past_lengths_.push(sequence.past_length);
  query_starts_.push(token_ids_.size());
  if (sequence.sample_count == 0) return;
  require(sequence.sample_count == 1, "one token is sampled of a sequence");
  sampled_rows_.push(token_ids_.size() - 1);
  const RankSampling& sampling = *sequence.sampling;
  const bool greedy = sampling.temperature < 1e-5F;
  sampler_rows_.push_back({{greedy ? 0.0F : sampling.temperature, std::max(sampling.top_k, 0), sampling.top_p,
                            sampling.min_p, sampling.seed, sequence.past_length + sequence.query_length},
                           sampling.logprobs});
}

StepBatch BatchBuilder::largest(const BatchLimits& limits) {
  const auto absent = [](const Shape& shape) { return ConstTensorView{nullptr, DType::int32, shape}; };
  return {absent({limits.max_tokens}),
          {absent({limits.max_sequences + 1}), absent({limits.max_sequences}),
           absent({limits.max_sequences, limits.max_blocks}), absent({limits.max_tokens}),
           absent({limits.max_tokens})},
          absent({limits.max_sequences})};
}

}  // namespace maniple
