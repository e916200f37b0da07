// Requests from text: JSON lines of a file, or the one prompt of the command line. README.md states the
// format.
#pragma once

#include <launch/sampling_fields.hpp>
#include <launch/text_files.hpp>
#include <runtime/checkpoint/generation_config.hpp>
#include <runtime/requests.hpp>
#include <runtime/tokenizer/tokenizer.hpp>

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

namespace maniple {

struct RequestLine {
  uint64_t number = 1;  // of the line
  std::string id;       // as JSON, so that 7 and "7" differ; the line's number where it names none
  std::optional<std::string> prompt;
  std::vector<int32_t> tokens;  // where there is no prompt
  SamplingFields sampling;
  std::string error;  // a setting that no type of ours can hold: the request is refused, the run goes on
};

// Fails (input), naming the line, on what is wrong in itself: not JSON, unknown or mistyped fields, both or
// neither of prompt and tokens.
RequestLine parse_request(const LineReader::Line& line);
// Fails (input) unless it is UTF-8.
RequestLine request_of_prompt(const std::string& prompt);

struct InputSummary {
  size_t requests = 0;
  std::optional<uint64_t> first_text_line;  // with a prompt, or with stop strings: needs a tokenizer
};

// Reads the whole input and rewinds it. Fails (input) with the first ten errors and the count of the others;
// holds ids only, hashed.
InputSummary validate_requests(LineReader& reader);

// The model's suggestions under those of the command line.
GenerationRequest default_request(const GenerationConfig& suggested, const SamplingFields& stated);

// A seed for a request that has none: follows from the run's seed and the id alone.
uint64_t request_seed(uint64_t run_seed, std::string_view id);

// What takes the results, told of each request in the order of the input.
class RequestOrder {
 public:
  virtual ~RequestOrder() = default;
  virtual void expect(RequestId request, const std::string& id) = 0;
  virtual void refuse(RequestId request, const std::string& reason) = 0;
};

// Turns lines into requests for the engine: tokens, settings, seed. Ids for the engine count from 0.
class RequestFeed : public RequestSource {
 public:
  using Lines = std::function<std::optional<RequestLine>()>;

  // tokenizer may be null; it and `order` must outlive the feed.
  RequestFeed(Lines lines, const Tokenizer* tokenizer, GenerationRequest defaults, uint64_t run_seed,
              RequestOrder& order);

  std::optional<GenerationRequest> next() override;

 private:
  GenerationRequest build(RequestLine line, RequestId request) const;

  Lines lines_;
  const Tokenizer* tokenizer_;
  GenerationRequest defaults_;
  uint64_t run_seed_;
  RequestOrder& order_;
  RequestId next_ = 0;
};

}  // namespace maniple
