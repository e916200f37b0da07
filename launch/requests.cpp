#include <launch/json_line.hpp>
#include <launch/nearest_name.hpp>
#include <launch/requests.hpp>
#include <runtime/checkpoint/json_fields.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <unordered_map>

namespace maniple {

using nlohmann::json;

namespace {

const std::vector<std::string> known_fields = {
    "id",   "prompt",     "tokens",     "temperature", "top_k",          "top_p", "min_p",
    "seed", "max_tokens", "min_tokens", "ignore_eos",  "stop_token_ids", "stop",  "logprobs"};

void check_names(const json& object, std::string_view where) {
  for (const auto& [name, value] : object.items()) {
    if (std::ranges::find(known_fields, name) != known_fields.end()) continue;
    const std::optional<std::string> nearest = nearest_name(name, known_fields);
    refuse_line(where, fmt::format("unknown field {}; {}", shown(json(name)),
                                   nearest ? fmt::format("did you mean \"{}\"?", *nearest)
                                           : fmt::format("known: {}", fmt::join(known_fields, ", "))));
  }
}

// A whole number that T cannot hold is an unservable request, not a malformed one.
template <typename T>
std::optional<T> whole(const JsonFields& fields, std::string_view name, std::string& error) {
  const json* value = fields.find(name);
  if (!value) return std::nullopt;
  if (!value->is_number_integer()) fields.refuse(name, "a whole number");
  const bool fits = value->is_number_unsigned() ? std::in_range<T>(value->get<uint64_t>())
                                                : std::in_range<T>(value->get<int64_t>());
  if (fits) return value->get<T>();
  error = fmt::format("{} ({}) must be from {} to {}", name, value->dump(), std::numeric_limits<T>::min(),
                      std::numeric_limits<T>::max());
  return std::nullopt;
}

std::optional<float> number(const JsonFields& fields, std::string_view name) {
  const json* value = fields.find(name);
  if (!value) return std::nullopt;
  if (!value->is_number()) fields.refuse(name, "a number");
  return static_cast<float>(value->get<double>());
}

std::optional<std::vector<std::string>> stop_strings(const JsonFields& fields) {
  constexpr std::string_view form = "a text that is not empty, or a list of such";
  const json* value = fields.find("stop");
  if (!value) return std::nullopt;
  std::vector<std::string> stops;
  for (const json& stop : value->is_array() ? *value : json::array({*value})) {
    if (!stop.is_string() || stop.get_ref<const std::string&>().empty()) fields.refuse("stop", form);
    stops.push_back(stop);
  }
  return stops;
}

SamplingFields sampling_of(const JsonFields& fields, std::string& error) {
  SamplingFields sampling;
  sampling.temperature = number(fields, "temperature");
  sampling.top_k = whole<int32_t>(fields, "top_k", error);
  sampling.top_p = number(fields, "top_p");
  sampling.min_p = number(fields, "min_p");
  sampling.seed = whole<uint64_t>(fields, "seed", error);
  sampling.max_tokens = whole<uint32_t>(fields, "max_tokens", error);
  sampling.min_tokens = whole<uint32_t>(fields, "min_tokens", error);
  if (fields.find("ignore_eos")) sampling.ignore_eos = fields.boolean_or("ignore_eos", false);
  if (fields.find("stop_token_ids")) sampling.stop_token_ids = fields.token_ids("stop_token_ids");
  sampling.stop = stop_strings(fields);
  sampling.logprobs = whole<int32_t>(fields, "logprobs", error);
  return sampling;
}

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
  const std::string where = fmt::format("line {}", line.number);
  const json object = parse_json_line(line.text, where);
  const JsonFields fields(object, where);
  check_names(object, where);
  RequestLine request;
  request.number = line.number;
  request.id = id_of(fields, line.number);
  const bool has_prompt = fields.find("prompt"), has_tokens = fields.find("tokens");
  if (has_prompt == has_tokens)
    refuse_line(where, has_prompt ? "both prompt and tokens are given; leave one out"
                                  : "neither prompt nor tokens is given");
  if (has_prompt) request.prompt = fields.text("prompt");
  request.tokens = fields.token_ids("tokens");
  request.sampling = sampling_of(fields, request.error);
  return request;
}

RequestLine request_of_prompt(const std::string& prompt) {
  check_utf8(prompt, "--prompt");
  RequestLine request;
  request.id = std::to_string(request.number);
  request.prompt = prompt;
  return request;
}

InputSummary validate_requests(LineReader& reader) {
  InputSummary summary;
  Complaints complaints;
  std::unordered_map<uint64_t, uint64_t> lines;  // of each id, hashed
  while (const std::optional<LineReader::Line> line = reader.next()) {
    try {
      const RequestLine request = parse_request(*line);
      const auto [first, fresh] = lines.emplace(request_seed(0, request.id), line->number);
      if (!fresh)
        complaints.add(
            fmt::format("line {}: the id {} is that of line {}", line->number, request.id, first->second));
      if (!summary.first_text_line && (request.prompt || request.sampling.stop))
        summary.first_text_line = line->number;
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

RequestFeed::RequestFeed(Lines lines, const Tokenizer* tokenizer, GenerationRequest defaults,
                         uint64_t run_seed, RequestOrder& order)
    : lines_(std::move(lines)),
      tokenizer_(tokenizer),
      defaults_(std::move(defaults)),
      run_seed_(run_seed),
      order_(order) {}

std::optional<GenerationRequest> RequestFeed::next() {
  while (std::optional<RequestLine> line = lines_()) {
    const RequestId request = next_++;
    order_.expect(request, line->id);
    if (line->error.empty()) return build(std::move(*line), request);
    order_.refuse(request, line->error);
  }
  return std::nullopt;
}

GenerationRequest RequestFeed::build(RequestLine line, RequestId request) const {
  GenerationRequest built = defaults_;
  built.id = request;
  built.sampling.seed = request_seed(run_seed_, line.id);
  line.sampling.apply_to(built);
  if (line.prompt)
    require(tokenizer_ != nullptr, "a text prompt without a tokenizer passed the check of the input");
  built.prompt = line.prompt ? tokenizer_->encode(*line.prompt, true) : std::move(line.tokens);
  return built;
}

}  // namespace maniple
