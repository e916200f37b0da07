#include <launch/batch_requests.hpp>
#include <launch/json_line.hpp>
#include <launch/request_fields.hpp>

#include <unordered_map>

namespace maniple {

using nlohmann::json;

namespace {

const std::vector<std::string> known_fields = {
    "id",   "prompt",     "tokens",     "temperature", "top_k",          "top_p", "min_p",
    "seed", "max_tokens", "min_tokens", "ignore_eos",  "stop_token_ids", "stop",  "logprobs"};

std::string id_of(const JsonFields& fields, uint64_t line) {
  const json* id = fields.find("id");
  if (!id) return std::to_string(line);
  if (!id->is_string() && !id->is_number_integer()) fields.refuse("id", "a text or a whole number");
  return id->dump();
}

uint64_t mixed(uint64_t x) {  // the finaliser of splitmix64
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9U;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebU;
  return x ^ (x >> 31);
}

// Collects the errors of an input: the first ten in words, the others by number.
class Complaints {
 public:
  void add(const std::string& complaint) {
    if (++count_ <= most_shown) text_ += fmt::format("\n    {}", complaint);
  }

  void raise(const std::string& name) const {
    if (count_ == 0) return;
    const std::string others =
        count_ > most_shown ? fmt::format("\n    and {} more", count_ - most_shown) : "";
    throw Error(ExitCode::input,
                fmt::format("{} has {} bad line{}:{}{}", name, count_, count_ == 1 ? "" : "s", text_, others),
                "the whole input is checked before anything is loaded or computed", "correct these lines");
  }

 private:
  static constexpr size_t most_shown = 10;
  size_t count_ = 0;
  std::string text_;
};

}  // namespace

RequestLine parse_request(const LineReader::Line& line) {
  const json object = parse_json_line(line.text, line.where);
  if (is_batch_request(object)) {
    RequestLine request = parse_batch_request(object, line.number, line.where);
    if (request.label.shape == RequestShape::chat) request.chat = line.text;
    return request;
  }
  const JsonFields fields(object, line.where);
  check_names(object, known_fields, line.where);
  RequestLine request;
  request.number = line.number;
  request.label.id = id_of(fields, line.number);
  const bool has_prompt = fields.find("prompt"), has_tokens = fields.find("tokens");
  if (has_prompt == has_tokens)
    refuse_line(line.where, has_prompt ? "both prompt and tokens are given; leave one out"
                                       : "neither prompt nor tokens is given");
  if (has_prompt) request.prompt = fields.text("prompt");
  request.tokens = fields.token_ids("tokens");
  request.sampling = sampling_of(fields, request.error);
  request.sampling.logprobs = whole<int32_t>(fields, "logprobs", request.error);
  return request;
}

LineReader::Line line_of_prompt(const std::string& prompt) {
  check_utf8(prompt, "--prompt");
  return {1, json{{"prompt", prompt}}.dump()};
}

InputSummary validate_requests(LineReader& reader) {
  InputSummary summary;
  Complaints complaints;
  std::unordered_map<uint64_t, uint64_t> lines;  // of each id, hashed
  std::optional<RequestLabel> first_batch;
  while (const std::optional<LineReader::Line> line = reader.next()) {
    try {
      const RequestLine request = parse_request(*line);
      const RequestLabel& label = request.label;
      const auto [first, fresh] = lines.emplace(request_seed(0, label.id), line->number);
      if (!fresh)
        complaints.add(fmt::format("{}: the id {} is that of line {}", line->where, label.id, first->second));
      const bool batch = label.shape != RequestShape::plain;
      if (batch && !first_batch) first_batch = label;
      if (batch && label.model != first_batch->model)
        complaints.add(fmt::format("{}: the model is {}, but {} before; a run has one model", line->where,
                                   shown(json(label.model)), shown(json(first_batch->model))));
      if (summary.first_text.empty() && (request.prompt || request.sampling.stop || batch))
        summary.first_text = line->where;
      if (summary.first_chat.empty() && label.shape == RequestShape::chat) summary.first_chat = line->where;
      ++summary.requests;
    } catch (const Error& error) {
      complaints.add(error.what());
    }
  }
  complaints.raise(reader.name());
  if (summary.requests == 0) fail(ExitCode::input, "{} holds no request", reader.name());
  reader.rewind();
  return summary;
}

GenerationRequest default_request(const GenerationConfig& suggested, const SamplingFields& stated) {
  GenerationRequest request;
  request.sampling.temperature = static_cast<float>(suggested.temperature);
  request.sampling.top_k = suggested.top_k;
  request.sampling.top_p = static_cast<float>(suggested.top_p);
  request.sampling.min_p = static_cast<float>(suggested.min_p);
  stated.apply_to(request);
  return request;
}

// FNV-1a over the id, then splitmix64 with the run's seed.
uint64_t request_seed(uint64_t run_seed, std::string_view id) {
  uint64_t hash = 0xcbf29ce484222325U;
  for (const char byte : id) hash = (hash ^ static_cast<unsigned char>(byte)) * 0x100000001b3U;
  return mixed(mixed(run_seed + 0x9e3779b97f4a7c15U) ^ hash);
}

// Looks one request ahead, as the suspects' turn comes only when the input has ended and nothing runs.
bool RequestFeed::ready() {
  if (!order_.has_room()) return false;
  look_ahead();
  return ahead_ || (dry_ && (suspects_.empty() || order_.unfinished() == 0));
}

std::optional<GenerationRequest> RequestFeed::next() {
  while (!ahead_ && !dry_) look_ahead();
  while (!ahead_ && !suspects_.empty()) {
    const Suspect suspect = std::move(suspects_.back());
    suspects_.pop_back();
    ahead_ = admit(suspect.request, suspect.line);
    if (ahead_) order_.start_alone(suspect.request);
  }
  return std::exchange(ahead_, std::nullopt);
}

// Stops now and then within what is passed over, as meanwhile nobody hears signals or the clock.
void RequestFeed::look_ahead() {
  constexpr int most_lines = 10'000;
  for (int count = 0; !ahead_ && !dry_ && count < most_lines; ++count) {
    std::optional<LineReader::Line> line = next_line();
    if (!line) return;
    const RequestId request = next_++;
    if (!setting_.shard.holds(request) || is_settled(request)) continue;
    const bool suspect = setting_.ledger && setting_.ledger->is_suspect(request);
    if (suspect && !setting_.ledger->is_quarantined(request))
      suspects_.push_back({request, std::move(*line)});
    else
      ahead_ = admit(request, *line);
  }
}

// A request that nobody counted has no place in the ledger.
std::optional<LineReader::Line> RequestFeed::next_line() {
  std::optional<LineReader::Line> line = lines_();
  dry_ = !line;
  if (setting_.requests && dry_ != (next_ == *setting_.requests)) refuse_changed("the input");
  return line;
}

bool RequestFeed::is_settled(RequestId request) const {
  const Ledger* ledger = setting_.ledger;
  return ledger && ledger->has_result(request) && !(setting_.retry_errors && ledger->has_failed(request));
}

// Nothing where it is refused instead.
std::optional<GenerationRequest> RequestFeed::admit(RequestId request, const LineReader::Line& line) {
  RequestLine parsed = parse_request(line);
  parsed.label.seed = parsed.sampling.seed.value_or(request_seed(setting_.run_seed, parsed.label.id));
  order_.expect(request, parsed.label);
  if (setting_.ledger && setting_.ledger->is_quarantined(request))
    parsed.error = "quarantined: it was running when the job failed, several times, the last time alone";
  try {
    if (parsed.error.empty()) return build(std::move(parsed), request);
  } catch (const Error& error) {  // of the chat template
    parsed.error = error.what();
  }
  order_.refuse(request, parsed.error);
  return std::nullopt;
}

GenerationRequest RequestFeed::build(RequestLine line, RequestId request) const {
  GenerationRequest built = setting_.defaults;
  built.id = request;
  line.sampling.apply_to(built);
  built.sampling.seed = line.label.seed;
  built.prompt = tokens_of(line);
  return built;
}

// A chat's template spells out the special tokens itself.
std::vector<int32_t> RequestFeed::tokens_of(RequestLine& line) const {
  const bool chat = line.label.shape == RequestShape::chat;
  if (!chat && !line.prompt) return std::move(line.tokens);
  require(setting_.tokenizer && (!chat || setting_.render_chat), "the input was checked against the model");
  return setting_.tokenizer->encode(chat ? setting_.render_chat(line.chat) : *line.prompt, !chat);
}

}  // namespace maniple
