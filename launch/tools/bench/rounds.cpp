#include <kernels/support/check.hpp>
#include <launch/tools/bench/rounds.hpp>

#include <fmt/format.h>

#include <numeric>

namespace maniple {

std::optional<GenerationRequest> Rounds::next() {
  if (given_ == round().requests) {
    if (current_ + 1 == rounds_.size()) return std::nullopt;
    before_ += finished_;
    if (!round().counts) uncounted_ += finished_;
    ++current_;
    given_ = finished_ = 0;
  }
  if (given_ == 0) began_ = Clock::now();
  GenerationRequest request = workload_.request(given_, current_);
  request.id = before_ + given_++;
  return request;
}

void Rounds::finished(FinishedRequest completion) {
  const size_t index = completion.id - before_;
  if (!completion.error.empty())
    throw Error(ExitCode::preflight,
                fmt::format("request {} of the workload is refused: {}", index + 1, completion.error),
                "a bench serves all of its requests or none", "a smaller workload, or more --kv-memory");
  require(completion.answers[0].tokens.size() == workload_.requests[index].output,
          "an output has not the tokens that were asked for");
  if (++finished_ == round().requests)
    round().seconds = std::chrono::duration<double>(Clock::now() - began_).count();
}

void Rounds::step(const StepRow& row) {
  StepSums& sums = round().steps;
  sums.steps += row.weight;
  sums.tokens += row.tokens;
  sums.sampled += row.sampled;
  sums.context += row.context;
  sums.attended += row.attended;
  sums.kv_tokens += row.kv_tokens;
  if (record_ && round().counts) record_->step(row);
}

void Rounds::request(const RequestRow& row) {
  round().rows.push_back(row);
  if (!record_ || !round().counts) return;
  RequestRow counted = row;
  counted.id -= uncounted_;
  record_->request(counted);
}

uint64_t Rounds::all() const {
  return std::accumulate(rounds_.begin(), rounds_.end(), uint64_t{0},
                         [](uint64_t sum, const Round& round) { return sum + round.requests; });
}

}  // namespace maniple
