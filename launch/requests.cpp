#include <launch/batch_requests.hpp>
#include <launch/json_line.hpp>

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
  nlohmann::ordered_json ordered = parse_ordered_json_line(line.text, line.where);
  const json object = ordered;  // in which fields are found by name
  if (is_batch_request(object)) {
    RequestLine request = parse_batch_request(object, line.number, line.where);
    if (request.label.shape == RequestShape::chat)
      request.chat = std::make_shared<nlohmann::ordered_json>(std::move(ordered["body"]));
    return request;
  }
  const JsonFields fields(object, line.where);
  check_names(object, known_fields, line.where);
  RequestLine request;
  request.number = line.number;
  request.label.id = id_of(fields, line.number);
  const bool has_prompt = fields.find("prompt"), has_tokens = fields.find("tokens");
  if (has_prompt == has_tokens)
    fail(ExitCode::input, "{}: {}", line.where,
         has_prompt ? "both prompt and tokens are given; leave one out"
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

}  // namespace maniple
