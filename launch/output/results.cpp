#include <kernels/support/check.hpp>
#include <launch/output/result_lines.hpp>
#include <launch/output/results.hpp>
#include <runtime/completion_builder.hpp>

#include <fmt/format.h>

#include <algorithm>

namespace maniple {
namespace {

size_t bytes_of(const std::vector<TokenLogprob>& alternatives) {
  return alternatives.size() * sizeof(TokenLogprob);
}

size_t bytes_of(const FinishedRequest& completion) {
  size_t bytes = sizeof completion + completion.prompt.size() * sizeof(int32_t);
  for (const PromptScore& score : completion.prompt_scores)
    bytes += sizeof score + bytes_of(score.alternatives);
  for (const Answer& answer : completion.answers) {
    bytes += sizeof answer + answer.tokens.size() * sizeof(int32_t);
    for (const TokenScore& score : answer.scores) bytes += sizeof score + bytes_of(score.alternatives);
  }
  return bytes;
}

bool reaches_default_length(const Answer& answer) {
  return answer.reason == FinishReason::length && answer.tokens.size() == SamplingParams{}.max_tokens;
}

// With n answers each stands below its number.
std::string bare_text(const std::vector<Answer>& answers) {
  if (answers.size() == 1) return answers.front().text.value_or("") + '\n';
  std::string text;
  for (size_t i = 0; i < answers.size(); ++i)
    text += fmt::format("--- {} ---\n{}\n", i + 1, answers[i].text.value_or(""));
  return text;
}

}  // namespace

void OrderedFile::finished(RequestId request, bool /*failed*/, std::string line) {
  held_bytes_ += line.size();
  held_.emplace(request, std::move(line));
  for (; !held_.empty() && held_.begin()->first == turn_; turn_ += shard_.count) {
    const std::string next = held_.extract(held_.begin()).mapped();
    held_bytes_ -= next.size();
    file_.write(next);
  }
}

void OrderedFile::write_held() {
  while (!held_.empty()) file_.write(held_.extract(held_.begin()).mapped());
}

void RunStore::started(RequestId request, bool alone) {
  run_.record({alone ? JournalRecord::Kind::started_alone : JournalRecord::Kind::started, request});
  if (alone) run_.sync();
}

// The journal keeps a line without its end.
void RunStore::finished(RequestId request, bool failed, std::string line) {
  line.pop_back();
  run_.record({failed ? JournalRecord::Kind::failed : JournalRecord::Kind::finished, request, line});
}

Results::Results(ResultStore& store, const Tokenizer* tokenizer, bool bare, std::atomic<uint32_t>* at_work)
    : store_(store),
      tokenizer_(tokenizer),
      bare_(bare),
      writer_([this] { store_.idle(progress_); }, at_work) {}

void Results::refuse(RequestId request, const std::string& reason) {
  FinishedRequest refused;
  refused.id = request;
  refused.error = reason;
  finished(std::move(refused));
}

void Results::start_alone(RequestId request) {
  writer_.post([this, request] { store_.started(request, true); });
  writer_.drain();
}

void Results::started(RequestId request) {
  writer_.post([this, request] { store_.started(request, false); });
}

void Results::generated(RequestId /*request*/, std::string_view text) {
  writer_.post([this, part = std::string(text)] {
    store_.begun(part);
    streamed_ += part.size();
  });
}

void Results::stopping() {
  writer_.post([this] {
    if (streamed_ > 0) store_.begun("\n");
    store_.stopping();
  });
}

void Results::finished(FinishedRequest completion) {
  auto label = labels_.extract(completion.id);
  require(!label.empty(), "a request ended that was not expected, or ended twice");
  ++done_;
  if (!completion.error.empty()) {
    ++failed_;
    last_error_ = completion.error;
  } else if (label.mapped().default_length) {
    cut_at_default_ += static_cast<size_t>(std::ranges::count_if(completion.answers, reaches_default_length));
  }
  const size_t bytes = bytes_of(completion);
  waiting_bytes_ += bytes;
  writer_.post([this, bytes, of = std::move(label.mapped()), ended = std::move(completion)]() mutable {
    store(of, std::move(ended));
    waiting_bytes_ -= bytes;
  });
}

void Results::progress(const JobProgress& progress) {
  writer_.post([this, progress] { progress_ = progress; });
}

void Results::store(const RequestLabel& label, FinishedRequest completion) {
  const bool failed = !completion.error.empty();
  for (Answer& answer : completion.answers)
    if (tokenizer_) add_text(*tokenizer_, answer, label.reasoning ? &*label.reasoning : nullptr);
  std::string line;
  if (!bare_) line = result_line(label, completion, tokenizer_) + '\n';
  if (bare_ && !failed) line = bare_text(completion.answers).substr(streamed_);
  store_.finished(completion.id, failed, std::move(line));
}

}  // namespace maniple
