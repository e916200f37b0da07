#include <layers/sampler.hpp>

#include <algorithm>
#include <bit>
#include <cmath>
#include <functional>
#include <limits>
#include <numeric>

namespace maniple {
namespace {

template <typename T>
std::span<T> take_array(ForwardContext& context, size_t count) {
  const TensorView view = context.workspace.take(DType::uint8, {static_cast<int64_t>(count * sizeof(T))});
  return {reinterpret_cast<T*>(view.data), count};
}

template <typename T>
auto bytes_of(std::span<T> array, size_t rows) {
  using Byte = std::conditional_t<std::is_const_v<T>, const uint8_t, uint8_t>;
  return view_of(reinterpret_cast<Byte*>(array.data()), DType::uint8,
                 {static_cast<int64_t>(rows), static_cast<int64_t>(array.size_bytes() / rows)});
}

// all: the arrays of all ranks, rank after rank.
template <typename T>
void all_gather(std::span<T> mine, std::span<T> all, ForwardContext& context) {
  context.groups.tensor->all_gather(bytes_of(mine, 1),
                                    bytes_of(all, static_cast<size_t>(context.groups.tensor->size())));
}

// Of neighbours, then of their sums, and so on; an odd one passes up.
float tree_sum(std::span<const float> values) {
  if (values.size() == 1) return values[0];
  const size_t half = std::bit_ceil(values.size()) / 2;
  return tree_sum(values.first(half)) + tree_sum(values.subspan(half));
}

}  // namespace

template <typename Byte>
struct PendingRows::Arrays {
  template <typename T>
  using Array = std::span<std::conditional_t<std::is_const_v<Byte>, const T, T>>;

  Array<Candidate> chosen;
  Array<float> maxima;             // [ranks, scored rows]
  Array<float> sums;               // [ranks, scored rows, chunks]
  Array<float> given;              // [ranks, scored rows]: logits of given tokens; -inf on ranks without them
  Array<TokenLogit> alternatives;  // [ranks, those of all rows]: the likeliest tokens of a shard
  size_t bytes = 0;
};

template <typename Byte>
PendingRows::Arrays<Byte> PendingRows::arrays(Byte* memory) const {
  Arrays<Byte> arrays;
  const auto next = [&]<typename T>(std::span<T>& array, size_t count) {
    array = {memory ? reinterpret_cast<T*>(memory + arrays.bytes) : nullptr, count};
    arrays.bytes += count * sizeof(T);
  };
  next(arrays.chosen, rows_.size());
  next(arrays.maxima, ranks_ * scored_);
  next(arrays.sums, ranks_ * scored_ * chunks_);
  next(arrays.given, given_ ? ranks_ * scored_ : 0);
  next(arrays.alternatives, ranks_ * alternatives_);
  return arrays;
}

std::vector<SampledRow> PendingRows::wait() {
  std::vector<SampledRow> sampled(rows_.size());
  if (rows_.empty()) return sampled;
  const auto results = arrays(download_->wait().data());
  size_t scored = 0, listed = 0;
  for (size_t i = 0; i < rows_.size(); ++i) {
    SampledRow& row = sampled[i];
    const Candidate& token = results.chosen[i];
    row.id = token.id;
    if (rows_[i].logprobs < 0) continue;
    const float norm = normaliser(results, scored),
                logit = rows_[i].given < 0 ? token.logit : given(results, scored);
    ++scored;
    row.logprob = logit - norm;
    row.alternatives = likeliest(results, listed, static_cast<size_t>(rows_[i].logprobs));
    listed += row.alternatives.size();
    for (TokenLogit& alternative : row.alternatives) alternative.logit -= norm;
  }
  return sampled;
}

// Log-sum-exp: the exact maximum, then the chunk sums of all ranks along a tree in vocabulary order. The bits
// are the same for every tensor size that divides the chunks.
float PendingRows::normaliser(const Arrays<const std::byte>& results, size_t scored_row) const {
  float maximum = -std::numeric_limits<float>::infinity();
  std::vector<float> in_order;
  for (size_t rank = 0; rank < ranks_; ++rank) {
    const size_t at = rank * scored_ + scored_row;
    maximum = std::max(maximum, results.maxima[at]);
    const auto sums = results.sums.subspan(at * chunks_, chunks_);
    in_order.insert(in_order.end(), sums.begin(), sums.end());
  }
  return maximum + std::log(tree_sum(in_order));
}

float PendingRows::given(const Arrays<const std::byte>& results, size_t scored_row) const {
  float logit = -std::numeric_limits<float>::infinity();
  for (size_t rank = 0; rank < ranks_; ++rank)
    logit = std::max(logit, results.given[rank * scored_ + scored_row]);
  return logit;
}

// Of a row whose alternatives begin at `first`, over the shards.
std::vector<TokenLogit> PendingRows::likeliest(const Arrays<const std::byte>& results, size_t first,
                                               size_t count) const {
  std::vector<TokenLogit> tokens;
  for (size_t rank = 0; rank < ranks_ && count > 0; ++rank) {
    const IndexRange shard =
        vocabulary_shard(vocabulary_size_, static_cast<int>(ranks_), static_cast<int>(rank)).valid;
    const auto listed = results.alternatives.subspan(rank * alternatives_ + first,
                                                     std::min(count, static_cast<size_t>(shard.size())));
    tokens.insert(tokens.end(), listed.begin(), listed.end());
  }
  // Stable: of equal logits the lower id is first.
  std::ranges::stable_sort(tokens, std::greater(), &TokenLogit::logit);
  tokens.resize(count);
  return tokens;
}

PendingRows Sampler::pending(const SamplerBatch& batch, int ranks) const {
  PendingRows pending;
  pending.rows_.assign(batch.rows.begin(), batch.rows.end());
  pending.scored_ = static_cast<size_t>(batch.scored_rows.shape.elements());
  pending.ranks_ = static_cast<size_t>(ranks);
  pending.vocabulary_size_ = vocabulary_size_;
  pending.chunks_ = vocabulary_chunks % ranks == 0 ? static_cast<size_t>(vocabulary_chunks / ranks) : 1;
  for (SamplerRow& row : pending.rows_) {
    row.logprobs = static_cast<int32_t>(std::min<int64_t>(row.logprobs, vocabulary_size_));
    pending.alternatives_ += static_cast<size_t>(std::max(row.logprobs, 0));
    pending.given_ |= row.given >= 0;
  }
  return pending;
}

std::span<Candidate> Sampler::draw(ConstTensorView logits, const SamplerBatch& batch,
                                   ForwardContext& context) const {
  const std::span<Candidate> drawn = take_array<Candidate>(context, batch.draws.size());
  choose(logits, batch, {}, drawn, context);
  return drawn;
}

PendingRows Sampler::launch(TensorView logits, const SamplerBatch& padded, ForwardContext& context,
                            std::span<const Candidate> drawn) const {
  const SamplerBatch batch = padded.without_padding();
  const Workspace::Scope scope(context.workspace);
  PendingRows pending = this->pending(batch, context.groups.tensor->size());
  const bool adjusts = !batch.adjusted.empty();
  if (adjusts || std::ranges::any_of(batch.rows, [](const SamplerRow& row) { return row.draw.filtered(); }))
    drawn = {};
  const auto chosen = std::as_bytes(drawn.first(drawn.empty() ? 0 : batch.rows.size()));
  if (!chosen.empty() && pending.scored_ == 0) {
    pending.download_ = context.ops.device().start_download(chosen.data(), chosen.size());
    return pending;
  }
  const size_t bytes = std::max<size_t>(pending.arrays<std::byte>(nullptr).bytes, 1);
  const TensorView memory = context.workspace.take(DType::uint8, {static_cast<int64_t>(bytes)});
  const Arrays results = pending.arrays(memory.data);
  const std::span<Cut> cuts = take_array<Cut>(context, batch.rows.size());
  const ConstTensorView raw =
      pending.scored_ > 0 ? score(logits, batch, pending.chunks_, results, context) : ConstTensorView();
  if (pending.alternatives_ > 0) list_alternatives(logits, pending.rows_, results, context);
  if (adjusts) context.ops.adjust_logits(logits, shard_.valid, batch.adjusted, batch.tables);
  if (!batch.full_rows.empty()) filter_full_rows(logits, batch, cuts, context);
  if (!batch.listed_rows.empty()) filter_by_candidates(logits, batch, cuts, context);
  if (!chosen.empty())
    context.ops.device().copy(reinterpret_cast<std::byte*>(results.chosen.data()), chosen.data(),
                              chosen.size());
  else if (!batch.rows.empty())
    choose(logits, batch, cuts, results.chosen, context, adjusts ? raw : ConstTensorView());
  // Also without rows: the completed download says that the step is done.
  if (memory.data) pending.download_ = context.ops.device().start_download(memory.data, bytes);
  return pending;
}

void Sampler::choose(ConstTensorView logits, const SamplerBatch& batch, std::span<const Cut> cuts,
                     std::span<Candidate> chosen, ForwardContext& context, ConstTensorView raw) const {
  const size_t rows = batch.draws.size();
  const std::span<Candidate> mine = take_array<Candidate>(context, rows);
  const std::span<Candidate> all =
      take_array<Candidate>(context, rows * static_cast<size_t>(context.groups.tensor->size()));
  context.ops.best_candidates(logits, shard_.valid, batch.draws, cuts, mine);
  if (!raw.empty()) context.ops.raw_logits(raw, batch.scored_rows, shard_.valid, mine);
  all_gather(mine, all, context);
  context.ops.choose(all, batch.seats, chosen, batch.last_tokens);
}

void Sampler::filter_by_candidates(ConstTensorView logits, const SamplerBatch& batch, std::span<Cut> cuts,
                                   ForwardContext& context) const {
  const Workspace::Scope scope(context.workspace);
  const auto rows = static_cast<size_t>(batch.listed_rows.shape[0]),
             ranks = static_cast<size_t>(context.groups.tensor->size());
  const std::span<CandidateList> mine = take_array<CandidateList>(context, rows);
  context.ops.candidates(logits, shard_.valid, batch.listed_rows, mine);
  std::span<CandidateList> all = mine;
  if (ranks > 1) all_gather(mine, all = take_array<CandidateList>(context, ranks * rows), context);
  context.ops.filter_candidates(all, logits, shard_.valid, batch.listed_rows, batch.draws, cuts);
}

// One rank has the whole logits already, in their places; of several each filters a part of the rows.
void Sampler::filter_full_rows(ConstTensorView logits, const SamplerBatch& batch, std::span<Cut> cuts,
                               ForwardContext& context) const {
  Communicator& group = *context.groups.tensor;
  const int64_t rows = batch.full_rows.shape[0], width = logits.shape[1];
  if (group.size() == 1)
    return context.ops.filter_logits(logits.reshaped({1, logits.shape[0], width}), vocabulary_size_,
                                     batch.full_rows, batch.draws, cuts);
  const Workspace::Scope scope(context.workspace);
  const int64_t part = (rows + group.size() - 1) / group.size(), first = std::min(group.rank() * part, rows),
                count = std::min(part, rows - first);
  const TensorView mine = context.workspace.take(DType::fp32, {group.size() * part, width}),
                   whole = context.workspace.take(DType::fp32, {group.size(), part, width});
  context.ops.gather_rows(logits, batch.full_rows, mine.rows(0, rows));
  group.all_to_all(mine.reshaped(whole.shape), whole);
  if (count > 0)
    context.ops.filter_logits(whole, vocabulary_size_, batch.full_rows.rows(first, count), batch.draws, cuts);
  // A rank has the cuts from its first row to that of the next rank.
  std::vector<int64_t> rows_of_ranks(static_cast<size_t>(group.size()));
  for (int64_t full = 0; const SamplerRow& row : batch.rows) {
    full += row.needs_full_logits();
    ++rows_of_ranks[static_cast<size_t>(full == 0 ? 0 : (full - 1) / part)];
  }
  const TensorView all = bytes_of(cuts, cuts.size());
  const auto own = rows_of_ranks.begin() + group.rank();
  group.all_gatherv(all.rows(std::accumulate(rows_of_ranks.begin(), own, int64_t{0}), *own), all,
                    rows_of_ranks);
}

void Sampler::list_alternatives(ConstTensorView logits, std::span<const SamplerRow> rows,
                                const Arrays& results, ForwardContext& context) const {
  const std::span<TokenLogit> mine = take_array<TokenLogit>(
      context, results.alternatives.size() / static_cast<size_t>(context.groups.tensor->size()));
  size_t listed = 0;
  for (size_t row = 0; row < rows.size(); ++row) {
    const auto wanted = static_cast<size_t>(std::max(rows[row].logprobs, 0)),
               there = std::min(wanted, static_cast<size_t>(shard_.valid.size()));
    if (there > 0)
      context.ops.largest_logits(logits, shard_.valid, static_cast<int64_t>(row),
                                 mine.subspan(listed, there));
    listed += wanted;
  }
  all_gather(mine, results.alternatives, context);
}

ConstTensorView Sampler::score(ConstTensorView logits, const SamplerBatch& batch, size_t chunks,
                               const Arrays& results, ForwardContext& context) const {
  const auto rows = static_cast<size_t>(batch.scored_rows.shape[0]);
  const TensorView scored =
      context.workspace.take(DType::fp32, {batch.scored_rows.shape[0], logits.shape[1]});
  context.ops.gather_rows(logits, batch.scored_rows, scored);
  const std::span<float> my_maxima = take_array<float>(context, rows);
  const std::span<float> my_sums = take_array<float>(context, rows * chunks);
  context.ops.row_maxima(scored, shard_.valid, my_maxima);
  all_gather(my_maxima, results.maxima, context);
  context.ops.exp_sums(scored, shard_.valid, results.maxima, static_cast<int>(chunks), my_sums);
  all_gather(my_sums, results.sums, context);
  if (!results.given.empty()) {
    const std::span<float> mine = take_array<float>(context, rows);
    context.ops.logits_of(scored, batch.given_tokens, shard_.valid, mine);
    all_gather(mine, results.given, context);
  }
  return scored;
}

}  // namespace maniple
