// Requests from text: JSON lines of files, or the prompt of the command line. Formats: README.md.
#pragma once

#include <kernels/support/sampling_params.hpp>
#include <launch/input/line_reader.hpp>
#include <launch/run_directory/ledger.hpp>
#include <runtime/checkpoint/generation_config.hpp>
#include <runtime/requests.hpp>
#include <runtime/tokenizer/reasoning.hpp>
#include <runtime/tokenizer/tokenizer.hpp>

#include <nlohmann/json_fwd.hpp>

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace maniple {

// The shape of a request and its result: ours, or OpenAI's
// batch with /v1/completions or /v1/chat/completions.
enum class RequestShape : uint8_t { plain, completion, chat };

// The prompt's text, that stands before each answer, and how many alternatives are listed of its tokens; -1: they are not listed.
struct Echo {
  std::string text;
  int32_t logprobs = -1;
};

// The fields of a request that its result repeats.
struct RequestLabel {
  std::string id;  // as JSON, so 7 and "7" differ; the line number if there is none
  RequestShape shape = RequestShape::plain;
  std::string model = {};       // as the request calls it; batch shapes only
  uint64_t seed = 0;            // in use
  bool default_length = false;  // nobody stated a limit: a plain prompt that reaches it is told of
  std::optional<Reasoning> reasoning = {};  // its thought goes apart
  bool continuation = false;                // the end of the prompt is scored as one text
  int32_t prompt_logprobs = -1;             // listed for each token of the prompt; -1: no list
  std::optional<Echo> echo = {};            // of completions
};

struct RequestLine {
  RequestLabel label;
  std::optional<std::string> prompt;
  std::vector<int32_t> tokens;                         // if there is neither prompt nor chat
  std::string continuation;                            // text behind the prompt
  size_t continued_from = 0;                           // of tokens that end with a continuation: its first
  std::shared_ptr<const nlohmann::ordered_json> chat;  // the fields of a chat, in their order
  StatedSampling sampling;
  std::optional<std::string> reasoning;  // see reasoning_name
  std::vector<std::string> ignored;      // fields of a body that cannot change its answer
  std::string error;  // a setting outside its type's range: the request is refused, the run goes on
};

// Fails (input), naming the line, if the line itself is wrong: not JSON,
// unknown or mistyped fields, not exactly one of prompt, tokens and messages.
RequestLine parse_request(const LineReader::Line& line);
// The JSON line for a text: as a prompt, or as a user's message after the
// system's. Fails (input), naming the line, unless the text is UTF-8.
std::string request_of_text(const LineReader::Line& text, bool chat = false,
                            const std::optional<std::string>& system = {});

struct InputSummary {
  uint64_t requests = 0;
  uint64_t unlimited_chats = 0;  // of these: chats without max_tokens
  std::string first_text;    // the first line with text, stop strings or the batch shape: needs a tokenizer
  std::string first_chat;    // needs a chat template
  std::string first_prompt;  // raw text that no template will see
};

// Reads the whole input and rewinds it. Fails (input) with the first ten
// errors and the count of the others. Keeps only hashed ids in memory.
InputSummary validate_requests(LineReader& reader);

// The model's suggested settings, overridden by those of the command line. Greedy where neither says anything.
GenerationRequest default_request(const GenerationConfig& suggested, const StatedSampling& stated);

// A seed for a request that has none, from the run's seed and the id alone: XXH3 of the id, seeded with the run's seed.
uint64_t request_seed(uint64_t run_seed, std::string_view id);

// Renders the body of a chat with the model's chat template. Throws Error if the template refuses it.
using RenderChat = std::function<std::string(const nlohmann::ordered_json& chat)>;

}  // namespace maniple
