// What the engine pulls requests from: prepared by the input thread, held back while the results have no
// room, told to who takes the results in the order of the input, and the suspects of earlier faults alone, at
// the end.
#pragma once

#include <launch/input/requests.hpp>

#include <condition_variable>
#include <deque>
#include <exception>
#include <mutex>
#include <thread>

namespace maniple {

struct PreparedRequest {
  RequestId id = 0;
  RequestLabel label;
  GenerationRequest request;
  std::string error;  // why it cannot be served; then there is no request
};

// The input thread: reads lines ahead of whoever takes them, and makes them requests for the engine: parsed,
// rendered by the chat template, tokenised. Its end waits for the line at hand.
class RequestReader {
 public:
  // Nothing: there are no more. A line without text: none has come for a moment.
  using Lines = std::function<std::optional<LineReader::Line>()>;
  struct Options {
    const Tokenizer* tokenizer = nullptr;
    RenderChat render_chat;
    GenerationRequest defaults;
    bool unlimited_chats = false;  // chats without max_tokens are open-ended
    uint64_t run_seed = 0;
    Shard shard;
    std::optional<uint64_t> requests;  // of the whole input, where they were counted: it must hold as many
    const Ledger* ledger = nullptr;    // of earlier jobs: what has a result is passed over
    bool retry_errors = false;         // but errors are not
    bool unchecked = false;            // lines were not parsed before: a bad one is refused, not the input
  };

  // Starts the thread. `lines` is called on it alone; what the options points to must outlive this.
  RequestReader(Lines lines, Options options);

  // The next request in the order of the input; nothing if it is not there yet, or there are no more. Throws
  // what reading threw, behind the requests before it.
  std::optional<PreparedRequest> take();
  // All were taken, and there are no more.
  bool dry() const;
  // Returns when take() would bring something, throw, or the input is dry.
  void wait();
  uint64_t lines_read() const { return lines_read_; }

 private:
  static constexpr size_t most_requests = 4096;
  static constexpr size_t most_tokens = size_t{1} << 20;  // of prompts

  void read(const std::stop_token& stop);
  bool is_wanted(RequestId request) const;
  PreparedRequest prepare(RequestId request, const LineReader::Line& line) const;
  PreparedRequest prepare(RequestId request, RequestLine parsed) const;
  std::vector<int32_t> tokens_of(RequestLine& line) const;
  bool put(PreparedRequest prepared, const std::stop_token& stop);

  Lines lines_;
  const Options options_;
  std::atomic<uint64_t> lines_read_ = 0;
  mutable std::mutex mutex_;
  std::condition_variable_any changed_;
  std::deque<PreparedRequest> queue_;
  size_t tokens_ = 0;   // of the prompts in the queue
  bool ended_ = false;  // no more will be put there
  std::exception_ptr failure_;
  std::jthread thread_;  // last: it uses the others
};

// What takes the results, told of each request in the order of the input.
class RequestOrder {
 public:
  virtual ~RequestOrder() = default;
  virtual void expect(RequestId request, const RequestLabel& label) = 0;
  virtual void refuse(RequestId request, const std::string& reason) = 0;
  // Returns when it is on record that this request is about to run alone.
  virtual void start_alone(RequestId request) = 0;
  virtual size_t unfinished() const = 0;  // of those that were expected
  virtual bool has_room() const = 0;      // for the results of further requests
};

// Used by one thread. Ids count the requests of the input from 0.
class RequestFeed : public RequestSource {
 public:
  // What the options points to, and `order`, must outlive the feed.
  RequestFeed(RequestReader::Lines lines, const RequestReader::Options& options, RequestOrder& order)
      : ledger_(options.ledger),
        retry_errors_(options.retry_errors),
        order_(order),
        reader_(std::move(lines), options) {}

  bool ready() override;
  bool moved() override;
  std::optional<GenerationRequest> next() override;

 private:
  void look_ahead();
  std::optional<GenerationRequest> admit(PreparedRequest prepared);
  // It would get the error that --retry-errors takes up, so with it the request runs, alone.
  bool is_quarantined(RequestId request) const {
    return ledger_ && !retry_errors_ && ledger_->is_quarantined(request);
  }

  const Ledger* ledger_;
  const bool retry_errors_;
  RequestOrder& order_;
  bool dry_ = false;  // the input; suspects may be left
  std::optional<GenerationRequest> ahead_;
  std::vector<PreparedRequest> suspects_;  // run alone, after all others
  uint64_t lines_seen_ = 0;                // when moved() was asked last
  RequestReader reader_;
};

}  // namespace maniple
