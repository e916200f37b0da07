#include <layers/sampler.hpp>

#include <algorithm>
#include <cmath>
#include <limits>

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

TensorView gather_logits(ConstTensorView logits, ConstTensorView rows, ForwardContext& context) {
  const TensorView out = context.workspace.take(DType::fp32, {rows.shape[0], logits.shape[1]});
  context.ops.gather_rows(logits, rows, out);
  return out;
}

float tree_sum(std::vector<float> values) {
  while (values.size() > 1) {
    std::vector<float> next;
    for (size_t i = 0; i < values.size(); i += 2)
      next.push_back(i + 1 < values.size() ? values[i] + values[i + 1] : values[i]);
    values = std::move(next);
  }
  return values.front();
}

}  // namespace

template <typename Byte>
struct PendingRows::Arrays {
  template <typename T>
  using Array = std::span<std::conditional_t<std::is_const_v<Byte>, const T, T>>;

  Array<Candidate> chosen;
  Array<Candidate> redrawn;  // rows with full logits: replaces `chosen`
  Array<float> maxima;       // [ranks, scored rows]
  Array<float> sums;         // [ranks, scored rows, chunks]
  Array<TokenLogit> alternatives;
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
  next(arrays.redrawn, full_);
  next(arrays.maxima, ranks_ * scored_);
  next(arrays.sums, ranks_ * scored_ * chunks_);
  next(arrays.alternatives, alternatives_);
  return arrays;
}

std::vector<SampledRow> PendingRows::wait() {
  std::vector<SampledRow> sampled(rows_.size());
  if (rows_.empty()) return sampled;
  const auto results = arrays(download_->wait().data());
  auto redrawn = results.redrawn.begin();
  auto alternative = results.alternatives.begin();
  size_t scored = 0;
  for (size_t i = 0; i < rows_.size(); ++i) {
    SampledRow& row = sampled[i];
    const bool full = rows_[i].needs_full_logits();
    const Candidate& token = full ? *redrawn++ : results.chosen[i];
    row.id = results.chosen[i].id < 0 ? -1 : token.id;  // the filters do not look for NaN
    if (rows_[i].logprobs < 0) continue;
    const float norm = normaliser(results, scored++);
    row.logprob = token.logit - norm;
    for (int32_t n = rows_[i].logprobs; n > 0; --n, ++alternative)
      row.alternatives.push_back({alternative->id, alternative->logit - norm});
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
  return maximum + std::log(tree_sum(std::move(in_order)));
}

PendingRows Sampler::pending(const SamplerBatch& batch, int ranks) const {
  PendingRows pending;
  pending.rows_.assign(batch.rows.begin(), batch.rows.end());
  pending.full_ = static_cast<size_t>(batch.full_rows.shape.elements());
  pending.scored_ = static_cast<size_t>(batch.scored_rows.shape.elements());
  pending.ranks_ = static_cast<size_t>(ranks);
  pending.chunks_ = vocabulary_chunks % ranks == 0 ? static_cast<size_t>(vocabulary_chunks / ranks) : 1;
  for (SamplerRow& row : pending.rows_) {
    row.logprobs = static_cast<int32_t>(std::min<int64_t>(row.logprobs, vocabulary_size_));
    pending.alternatives_ += static_cast<size_t>(std::max(row.logprobs, 0));
  }
  return pending;
}

PendingRows Sampler::launch(ConstTensorView logits, const SamplerBatch& batch,
                            ForwardContext& context) const {
  const Workspace::Scope scope(context.workspace);
  PendingRows pending = this->pending(batch, context.groups.tensor->size());
  const size_t bytes = std::max<size_t>(pending.arrays<std::byte>(nullptr).bytes, 1);
  const TensorView memory = context.workspace.take(DType::uint8, {static_cast<int64_t>(bytes)});
  const Arrays results = pending.arrays(memory.data);
  if (!batch.rows.empty()) draw(logits, batch, results, context);
  if (pending.full_ > 0) redraw_with_full_logits(logits, batch, pending.rows_, results, context);
  if (pending.scored_ > 0) score(logits, batch, pending.chunks_, results, context);
  // Also without rows: the completed download says that the step is done.
  if (memory.data) pending.download_ = context.ops.device().start_download(memory.data, bytes);
  return pending;
}

void Sampler::draw(ConstTensorView logits, const SamplerBatch& batch, const Arrays& results,
                   ForwardContext& context) const {
  const size_t rows = batch.rows.size();
  const std::span<Candidate> mine = take_array<Candidate>(context, rows);
  const std::span<Candidate> all =
      take_array<Candidate>(context, rows * static_cast<size_t>(context.groups.tensor->size()));
  context.ops.best_candidates(logits, shard_.valid, batch.draws, mine);
  all_gather(mine, all, context);
  context.ops.choose(all, batch.seats, results.chosen, batch.last_tokens);
}

void Sampler::redraw_with_full_logits(ConstTensorView logits, const SamplerBatch& batch,
                                      std::span<const SamplerRow> rows, const Arrays& results,
                                      ForwardContext& context) const {
  const Workspace::Scope scope(context.workspace);
  const int64_t count = batch.full_rows.shape[0];
  const TensorView mine = gather_logits(logits, batch.full_rows, context);
  const TensorView gathered =
      context.workspace.take(DType::fp32, {context.groups.tensor->size(), count, logits.shape[1]});
  context.groups.tensor->all_gather(mine, gathered);

  const std::span<SamplingRow> draws = take_array<SamplingRow>(context, static_cast<size_t>(count));
  const std::span<Candidate> drawn = take_array<Candidate>(context, static_cast<size_t>(count));
  const TensorView seats = context.workspace.take(DType::int32, {count});
  context.ops.gather_rows(bytes_of(batch.draws, batch.rows.size()), batch.full_rows,
                          bytes_of(draws, draws.size()));
  context.ops.gather_rows(batch.seats, batch.full_rows, seats);
  context.ops.sample_filtered(gathered, vocabulary_size_, draws, drawn);
  context.ops.choose(drawn, seats, results.redrawn, batch.last_tokens);

  size_t taken = 0;
  int64_t full_row = 0;
  for (const SamplerRow& row : rows) {
    if (!row.needs_full_logits()) continue;
    const auto wanted = static_cast<size_t>(std::max(row.logprobs, 0));
    context.ops.largest_logits(gathered, vocabulary_size_, full_row++,
                               results.alternatives.subspan(taken, wanted));
    taken += wanted;
  }
}

void Sampler::score(ConstTensorView logits, const SamplerBatch& batch, size_t chunks, const Arrays& results,
                    ForwardContext& context) const {
  const auto rows = static_cast<size_t>(batch.scored_rows.shape[0]);
  const TensorView scored = gather_logits(logits, batch.scored_rows, context);
  const std::span<float> my_maxima = take_array<float>(context, rows);
  const std::span<float> my_sums = take_array<float>(context, rows * chunks);
  context.ops.row_maxima(scored, shard_.valid, my_maxima);
  all_gather(my_maxima, results.maxima, context);
  context.ops.exp_sums(scored, shard_.valid, results.maxima, static_cast<int>(chunks), my_sums);
  all_gather(my_sums, results.sums, context);
}

}  // namespace maniple
