#include <layers/sampler.hpp>

#include <algorithm>
#include <cmath>
#include <limits>

namespace maniple {
namespace {

// Small arrays between the host and the workspace.
template <typename T>
std::span<T> take_array(ForwardContext& context, size_t count, std::span<const T> host = {}) {
  const TensorView view = context.workspace.take(DType::uint8, {static_cast<int64_t>(count * sizeof(T))});
  if (view.data && !host.empty())
    context.ops.device().upload(view.data, reinterpret_cast<const std::byte*>(host.data()),
                                host.size_bytes());
  return {reinterpret_cast<T*>(view.data), count};
}

template <typename T>
TensorView bytes_of(std::span<T> array, int64_t ranks = 1) {
  return view_of(reinterpret_cast<uint8_t*>(array.data()), DType::uint8,
                 {ranks, static_cast<int64_t>(array.size_bytes()) / std::max<int64_t>(ranks, 1)});
}

// Zeros in a dry pass, which has no memory.
template <typename T>
std::vector<T> to_host(std::span<const T> array, ForwardContext& context) {
  std::vector<T> host(array.size());
  if (array.data())
    context.ops.device().download(reinterpret_cast<std::byte*>(host.data()),
                                  reinterpret_cast<const std::byte*>(array.data()), array.size_bytes());
  return host;
}

// The arrays of all ranks, on the host, rank after rank.
template <typename T>
std::vector<T> gather_to_host(std::span<T> mine, ForwardContext& context) {
  const int64_t ranks = context.tensor_group.size();
  const std::span<T> all = take_array<T>(context, mine.size() * static_cast<size_t>(ranks));
  context.tensor_group.all_gather(bytes_of(mine), bytes_of(all, ranks));
  return to_host<T>(all, context);
}

bool wins(const Candidate& a, const Candidate& b) {
  return a.score > b.score || (a.score == b.score && a.id < b.id);
}

TensorView gather(ConstTensorView logits, std::span<const int32_t> rows, ForwardContext& context) {
  const std::span<int32_t> on_device = take_array<int32_t>(context, rows.size(), rows);
  const TensorView out =
      context.workspace.take(DType::fp32, {static_cast<int64_t>(rows.size()), logits.shape[1]});
  context.ops.gather_rows(logits,
                          view_of(on_device.data(), DType::int32, {static_cast<int64_t>(rows.size())}), out);
  return out;
}

template <typename Predicate>
std::vector<int32_t> rows_where(std::span<const SamplerRow> rows, Predicate&& predicate) {
  std::vector<int32_t> chosen;
  for (size_t row = 0; row < rows.size(); ++row)
    if (predicate(rows[row])) chosen.push_back(static_cast<int32_t>(row));
  return chosen;
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

std::vector<SampledRow> Sampler::sample(ConstTensorView logits, std::span<const SamplerRow> rows,
                                        ForwardContext& context) const {
  const Workspace::Scope scope(context.workspace);
  std::vector<SampledRow> sampled(rows.size());
  if (rows.empty()) return sampled;
  std::vector<Candidate> winners = draw(logits, rows, context);

  const std::vector<int32_t> full =
      rows_where(rows, [](const SamplerRow& row) { return row.needs_full_logits(); });
  if (!full.empty()) redraw_with_full_logits(logits, rows, full, winners, sampled, context);
  for (size_t row = 0; row < rows.size(); ++row) sampled[row].id = winners[row].id;

  const std::vector<int32_t> asked =
      rows_where(rows, [](const SamplerRow& row) { return row.logprobs >= 0; });
  if (asked.empty()) return sampled;
  const std::vector<float> normalisers = log_sum_exp(gather(logits, asked, context), context);
  for (size_t i = 0; i < asked.size(); ++i) {
    SampledRow& row = sampled[static_cast<size_t>(asked[i])];
    row.logprob = winners[static_cast<size_t>(asked[i])].logit - normalisers[i];
    for (TokenLogit& alternative : row.alternatives) alternative.logit -= normalisers[i];
  }
  return sampled;
}

std::vector<Candidate> Sampler::draw(ConstTensorView logits, std::span<const SamplerRow> rows,
                                     ForwardContext& context) const {
  std::vector<SamplingRow> draws;
  for (const SamplerRow& row : rows) draws.push_back(row.draw);
  const std::span<SamplingRow> draws_on_device = take_array<SamplingRow>(context, rows.size(), draws);
  const std::span<Candidate> mine = take_array<Candidate>(context, rows.size());
  context.ops.best_candidates(logits, shard_.valid, draws_on_device, mine);

  const std::vector<Candidate> all = gather_to_host(mine, context);
  std::vector<Candidate> winners(all.begin(), all.begin() + static_cast<std::ptrdiff_t>(rows.size()));
  for (size_t i = rows.size(); i < all.size(); ++i) {
    Candidate& winner = winners[i % rows.size()];
    if (wins(all[i], winner)) winner = all[i];
  }
  return winners;
}

void Sampler::redraw_with_full_logits(ConstTensorView logits, std::span<const SamplerRow> rows,
                                      std::span<const int32_t> chosen, std::span<Candidate> winners,
                                      std::span<SampledRow> sampled, ForwardContext& context) const {
  const Workspace::Scope scope(context.workspace);
  const int64_t count = static_cast<int64_t>(chosen.size());
  const TensorView mine = gather(logits, chosen, context);
  const TensorView gathered =
      context.workspace.take(DType::fp32, {context.tensor_group.size(), count, logits.shape[1]});
  context.tensor_group.all_gather(mine, gathered);

  std::vector<SamplingRow> draws;
  for (const int32_t row : chosen) draws.push_back(rows[static_cast<size_t>(row)].draw);
  const std::span<SamplingRow> draws_on_device = take_array<SamplingRow>(context, chosen.size(), draws);
  const std::span<Candidate> drawn = take_array<Candidate>(context, chosen.size());
  context.ops.sample_filtered(gathered, vocabulary_size_, draws_on_device, drawn);
  const std::vector<Candidate> redrawn = to_host<Candidate>(drawn, context);

  for (int64_t i = 0; i < count; ++i) {
    const size_t row = static_cast<size_t>(chosen[static_cast<size_t>(i)]);
    winners[row] = redrawn[static_cast<size_t>(i)];
    const int64_t wanted = std::min<int64_t>(rows[row].logprobs, vocabulary_size_);
    if (wanted <= 0) continue;
    const Workspace::Scope row_scope(context.workspace);
    const std::span<TokenLogit> largest = take_array<TokenLogit>(context, static_cast<size_t>(wanted));
    context.ops.largest_logits(gathered, vocabulary_size_, i, largest);
    sampled[row].alternatives = to_host<TokenLogit>(largest, context);
  }
}

// Exact maximum, then the chunk sums of all ranks by a tree in vocabulary order: the same bits for every
// tensor size that divides the chunks.
std::vector<float> Sampler::log_sum_exp(ConstTensorView logits, ForwardContext& context) const {
  const size_t rows = static_cast<size_t>(logits.shape[0]),
               ranks = static_cast<size_t>(context.tensor_group.size());
  const std::span<float> my_maxima = take_array<float>(context, rows);
  context.ops.row_maxima(logits, shard_.valid, my_maxima);
  const std::vector<float> all_maxima = gather_to_host(my_maxima, context);
  std::vector<float> maxima(rows, -std::numeric_limits<float>::infinity());
  for (size_t i = 0; i < all_maxima.size(); ++i) maxima[i % rows] = std::max(maxima[i % rows], all_maxima[i]);

  const size_t chunks = vocabulary_chunks % ranks == 0 ? vocabulary_chunks / ranks : 1;
  const std::span<float> sums = take_array<float>(context, rows * chunks);
  const std::span<float> maxima_on_device = take_array<float>(context, rows, maxima);
  context.ops.exp_sums(logits, shard_.valid, maxima_on_device, static_cast<int>(chunks), sums);
  const std::vector<float> all_sums = gather_to_host(sums, context);

  std::vector<float> normalisers(rows);
  for (size_t row = 0; row < rows; ++row) {
    std::vector<float> in_order;
    for (size_t rank = 0; rank < ranks; ++rank)
      for (size_t chunk = 0; chunk < chunks; ++chunk)
        in_order.push_back(all_sums[(rank * rows + row) * chunks + chunk]);
    normalisers[row] = maxima[row] + std::log(tree_sum(std::move(in_order)));
  }
  return normalisers;
}

}  // namespace maniple
