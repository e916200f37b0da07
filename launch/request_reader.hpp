// The input thread: reads lines ahead of whoever takes them, and makes them requests for the engine: parsed,
// rendered by the chat template, tokenised.
#pragma once

#include <launch/requests.hpp>

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

class RequestReader {
 public:
  using Lines = std::function<std::optional<LineReader::Line>()>;
  struct Setting {
    const Tokenizer* tokenizer = nullptr;
    RenderChat render_chat;
    GenerationRequest defaults;
    uint64_t run_seed = 0;
    Shard shard;
    std::optional<uint64_t> requests;  // of the whole input, where they were counted: it must hold as many
    std::vector<bool> passed_over;  // requests that are not wanted, by number; may be shorter than the input
  };

  // Starts the thread. `lines` is called on it alone; the tokenizer must outlive this.
  RequestReader(Lines lines, Setting setting);
  // Ends it behind the line at hand.
  ~RequestReader();

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
  std::vector<int32_t> tokens_of(RequestLine& line) const;
  bool put(PreparedRequest prepared, const std::stop_token& stop);

  Lines lines_;
  const Setting setting_;
  std::atomic<uint64_t> lines_read_ = 0;
  mutable std::mutex mutex_;
  std::condition_variable_any changed_;
  std::deque<PreparedRequest> queue_;
  size_t tokens_ = 0;   // of the prompts in the queue
  bool ended_ = false;  // no more will be put there
  std::exception_ptr failure_;
  std::jthread thread_;  // last: it uses the others
};

}  // namespace maniple
