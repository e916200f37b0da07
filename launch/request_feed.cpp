#include <launch/request_feed.hpp>

#include <utility>

namespace maniple {
namespace {

// Requests that have a result which is to stay, by number.
std::vector<bool> settled(const RequestFeed::History& history, const RequestReader::Setting& setting) {
  std::vector<bool> settled;
  if (!history.ledger) return settled;
  settled.resize(history.ledger->requests() * setting.shard.count);
  for (RequestId request = setting.shard.index; request < settled.size(); request += setting.shard.count)
    settled[request] =
        history.ledger->has_result(request) && !(history.retry_errors && history.ledger->has_failed(request));
  return settled;
}

RequestReader::Setting without_settled(RequestReader::Setting setting, const RequestFeed::History& history) {
  setting.passed_over = settled(history, setting);
  return setting;
}

}  // namespace

RequestFeed::RequestFeed(RequestReader::Lines lines, RequestReader::Setting setting, const History& history,
                         RequestOrder& order)
    : history_(history),
      order_(order),
      reader_(std::move(lines), without_settled(std::move(setting), history)) {}

// Looks one request ahead, as the suspects' turn comes only when the input has ended and nothing runs.
bool RequestFeed::ready() {
  if (!order_.has_room()) return false;
  look_ahead();
  return ahead_ || (dry_ && (suspects_.empty() || order_.unfinished() == 0));
}

// Whoever holds requests back is watched by who writes the results.
bool RequestFeed::moved() {
  const uint64_t lines = reader_.lines_read();
  return std::exchange(lines_seen_, lines) != lines || !order_.has_room() || reader_.dry();
}

std::optional<GenerationRequest> RequestFeed::next() {
  for (look_ahead(); !ahead_ && !dry_; look_ahead()) reader_.wait();
  while (!ahead_ && !suspects_.empty()) {
    PreparedRequest suspect = std::move(suspects_.back());
    suspects_.pop_back();
    ahead_ = admit(std::move(suspect));
    if (ahead_) order_.start_alone(ahead_->id);
  }
  return std::exchange(ahead_, std::nullopt);
}

void RequestFeed::look_ahead() {
  while (!ahead_ && !dry_) {
    std::optional<PreparedRequest> prepared = reader_.take();
    if (!prepared) {
      dry_ = reader_.dry();
      return;
    }
    const Ledger* ledger = history_.ledger;
    if (ledger && ledger->is_suspect(prepared->id) && !ledger->is_quarantined(prepared->id))
      suspects_.push_back(std::move(*prepared));
    else
      ahead_ = admit(std::move(*prepared));
  }
}

// Nothing where it is refused instead.
std::optional<GenerationRequest> RequestFeed::admit(PreparedRequest prepared) {
  order_.expect(prepared.id, prepared.label);
  if (history_.ledger && history_.ledger->is_quarantined(prepared.id))
    prepared.error = "quarantined: it was running when the job failed, several times, the last time alone";
  if (prepared.error.empty()) return std::move(prepared.request);
  order_.refuse(prepared.id, prepared.error);
  return std::nullopt;
}

}  // namespace maniple
