#include <runtime/execution/batch_builder.hpp>

#include <algorithm>

namespace maniple {
namespace {

constexpr size_t alignment = 16;

int64_t blocks_of_tokens(const BatchLimits& limits) {
  return limits.context.owners > 1 ? (limits.max_tokens + shared_tokens - 1) / shared_tokens : 0;
}

size_t staging_bytes(const BatchLimits& limits) {
  const auto tokens = static_cast<size_t>(limits.max_tokens),
             sequences = static_cast<size_t>(limits.max_sequences), rows = static_cast<size_t>(limits.rows()),
             blocks = static_cast<size_t>(limits.max_blocks),
             parts = static_cast<size_t>(blocks_of_tokens(limits));
  const size_t ints = 4 * tokens + 3 * sequences + 6 * rows + 1 + 2 * sequences * blocks +
                      (parts > 0 ? 2 * sequences + 3 * parts : 0) +
                      (limits.windows ? tokens + 2 * sequences * blocks : 0);
  return ints * sizeof(int32_t) + rows * (sizeof(SamplingRow) + sizeof(AdjustedRow)) +
         (22 + 2 * parts) * alignment;
}

int32_t to_int(int64_t value) { return static_cast<int32_t>(value); }

Tensor empty_tables(Device& device, const Shape& shape) {
  Tensor tables(device, DType::int32, shape);
  const std::vector<int32_t> none(static_cast<size_t>(shape.elements()), -1);
  device.upload(tables.view().data, reinterpret_cast<const std::byte*>(none.data()), tables.view().bytes());
  return tables;
}

}  // namespace

BatchBuilder::Staging::Staging(Device& device, size_t capacity)
    : device_(device), on_device_(device, DType::uint8, {static_cast<int64_t>(capacity)}) {}

template <typename T>
std::span<T> BatchBuilder::Staging::put(const std::vector<T>& values) {
  const size_t begin = (bytes_.size() + alignment - 1) / alignment * alignment;
  const auto bytes = std::as_bytes(std::span(values));
  require(begin + bytes.size() <= on_device_.view().bytes(), "a batch is larger than its limits");
  bytes_.resize(begin);
  bytes_.insert(bytes_.end(), bytes.begin(), bytes.end());
  return {reinterpret_cast<T*>(on_device_.view().data + begin), values.size()};
}

TensorView BatchBuilder::Staging::put_ints(const std::vector<int32_t>& values) {
  return view_of(put(values).data(), DType::int32, {static_cast<int64_t>(values.size())});
}

void BatchBuilder::Staging::upload() { device_.upload(on_device_.view().data, bytes_.data(), bytes_.size()); }

BatchBuilder::BatchBuilder(Ops& ops, const BatchLimits& limits)
    : ops_(ops),
      limits_(limits),
      block_tables_(empty_tables(ops.device(), {limits.max_sequences, limits.max_blocks})),
      window_tables_(
          empty_tables(ops.device(), {limits.windows ? limits.max_sequences : 0, limits.max_blocks})),
      last_tokens_(ops.device(), DType::int32, {limits.max_sequences}),
      tokens_(ops.device(), DType::int32, {limits.num_blocks, limits.block_tokens()}),
      lists_(ops.device(), DType::int32,
             {limits.num_blocks > 0 ? limits.max_sequences : 0, most_list_words(limits.vocabulary_size)}),
      staging_(ops.device(), staging_bytes(limits)) {}

void BatchBuilder::Arrays::clear() {
  for (auto* array : {&query_starts, &past_lengths, &seats, &token_ids, &positions, &slots, &window_slots,
                      &places, &sampled_rows, &table_indices, &table_entries, &window_indices,
                      &window_entries, &sampled_seats, &listed_rows, &full_rows, &scored_rows, &given_tokens})
    array->clear();
  draws.clear();
  adjusted.clear();
}

StepBatch BatchBuilder::build(std::span<const SequenceView> sequences, size_t at_least,
                              size_t at_least_tokens) {
  arrays_.clear();
  sampler_rows_.clear();
  arrays_.query_starts.push_back(0);
  for (const SequenceView& sequence : sequences) append(sequence);
  while (arrays_.seats.size() < at_least) {
    const size_t tokens = arrays_.token_ids.size();
    const bool last = arrays_.seats.size() + 1 == at_least;
    append_padding(last && tokens < at_least_tokens ? at_least_tokens - tokens : 1);
  }

  // First the arrays whose sizes depend on the numbers of tokens and sequences alone: their places are fixed.
  staging_.clear();
  const TensorView query_starts = staging_.put_ints(arrays_.query_starts),
                   past_lengths = staging_.put_ints(arrays_.past_lengths),
                   seats = staging_.put_ints(arrays_.seats);
  token_ids_ = staging_.put_ints(arrays_.token_ids);
  const TensorView positions = staging_.put_ints(arrays_.positions), slots = staging_.put_ints(arrays_.slots),
                   window_slots = staging_.put_ints(arrays_.window_slots),
                   places = staging_.put_ints(arrays_.places),
                   sampled_rows = staging_.put_ints(arrays_.sampled_rows),
                   sampled_seats = staging_.put_ints(arrays_.sampled_seats);
  const AttentionBatch attention{query_starts, past_lengths, seats, block_tables_, positions, slots};
  StepBatch step{attention, sampled_rows, blocks_of(attention)};
  if (limits_.windows)
    step.windowed = {query_starts, past_lengths, seats, window_tables_, positions, window_slots};
  const std::span<const SamplingRow> draws = staging_.put(arrays_.draws);
  const TensorView indices = staging_.put_ints(arrays_.table_indices),
                   entries = staging_.put_ints(arrays_.table_entries),
                   window_indices = staging_.put_ints(arrays_.window_indices),
                   window_entries = staging_.put_ints(arrays_.window_entries);
  sampler_batch_ = {sampler_rows_,
                    draws,
                    sampled_seats,
                    staging_.put_ints(arrays_.listed_rows),
                    staging_.put_ints(arrays_.full_rows),
                    staging_.put_ints(arrays_.scored_rows),
                    staging_.put_ints(arrays_.given_tokens),
                    last_tokens_,
                    staging_.put(arrays_.adjusted),
                    tables()};
  staging_.upload();
  if (!indices.empty()) ops_.scatter(indices, entries, block_tables_);
  if (!window_indices.empty()) ops_.scatter(window_indices, window_entries, window_tables_);
  ops_.resolve_last_tokens(last_tokens_, token_ids_, places, tokens_);
  return step;
}

void BatchBuilder::copy(std::span<const BlockCopy> copies) {
  if (tokens_.view().empty()) return;
  for (const BlockCopy& copy : copies) {
    const TensorView from = tokens_.view().rows(copy.from, 1), to = tokens_.view().rows(copy.to, 1);
    ops_.device().copy(to.data, from.data, to.bytes());
  }
}

// With the sequences that have tokens in a block: what lies before it counts as past.
std::vector<AttentionBatch> BatchBuilder::blocks_of(const AttentionBatch& batch) {
  std::vector<AttentionBatch> blocks;
  if (limits_.context.owners == 1) return blocks;
  const std::vector<int32_t>& starts = arrays_.query_starts;
  const auto tokens = to_int(batch.tokens());
  for (int32_t begin = 0; begin < tokens; begin += to_int(shared_tokens)) {
    const int32_t end = std::min(begin + to_int(shared_tokens), tokens);
    const auto first = std::ranges::upper_bound(starts, begin) - starts.begin() - 1,
               last = std::ranges::lower_bound(starts, end) - starts.begin();
    std::vector<int32_t> own_starts, pasts;
    for (auto s = first; s < last; ++s) {
      const auto sequence = static_cast<size_t>(s);
      own_starts.push_back(std::max(starts[sequence] - begin, 0));
      pasts.push_back(arrays_.past_lengths[sequence] + std::max(begin - starts[sequence], 0));
    }
    own_starts.push_back(end - begin);
    blocks.push_back({staging_.put_ints(own_starts), staging_.put_ints(pasts),
                      batch.seats.rows(first, last - first), batch.block_tables,
                      batch.positions.rows(begin, end - begin), batch.slots.rows(begin, end - begin)});
  }
  return blocks;
}

void BatchBuilder::append(const SequenceView& sequence) {
  arrays_.seats.push_back(to_int(sequence.seat));
  arrays_.past_lengths.push_back(to_int(sequence.past_length));
  append_tokens(sequence);
  append_new_blocks(sequence);
  if (limits_.windows) append_new_window_blocks(sequence);
  if (sequence.seen_blocks == 0) upload_lists(sequence);
  const size_t known = sequence.known_tokens.size();
  for (size_t i = known - sequence.rows_scored; i < known; ++i) append_scored(sequence, i);
  for (uint32_t i = sequence.query_length - sequence.rows_sampled; i < sequence.query_length; ++i)
    append_sampled(sequence, i);
}

void BatchBuilder::append_tokens(const SequenceView& sequence) {
  for (uint32_t i = 0; i < sequence.query_length; ++i) {
    const int64_t position = int64_t{sequence.past_length} + i, page = position / limits_.block_size;
    const auto [owner, owners] = limits_.context;
    arrays_.token_ids.push_back(i < sequence.known_tokens.size() ? sequence.known_tokens[i]
                                                                 : -1 - to_int(sequence.seat));
    arrays_.positions.push_back(to_int(position));
    const int64_t slot = sequence.blocks[static_cast<size_t>(page / owners)] * limits_.block_size +
                         position % limits_.block_size;
    const bool written = position >= sequence.cached_length;
    arrays_.slots.push_back(written && page % owners == owner ? to_int(slot) : -1);
    const int64_t block = sequence.blocks[static_cast<size_t>(page / owners)];
    const int64_t place = block * limits_.block_tokens() + position % limits_.block_tokens();
    arrays_.places.push_back(written ? to_int(place) : -1);
    if (!limits_.windows) continue;
    const int64_t window_page =
        sequence.window_blocks[static_cast<size_t>(page / owners)] * owners + page % owners;
    arrays_.window_slots.push_back(
        written ? to_int(window_page * limits_.block_size + position % limits_.block_size) : -1);
  }
  arrays_.query_starts.push_back(to_int(static_cast<int64_t>(arrays_.token_ids.size())));
}

void BatchBuilder::append_new_blocks(const SequenceView& sequence) {
  const auto [owner, owners] = limits_.context;
  require(static_cast<int64_t>(sequence.blocks.size()) * owners <= limits_.max_blocks,
          "a sequence has more blocks than the longest");
  for (size_t i = sequence.seen_blocks; i < sequence.blocks.size(); ++i) {
    arrays_.table_indices.push_back(
        to_int(sequence.seat * limits_.max_blocks + static_cast<int64_t>(i) * owners + owner));
    arrays_.table_entries.push_back(sequence.blocks[i]);
  }
}

void BatchBuilder::append_new_window_blocks(const SequenceView& sequence) {
  const int64_t pages = limits_.context.owners;
  for (size_t i = sequence.seen_window_blocks; i < sequence.window_blocks.size(); ++i)
    for (int64_t page = 0; page < pages; ++page) {
      const int64_t block = sequence.window_blocks[i];
      arrays_.window_indices.push_back(
          to_int(sequence.seat * limits_.max_blocks + static_cast<int64_t>(i) * pages + page));
      arrays_.window_entries.push_back(block < 0 ? -1 : to_int(block * pages + page));
    }
}

void BatchBuilder::upload_lists(const SequenceView& sequence) {
  if (lists_.view().empty() || !sequence.sampling->changes_logits(0)) return;
  const std::vector<int32_t> words = words_of_lists(*sequence.sampling, limits_.vocabulary_size);
  ops_.device().upload(lists_.view().rows(sequence.seat, 1).data,
                       reinterpret_cast<const std::byte*>(words.data()), words.size() * sizeof(int32_t));
}

SequenceTables BatchBuilder::tables() {
  const auto ints = [](const Tensor& tensor) {
    return std::span<const int32_t>(tensor.view().as<int32_t>(),
                                    static_cast<size_t>(tensor.view().shape.elements()));
  };
  return {.tokens = ints(tokens_),
          .block_tables = ints(block_tables_),
          .lists = ints(lists_),
          .block_tokens = to_int(limits_.block_tokens()),
          .max_blocks = to_int(limits_.max_blocks),
          .first = to_int(limits_.context.owner),
          .stride = to_int(limits_.context.owners),
          .list_words = to_int(lists_.view().shape[1])};
}

// The row before a known token, which is scored, and drawn greedily.
void BatchBuilder::append_scored(const SequenceView& sequence, size_t known) {
  const auto query_row = static_cast<uint32_t>(known - 1);
  const SamplerRow row{{.position = sequence.past_length + query_row + 1},
                       sequence.sampling->prompt_logprobs,
                       sequence.known_tokens[known]};
  append_row(sequence, query_row, row, -1);
}

// Only the last row of a query sets the seat's last token.
void BatchBuilder::append_sampled(const SequenceView& sequence, uint32_t query_row) {
  const auto index = to_int(static_cast<int64_t>(sampler_rows_.size()));
  const SamplingParams& sampling = *sequence.sampling;
  const bool greedy = sampling.temperature < 1e-5F;
  const SamplerRow row{{greedy ? 0.0F : sampling.temperature, std::max(sampling.top_k, 0), sampling.top_p,
                        sampling.min_p, sampling.seed, sequence.past_length + query_row + 1},
                       sampling.logprobs};
  const uint32_t completion_tokens = row.draw.position - sequence.prompt_length;
  const AdjustedRow adjusted{.row = index,
                             .seat = to_int(sequence.seat),
                             .length = to_int(row.draw.position),
                             .prompt_length = to_int(sequence.prompt_length),
                             .repetition_penalty = sampling.repetition_penalty,
                             .frequency_penalty = sampling.frequency_penalty,
                             .presence_penalty = sampling.presence_penalty,
                             .before_min_tokens = completion_tokens < sampling.min_tokens};
  if (!tokens_.view().empty() && sampling.changes_logits(completion_tokens))
    arrays_.adjusted.push_back(adjusted);
  append_row(sequence, query_row, row, query_row + 1 == sequence.query_length ? to_int(sequence.seat) : -1);
}

void BatchBuilder::append_row(const SequenceView& sequence, uint32_t query_row, const SamplerRow& row,
                              int32_t seat) {
  const auto index = to_int(static_cast<int64_t>(sampler_rows_.size()));
  arrays_.sampled_rows.push_back(arrays_.query_starts.back() - to_int(sequence.query_length - query_row));
  arrays_.sampled_seats.push_back(seat);
  arrays_.draws.push_back(row.draw);
  if (row.draw.filtered_by_candidates()) arrays_.listed_rows.push_back(index);
  if (row.needs_full_logits()) arrays_.full_rows.push_back(index);
  if (row.logprobs >= 0) {
    arrays_.scored_rows.push_back(index);
    arrays_.given_tokens.push_back(row.given);
  }
  sampler_rows_.push_back(row);
}

void BatchBuilder::append_padding(size_t tokens) {
  arrays_.sampled_rows.push_back(arrays_.query_starts.back());
  arrays_.query_starts.push_back(arrays_.query_starts.back() + to_int(static_cast<int64_t>(tokens)));
  arrays_.past_lengths.push_back(-to_int(static_cast<int64_t>(tokens)));
  arrays_.seats.push_back(0);
  for (auto* array : {&arrays_.token_ids, &arrays_.positions}) array->resize(array->size() + tokens, 0);
  for (auto* array : {&arrays_.slots, &arrays_.places}) array->resize(array->size() + tokens, -1);
  if (limits_.windows) arrays_.window_slots.resize(arrays_.slots.size(), -1);
  arrays_.sampled_seats.push_back(-1);
  arrays_.draws.emplace_back();
}

namespace {

TensorView absent(const Shape& shape) { return {nullptr, DType::int32, shape}; }

}  // namespace

StepBatch BatchBuilder::largest(const BatchLimits& limits) {
  const auto batch = [&](int64_t tokens) -> AttentionBatch {
    const Shape sequences{std::min(limits.max_sequences, tokens)};
    return {absent({sequences[0] + 1}), absent(sequences),
            absent(sequences),          absent({limits.max_sequences, limits.max_blocks}),
            absent({tokens}),           absent({tokens})};
  };
  StepBatch step{batch(limits.max_tokens), absent({limits.rows()})};
  if (limits.windows) step.windowed = step.attention;
  for (int64_t left = blocks_of_tokens(limits) > 0 ? limits.max_tokens : 0; left > 0; left -= shared_tokens)
    step.blocks.push_back(batch(std::min(left, shared_tokens)));
  return step;
}

TensorView BatchBuilder::largest_ids(const BatchLimits& limits) { return absent({limits.max_tokens}); }

SamplerBatch BatchBuilder::largest(std::span<const SamplerRow> rows) {
  const TensorView all = absent({static_cast<int64_t>(rows.size())});
  return {rows, {static_cast<const SamplingRow*>(nullptr), rows.size()}, all, all, all, all, all,
          all,  {static_cast<const AdjustedRow*>(nullptr), rows.size()}};
}

}  // namespace maniple
