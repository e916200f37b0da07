// From the sequences of a step to what the device reads: consequences are derived here, on every rank. Block
// tables and the tokens last sampled stay on the device, by seat; a step sends what is new, in one upload.
#pragma once

#include <layers/models/model.hpp>
#include <layers/sampler.hpp>
#include <runtime/scheduling/sequence_table.hpp>

#include <span>
#include <vector>

namespace maniple {

struct BatchLimits {
  int64_t max_tokens = 0;
  int64_t max_sequences = 0;  // and rows sampled
  int64_t max_blocks = 0;     // of one sequence
  int64_t block_size = 0;
};

class BatchBuilder {
 public:
  BatchBuilder(Ops& ops, const BatchLimits& limits);

  // The views hold until the next call. Sequences of padding rows (kernels/attention_batch.hpp) follow those
  // given up to `at_least`, and are sampled rows too. Where each of n sequences has one token, of which it
  // samples, the views are the same for every batch of n.
  StepBatch build(std::span<const SequenceView> sequences, size_t at_least = 0);
  // int32 [tokens]: what the first layers of the latest batch read.
  TensorView token_ids() const { return token_ids_; }
  // The rows that the latest sequences sample, without padding.
  const SamplerBatch& sampler_batch() const { return sampler_batch_; }

  // Batches of the largest sizes, without memory: for the dry forward.
  static StepBatch largest(const BatchLimits& limits);
  static TensorView largest_ids(const BatchLimits& limits);
  static SamplerBatch largest(std::span<const SamplerRow> rows);

 private:
  // Host arrays side by side, sent together to where they stand on the device.
  class Staging {
   public:
    Staging(Device& device, size_t capacity);
    void clear() { bytes_.clear(); }
    template <typename T>
    std::span<T> put(const std::vector<T>& values);
    TensorView put_ints(const std::vector<int32_t>& values);
    void upload();

   private:
    Device& device_;
    std::vector<std::byte> bytes_;
    Tensor on_device_;
  };
  // What the batch under construction has of each array.
  struct Arrays {
    std::vector<int32_t> query_starts, past_lengths, seats, token_ids, positions, slots, sampled_rows;
    std::vector<int32_t> table_indices, table_entries;  // of the block tables, where they changed
    std::vector<SamplingRow> draws;
    std::vector<int32_t> sampled_seats, full_rows, scored_rows;

    void clear();
  };

  void append(const SequenceView& sequence);
  void append_tokens(const SequenceView& sequence);
  void append_new_blocks(const SequenceView& sequence);
  void append_sampled(const SequenceView& sequence, uint32_t query_row);
  void append_padding();

  Ops& ops_;
  BatchLimits limits_;
  Tensor block_tables_;  // int32 [seats, max_blocks]
  Tensor last_tokens_;   // int32 [seats]
  Staging staging_;
  Arrays arrays_;
  std::vector<SamplerRow> sampler_rows_;
  SamplerBatch sampler_batch_;
  TensorView token_ids_;
};

}  // namespace maniple
