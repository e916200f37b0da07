#include <kernels/support/check.hpp>
#include <launch/input/followed_input.hpp>
#include <launch/input/request_feed.hpp>

#include <fmt/ranges.h>

#include <algorithm>
#include <chrono>
#include <iterator>
#include <utility>

namespace maniple {
namespace {

// What the engine scores of the prompt: what the result lists, what an echo lists, and a continuation.
void ask_for_scores(GenerationRequest& request, RequestLabel& label) {
  int32_t& scored = request.sampling.prompt_logprobs;
  label.prompt_logprobs = scored;
  if (label.continuation && scored == -1) scored = 0;
  if (!label.echo) return;
  label.echo->logprobs = request.sampling.logprobs;
  scored = std::max(scored, label.echo->logprobs);
}

void check_continuation(const GenerationRequest& request) {
  if (request.score_from == 0)
    fail(ExitCode::input, "the first token of a continuation follows none: the prompt has no tokens");
  if (request.score_from >= request.prompt.size())
    fail(ExitCode::input,
         "nothing is left to score: prompt and continuation have {} tokens together, and the prompt alone {}",
         request.prompt.size(), request.score_from);
}

}  // namespace

RequestReader::RequestReader(Lines lines, Options options)
    : lines_(std::move(lines)),
      options_(std::move(options)),
      thread_([this](const std::stop_token& stop) { read(stop); }) {}

std::optional<PreparedRequest> RequestReader::take() {
  const std::lock_guard lock(mutex_);
  if (queue_.empty()) {
    if (failure_) std::rethrow_exception(failure_);
    return std::nullopt;
  }
  std::optional<PreparedRequest> first(std::move(queue_.front()));
  queue_.pop_front();
  tokens_ -= first->request.prompt.size();
  changed_.notify_all();
  return first;
}

bool RequestReader::dry() const {
  const std::lock_guard lock(mutex_);
  return ended_ && queue_.empty() && !failure_;
}

void RequestReader::wait() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [this] { return ended_ || !queue_.empty(); });
}

void RequestReader::wait_for(size_t requests) {
  std::unique_lock lock(mutex_);
  changed_.wait_for(lock, std::chrono::seconds(1), [&] {
    return ended_ || queue_.size() >= std::min(requests, max_requests) || tokens_ >= max_queued_tokens;
  });
}

void RequestReader::read(const std::stop_token& stop) {
  std::exception_ptr failure;
  try {
    for (RequestId request = 0; !stop.stop_requested();) {
      const std::optional<LineReader::Line> line = lines_();
      ++lines_read_;
      if (options_.requests && !line == (request < *options_.requests)) refuse_changed("the input");
      if (!line) break;
      if (line->text.empty()) continue;
      if (is_wanted(request) && !put(prepare(request, *line), stop)) break;
      ++request;
    }
  } catch (...) {
    failure = std::current_exception();
  }
  const std::lock_guard lock(mutex_);
  failure_ = failure;
  ended_ = true;
  changed_.notify_all();
}

// Reads the ledger before anyone can take the request, so before anything is recorded about it.
bool RequestReader::is_wanted(RequestId request) const {
  if (!options_.shard.holds(request)) return false;
  const Ledger* ledger = options_.ledger;
  if (!ledger || !ledger->concerns({.request = request}) || !ledger->has_result(request)) return true;
  return options_.retry_errors && ledger->has_failed(request);
}

// False if the thread must stop.
bool RequestReader::put(PreparedRequest prepared, const std::stop_token& stop) {
  std::unique_lock lock(mutex_);
  const bool room = changed_.wait(
      lock, stop, [this] { return queue_.size() < max_requests && tokens_ < max_queued_tokens; });
  if (!room) return false;
  tokens_ += prepared.request.prompt.size();
  queue_.push_back(std::move(prepared));
  changed_.notify_all();
  return true;
}

PreparedRequest RequestReader::prepare(RequestId request, const LineReader::Line& line) const try {
  return prepare(request, parse_request(line));
} catch (const Error& error) {
  if (!options_.unchecked) throw;
  return {request, label_of_bad_line(line), {}, error.what()};
}

PreparedRequest RequestReader::prepare(RequestId request, RequestLine parsed) const {
  if (options_.warn) warn_of_ignored(parsed);
  if (parsed.label.model.empty()) parsed.label.model = options_.model_name;
  parsed.label.seed = parsed.sampling.seed.value_or(request_seed(options_.run_seed, parsed.label.id));
  parsed.label.default_length = options_.default_length && !parsed.sampling.max_tokens &&
                                parsed.label.shape == RequestShape::plain && !parsed.chat;
  PreparedRequest prepared{request, parsed.label, {}, parsed.error};
  if (!prepared.error.empty()) return prepared;
  GenerationRequest& built = prepared.request = options_.defaults;
  built.id = request;
  const RequestShape shape = parsed.label.shape;
  if (options_.default_temperature && shape != RequestShape::plain) built.sampling.temperature = 1;
  if (options_.default_length && shape == RequestShape::completion) built.sampling.max_tokens = 16;
  apply_stated(parsed.sampling, built.sampling);
  built.sampling.seed = parsed.label.seed;
  built.sampling.open_ended = options_.unlimited_chats && parsed.chat && !parsed.sampling.max_tokens;
  ask_for_scores(built, prepared.label);
  try {
    if (parsed.label.continuation) built.score_from = tokens_before_continuation(parsed);
    built.prompt = tokens_of(parsed);
    if (parsed.label.continuation) check_continuation(built);
    if (prepared.label.echo && !parsed.prompt)
      prepared.label.echo->text = tokenizer().decode(built.prompt, /*skip_special_tokens=*/false);
    prepared.label.reasoning = reasoning_of(parsed, built.prompt);
  } catch (const Error& error) {  // of the chat template, or the tokenizer is missing or has no such marks
    prepared.error = error.what();
  }
  return prepared;
}

const Tokenizer& RequestReader::tokenizer() const {
  if (!options_.tokenizer) fail(ExitCode::input, "text needs a tokenizer, and the model has none");
  return *options_.tokenizer;
}

uint32_t RequestReader::tokens_before_continuation(const RequestLine& line) const {
  return static_cast<uint32_t>(line.prompt ? tokenizer().encode(*line.prompt, true).size()
                                           : line.continued_from);
}

// A chat template writes the special tokens itself.
std::vector<int32_t> RequestReader::tokens_of(RequestLine& line) const {
  if (!line.chat && !line.prompt) return std::move(line.tokens);
  if (line.chat) return tokenizer().encode(options_.render_chat(*line.chat), false);
  std::vector<int32_t> prompt = tokenizer().encode(*line.prompt + line.continuation, true);
  if (options_.note && !noted_) note_doubled_start(prompt, line.label.id);
  return prompt;
}

// Completions have no place for a thought in OpenAI's API.
std::optional<Reasoning> RequestReader::reasoning_of(const RequestLine& line,
                                                     std::span<const int32_t> prompt) const {
  const std::string& name = line.reasoning.value_or(options_.reasoning);
  if (name == "off" || line.label.shape == RequestShape::completion) return std::nullopt;
  std::optional<Reasoning> reasoning;
  if (options_.tokenizer) reasoning = Reasoning::of(name, *options_.tokenizer, prompt);
  if (!reasoning && name != "auto")
    fail(ExitCode::input,
         "reasoning is {}, and the model's tokenizer has no such marks of thoughts; leave it out", name);
  return reasoning;
}

void RequestReader::note_doubled_start(std::span<const int32_t> prompt, const std::string& id) const {
  const std::vector<int32_t> added = options_.tokenizer->encode("", true);
  if (added.empty() || prompt.size() < 2 || prompt[0] != added[0] || prompt[1] != added[0]) return;
  noted_ = true;
  options_.note(
      fmt::format("the prompt of {} begins with {}, and the tokenizer puts one before every prompt: the "
                  "model sees two; leave "
                  "it out",
                  id, options_.tokenizer->token_text(prompt[0]).value_or("a special token")));
}

// Of each field once.
void RequestReader::warn_of_ignored(const RequestLine& line) const {
  std::vector<std::string> fresh;
  std::ranges::copy_if(line.ignored, std::back_inserter(fresh),
                       [&](const std::string& name) { return ignored_.insert(name).second; });
  if (!fresh.empty())
    options_.warn(fmt::format("ignored in bodies, as no answer depends on it: {}; first in {}",
                              fmt::join(fresh, ", "), line.label.id));
}

// Looks one request ahead, because suspects run only after the input has ended and nothing else runs.
bool RequestFeed::ready() {
  if (!order_.has_room()) return false;
  look_ahead();
  return ahead_ || (dry_ && (suspects_.empty() || order_.unfinished() == 0));
}

// While the results have no room, the disk deadline watches the writer instead.
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
    if (ledger_ && ledger_->is_suspect(prepared->id) && !is_quarantined(prepared->id))
      suspects_.push_back(std::move(*prepared));
    else
      ahead_ = admit(std::move(*prepared));
  }
}

// Nothing if the request is refused instead.
std::optional<GenerationRequest> RequestFeed::admit(PreparedRequest prepared) {
  order_.expect(prepared.id, prepared.label);
  if (is_quarantined(prepared.id))
    prepared.error = "quarantined: it was running when the job failed, several times, the last time alone";
  if (prepared.error.empty()) return std::move(prepared.request);
  order_.refuse(prepared.id, prepared.error);
  return std::nullopt;
}

}  // namespace maniple
