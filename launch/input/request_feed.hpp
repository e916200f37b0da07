// The engine's source of requests, which the input thread prepares. Announces each
// request to the results in the order of the input, holds requests back while the
// results have no room, and runs the suspects of earlier faults alone, at the end.
#pragma once

#include <launch/input/requests.hpp>

#include <condition_variable>
#include <deque>
#include <exception>
#include <mutex>
#include <set>
#include <span>
#include <thread>

namespace maniple {

struct PreparedRequest {
  RequestId id = 0;
  RequestLabel label;
  GenerationRequest request;
  std::string error;  // why it cannot be served; then there is no request
};

// The input thread. Reads lines ahead and makes requests of them: parses, renders
// with the chat template, tokenises. The destructor waits for the current line.
class RequestReader {
 public:
  // Nothing: the input has ended. A line without text: none has arrived for a moment.
  using Lines = std::function<std::optional<LineReader::Line>()>;
  struct Options {
    const Tokenizer* tokenizer = nullptr;
    RenderChat render_chat;
    std::string model_name;                              // for results of bodies that name no model
    std::function<void(const std::string&)> note, warn;  // tell users, from the reading thread; may be empty
    GenerationRequest defaults;
    // Neither the command line nor the model states one: bodies in OpenAI's shape then get its defaults.
    bool default_temperature = false, default_length = false;
    bool unlimited_chats = false;   // chats without max_tokens are open-ended
    std::string reasoning = "off";  // of requests that do not say
    uint64_t run_seed = 0;
    Shard shard;
    std::optional<uint64_t> requests;  // in the whole input, if counted: it must hold as many
    const Ledger* ledger = nullptr;    // of earlier jobs: requests with a result are skipped
    bool retry_errors = false;         // requests with an error are not skipped
    bool unchecked = false;            // lines were not checked: a bad line fails alone
  };

  // Starts the thread, which alone calls `lines`. The targets of the options' pointers must outlive this.
  RequestReader(Lines lines, Options options);

  // The next request in the order of the input; nothing if it is not ready, or the input
  // has ended. An error of the reading thread is thrown after the requests before it.
  std::optional<PreparedRequest> take();
  // All requests were taken, and the input has ended.
  bool dry() const;
  // Returns when take() would return a request or throw, or when dry().
  void wait();
  // Returns when that many requests are ready, or as many as it holds, or the input has ended; after a second in any case.
  void wait_for(size_t requests);
  uint64_t lines_read() const { return lines_read_; }

 private:
  static constexpr size_t max_requests = 4096;
  static constexpr size_t max_queued_tokens = size_t{1} << 20;  // of prompts

  void read(const std::stop_token& stop);
  bool is_wanted(RequestId request) const;
  PreparedRequest prepare(RequestId request, const LineReader::Line& line) const;
  PreparedRequest prepare(RequestId request, RequestLine parsed) const;
  const Tokenizer& tokenizer() const;  // fails (input) where the model has none
  uint32_t tokens_before_continuation(const RequestLine& line) const;
  std::vector<int32_t> tokens_of(RequestLine& line) const;
  std::optional<Reasoning> reasoning_of(const RequestLine& line, std::span<const int32_t> prompt) const;
  void note_doubled_start(std::span<const int32_t> prompt, const std::string& id) const;
  void warn_of_ignored(const RequestLine& line) const;
  bool put(PreparedRequest prepared, const std::stop_token& stop);

  Lines lines_;
  const Options options_;
  std::atomic<uint64_t> lines_read_ = 0;
  mutable bool noted_ = false;             // the reading thread's
  mutable std::set<std::string> ignored_;  // too: fields that were told of
  mutable std::mutex mutex_;
  std::condition_variable_any changed_;
  std::deque<PreparedRequest> queue_;
  size_t tokens_ = 0;   // of the prompts in the queue
  bool ended_ = false;  // no more will be put there
  std::exception_ptr failure_;
  std::jthread thread_;  // last: it uses the others
};

// The results: the feed announces each request to them in the order of the input.
class RequestOrder {
 public:
  virtual ~RequestOrder() = default;
  virtual void expect(RequestId request, const RequestLabel& label) = 0;
  virtual void refuse(RequestId request, const std::string& reason) = 0;
  // Returns when it is recorded that this request is about to run alone.
  virtual void start_alone(RequestId request) = 0;
  virtual size_t unfinished() const = 0;  // of those that were expected
  virtual bool has_room() const = 0;      // for the results of further requests
};

// Used by one thread. Ids count the requests of the input from 0.
class RequestFeed : public RequestSource {
 public:
  // `order` and the targets of the options' pointers must outlive the feed.
  RequestFeed(RequestReader::Lines lines, const RequestReader::Options& options, RequestOrder& order)
      : ledger_(options.ledger),
        retry_errors_(options.retry_errors),
        order_(order),
        reader_(std::move(lines), options) {}

  // Waits for the first requests, so that first steps are full, and the same in each run.
  void fill(size_t requests) { reader_.wait_for(requests); }
  bool ready() override;
  bool moved() override;
  std::optional<GenerationRequest> next() override;

 private:
  void look_ahead();
  std::optional<GenerationRequest> admit(PreparedRequest prepared);
  // With --retry-errors such a request runs again, alone.
  bool is_quarantined(RequestId request) const {
    return ledger_ && !retry_errors_ && ledger_->is_quarantined(request);
  }

  const Ledger* ledger_;
  const bool retry_errors_;
  RequestOrder& order_;
  bool dry_ = false;  // the input has ended; suspects may be left
  std::optional<GenerationRequest> ahead_;
  std::vector<PreparedRequest> suspects_;  // run alone, after all others
  uint64_t lines_seen_ = 0;                // when moved() was asked last
  RequestReader reader_;
};

}  // namespace maniple
