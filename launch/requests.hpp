// Requests from text: JSON lines of files, or the one prompt of the command line. README.md states the
// formats.
#pragma once

#include <launch/run_directory/ledger.hpp>
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

// Of a request and its result: ours, or OpenAI's batch with /v1/completions or /v1/chat/completions.
enum class RequestShape : uint8_t { plain, completion, chat };

// What a result repeats of its request.
struct RequestLabel {
  std::string id;  // as JSON, so that 7 and "7" differ; the line's number where it names none
  RequestShape shape = RequestShape::plain;
  std::string model = {};  // as the request calls it; batch shapes only
  uint64_t seed = 0;       // that it is served with
};

struct RequestLine {
  uint64_t number = 1;  // of the line
  RequestLabel label;
  std::optional<std::string> prompt;
  std::vector<int32_t> tokens;  // where there is no prompt
  std::string chat;             // the whole line of a chat, as templates see the order of its fields
  SamplingFields sampling;
  std::string error;  // a setting that no type of ours can hold: the request is refused, the run goes on
};

// Fails (input), naming the line, on what is wrong in itself: not JSON, unknown or mistyped fields, both or
// neither of prompt and tokens.
RequestLine parse_request(const LineReader::Line& line);
// The line that asks for it. Fails (input) unless it is UTF-8.
LineReader::Line line_of_prompt(const std::string& prompt);

struct InputSummary {
  uint64_t requests = 0;
  std::string first_text;  // the line with a prompt, stop strings or the batch shape: needs a tokenizer
  std::string first_chat;  // needs a chat template
};

// Reads the whole input and rewinds it. Fails (input) with the first ten errors and the count of the others;
// holds ids only, hashed.
InputSummary validate_requests(LineReader& reader);

// The model's suggestions under those of the command line.
GenerationRequest default_request(const GenerationConfig& suggested, const SamplingFields& stated);

// A seed for a request that has none: follows from the run's seed and the id alone.
uint64_t request_seed(uint64_t run_seed, std::string_view id);

// The model's chat template: the line of a chat to the prompt. Throws Error when the template refuses it.
using RenderChat = std::function<std::string(const std::string& chat)>;

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

// Turns lines into requests for the engine: tokens, settings, seed. Ids count the requests of the input from
// 0.
class RequestFeed : public RequestSource {
 public:
  using Lines = std::function<std::optional<LineReader::Line>()>;
  struct Setting {
    const Tokenizer* tokenizer = nullptr;
    RenderChat render_chat;
    GenerationRequest defaults;
    uint64_t run_seed = 0;
    Shard shard;
    std::optional<uint64_t> requests;  // of the whole input, where they were counted: it must hold as many
    const Ledger* ledger = nullptr;    // what is known from earlier jobs
    bool retry_errors = false;
  };

  // What setting points to, and `order`, must outlive the feed.
  RequestFeed(Lines lines, Setting setting, RequestOrder& order)
      : lines_(std::move(lines)), setting_(std::move(setting)), order_(order) {}

  bool ready() override;
  std::optional<GenerationRequest> next() override;

 private:
  struct Suspect {
    RequestId request;
    LineReader::Line line;
  };

  void look_ahead();
  std::optional<LineReader::Line> next_line();
  bool is_settled(RequestId request) const;
  std::optional<GenerationRequest> admit(RequestId request, const LineReader::Line& line);
  GenerationRequest build(RequestLine line, RequestId request) const;
  std::vector<int32_t> tokens_of(RequestLine& line) const;

  Lines lines_;
  Setting setting_;
  RequestOrder& order_;
  RequestId next_ = 0;
  bool dry_ = false;  // the input; suspects may be left
  std::optional<GenerationRequest> ahead_;
  std::vector<Suspect> suspects_;  // run alone, after all others
};

}  // namespace maniple
