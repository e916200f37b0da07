// Makes the device arrays of a step from its sequences, on every rank. Block tables and last sampled tokens
// stay on the device, by seat, and the tokens of all blocks; one upload sends what is new in a step.
#pragma once

#include <layers/models/model.hpp>
#include <layers/sampler.hpp>
#include <runtime/scheduling/sequence_table.hpp>

#include <algorithm>
#include <span>
#include <vector>

namespace maniple {

struct BatchLimits {
  int64_t max_tokens = 0;
  int64_t max_sequences = 0;
  int64_t max_blocks = 0;  // of one sequence: entries of its block table
  int64_t block_size = 0;  // tokens of a page
  ContextShare context =
      {};                // block i of a sequence is entry i * owners + owner on this rank; the others are -1
  int64_t max_rows = 0;  // of logits, if more than max_sequences
  // Where logits are adjusted:
  int64_t num_blocks = 0;  // whose tokens are kept; 0: of none
  int64_t vocabulary_size = 0;
  bool windows = false;  // layers with a window have pages of a pool of their own, all on every owner

  int64_t block_tokens() const { return block_size * context.owners; }
  int64_t rows() const { return std::max(max_rows, max_sequences); }
};

class BatchBuilder {
 public:
  BatchBuilder(Ops& ops, const BatchLimits& limits);

  // The views are valid until the next call. Padding sequences (kernels/attention_batch.hpp) fill the batch
  // up to `at_least`; each is one sampled row, and a draw that no seat keeps. The last has as many tokens as fill the batch up to
  // `at_least_tokens`. All batches of n sequences with one token each, all sampled, have the same views, which captured graphs need.
  StepBatch build(std::span<const SequenceView> sequences, size_t at_least = 0, size_t at_least_tokens = 0);
  // Copies the tokens of blocks, where they are kept.
  void copy(std::span<const BlockCopy> copies);
  // int32 [tokens]: the model's input for the latest batch.
  TensorView token_ids() const { return token_ids_; }
  // The sampled rows of the latest batch, without padding.
  const SamplerBatch& sampler_batch() const { return sampler_batch_; }

  // Batches of the largest sizes, without memory: for dry_run().
  static StepBatch largest(const BatchLimits& limits);
  static TensorView largest_ids(const BatchLimits& limits);
  static SamplerBatch largest(std::span<const SamplerRow> rows);

 private:
  // Host arrays in one buffer. One upload copies them to the device; put() returns where they will be there.
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
  // The arrays of the batch under construction.
  struct Arrays {
    std::vector<int32_t> query_starts, past_lengths, seats, token_ids, positions, slots, window_slots, places,
        sampled_rows;
    // Changed entries of the block tables.
    std::vector<int32_t> table_indices, table_entries, window_indices, window_entries;
    std::vector<SamplingRow> draws;
    std::vector<int32_t> sampled_seats, listed_rows, full_rows, scored_rows, given_tokens;
    std::vector<AdjustedRow> adjusted;

    void clear();
  };

  void append(const SequenceView& sequence);
  void append_tokens(const SequenceView& sequence);
  void append_new_blocks(const SequenceView& sequence);
  void append_new_window_blocks(const SequenceView& sequence);
  void upload_lists(const SequenceView& sequence);
  SequenceTables tables();
  void append_scored(const SequenceView& sequence, size_t known);
  void append_sampled(const SequenceView& sequence, uint32_t query_row);
  void append_row(const SequenceView& sequence, uint32_t query_row, const SamplerRow& row, int32_t seat);
  void append_padding(size_t tokens);
  std::vector<AttentionBatch> blocks_of(const AttentionBatch& batch);

  Ops& ops_;
  BatchLimits limits_;
  Tensor block_tables_, window_tables_;  // int32 [seats, max_blocks], the second of layers with a window
  Tensor last_tokens_;                   // int32 [seats]
  // Blocks of a prefix that sequences share have their tokens, whoever computed them.
  Tensor tokens_;  // int32 [blocks, block tokens]
  Tensor lists_;   // int32 [seats, words of a TokenLists]
  Staging staging_;
  Arrays arrays_;
  std::vector<SamplerRow> sampler_rows_;
  SamplerBatch sampler_batch_;
  TensorView token_ids_;
};

}  // namespace maniple
