#include <kernels/contracts.hpp>
#include <kernels/reference/host_ops.hpp>

#include <utility>

namespace maniple {
namespace {

// The logits of a shard in one row, by id.
class ShardRow {
 public:
  ShardRow(TensorView logits, IndexRange vocabulary, int32_t row)
      : logits_(logits.as<float>() + row * logits.shape[1]), vocabulary_(vocabulary) {}

  void change(int32_t id, auto&& to) {
    if (vocabulary_.contains(id)) logits_[id - vocabulary_.begin] = to(logits_[id - vocabulary_.begin]);
  }

 private:
  float* logits_;
  IndexRange vocabulary_;
};

// Calls f(id, count) for each token of the shard at the positions from `begin` on.
void for_counts(const SequenceTables& tables, const AdjustedRow& row, int32_t begin, IndexRange vocabulary,
                auto&& f) {
  thread_local std::vector<int32_t> counts;  // of all tokens of the shard; zeros before and after
  std::vector<int32_t> seen;
  counts.resize(static_cast<size_t>(vocabulary.size()));
  const auto count = [&](int32_t id) -> int32_t& {
    return counts[static_cast<size_t>(id - vocabulary.begin)];
  };
  for (int32_t position = begin; position < row.length; ++position)
    if (const int32_t id = tables.token(row.seat, position); vocabulary.contains(id) && count(id)++ == 0)
      seen.push_back(id);
  for (const int32_t id : seen) f(id, std::exchange(count(id), 0));
}

}  // namespace

void HostOps::adjust_logits(TensorView logits, IndexRange vocabulary, std::span<const AdjustedRow> rows,
                            const SequenceTables& tables) {
  contract::shard(logits, vocabulary, logits.shape[0]);
  for (const AdjustedRow& row : rows) {
    const TokenLists lists = tables.lists_of(row.seat);
    ShardRow mine(logits, vocabulary, row.row);
    for (int i = 0; i < lists.biases(); ++i)
      mine.change(lists.biased(i), [&](float logit) { return kept_finite(logit, logit + lists.bias(i)); });
    if (row.repetition_penalty != 1)
      for_counts(tables, row, 0, vocabulary, [&](int32_t id, int32_t) {
        mine.change(id, [&](float logit) { return repeated_logit(logit, row.repetition_penalty); });
      });
    if (row.frequency_penalty != 0 || row.presence_penalty != 0)
      for_counts(tables, row, row.prompt_length, vocabulary, [&](int32_t id, int32_t count) {
        const float by_frequency = row.frequency_penalty * static_cast<float>(count);
        mine.change(id,
                    [&](float logit) { return counted_logit(logit, by_frequency, row.presence_penalty); });
      });
    for (int i = 0; i < lists.ends() && row.before_min_tokens; ++i) mine.change(lists.end(i), masked_logit);
    for (int i = 0; i < lists.bad_words(); ++i)
      if (const auto word = lists.bad_word(i); tables.begins(row, word))
        mine.change(word.back(), masked_logit);
    for (auto id = static_cast<int32_t>(vocabulary.begin); lists.limited() && id < vocabulary.end; ++id)
      if (!lists.allows(id)) mine.change(id, masked_logit);
  }
}

void HostOps::raw_logits(ConstTensorView raw, ConstTensorView rows, IndexRange vocabulary,
                         std::span<Candidate> candidates) {
  contract::shard(raw, vocabulary, rows.shape[0]);
  for (int64_t i = 0; i < rows.shape[0]; ++i) {
    Candidate& candidate = candidates[static_cast<size_t>(rows.as<int32_t>()[i])];
    if (vocabulary.contains(candidate.id))
      candidate.logit = raw.as<float>()[i * raw.shape[1] + candidate.id - vocabulary.begin];
  }
}

void HostOps::logits_of(ConstTensorView logits, ConstTensorView ids, IndexRange vocabulary,
                        std::span<float> out) {
  contract::shard(logits, vocabulary, std::ssize(out));
  for (int64_t i = 0; i < ids.shape[0]; ++i) {
    const int32_t id = ids.as<int32_t>()[i];
    out[static_cast<size_t>(i)] = vocabulary.contains(id)
                                      ? logits.as<float>()[i * logits.shape[1] + id - vocabulary.begin]
                                      : -std::numeric_limits<float>::infinity();
  }
}

}  // namespace maniple
