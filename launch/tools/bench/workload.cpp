#include <kernels/support/counted.hpp>
#include <launch/input/chat_prompt.hpp>
#include <launch/input/request_feed.hpp>
#include <launch/tools/bench/workload.hpp>
#include <runtime/checkpoint/stream_hash.hpp>
#include <runtime/shared_model.hpp>

#include <boost/random/lognormal_distribution.hpp>
#include <boost/random/mersenne_twister.hpp>
#include <boost/random/uniform_int_distribution.hpp>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <fstream>

namespace maniple {
namespace {

constexpr const char* all_or_none =
    "a bench serves all of its requests, and each output has exactly its tokens";

// Distributions are Boost's, because those of the standard libraries differ.
using Bits = boost::random::mt19937_64;

uint32_t draw(Bits& bits, const LengthRange& range) {
  return boost::random::uniform_int_distribution<uint32_t>(range.low, range.high)(bits);
}

// Log-normal; sigma is that of the logarithm.
uint32_t draw_log_normal(Bits& bits, double mean, double sigma, uint32_t most) {
  boost::random::lognormal_distribution<double> lengths(std::log(mean) - sigma * sigma / 2, sigma);
  return static_cast<uint32_t>(std::clamp(std::round(lengths(bits)), 1.0, static_cast<double>(most)));
}

// The shape of ShareGPT's chats: the means are those of the vLLM paper (Kwon et al. 2023, figure 11), the sigmas ours.
RequestLength draw_chat(Bits& bits, uint32_t max_model_len) {
  RequestLength length;
  length.prompt = draw_log_normal(bits, 161, 1.2, max_model_len - 1);
  length.output = draw_log_normal(bits, 338, 0.9, max_model_len - length.prompt);
  return length;
}

RequestLength parse_line(std::string_view line, const std::string& where) {
  RequestLength length;
  const char* const end = line.data() + line.size();
  const auto [comma, bad_prompt] = std::from_chars(line.data(), end, length.prompt);
  const bool two = bad_prompt == std::errc{} && comma != end && *comma == ',';
  const auto [stopped, bad_output] = std::from_chars(two ? comma + 1 : end, end, length.output);
  if (!two || bad_output != std::errc{} || stopped != end || length.prompt < 1 || length.output < 1)
    throw Error(ExitCode::input, fmt::format("{}: \"{}\" is not prompt,output", where, line), "",
                "two whole numbers of tokens a line, 1 or more: 128,64");
  return length;
}

std::vector<RequestLength> read_lengths(const std::filesystem::path& path, size_t most) {
  std::ifstream file(path);
  if (!file) fail(ExitCode::input, "cannot open {}", path.string());
  std::vector<RequestLength> lengths;
  std::string line;
  for (size_t number = 1; lengths.size() < most && std::getline(file, line); ++number) {
    std::erase_if(line, [](char c) { return c == ' ' || c == '\r'; });
    if (line.empty() || (number == 1 && line == "prompt,output")) continue;
    lengths.push_back(parse_line(line, fmt::format("{} line {}", path.string(), number)));
  }
  return lengths;
}

std::vector<int32_t> draw_tokens(Bits& bits, size_t count, int32_t vocabulary) {
  boost::random::uniform_int_distribution<int32_t> token(0, vocabulary - 1);
  std::vector<int32_t> tokens(count);
  std::ranges::generate(tokens, [&] { return token(bits); });
  return tokens;
}

// index: from 0.
void refuse_unfit(size_t index, size_t prompt, uint32_t output, uint32_t max_model_len) {
  if (prompt > 0 && prompt + output <= max_model_len) return;
  const std::string what = fmt::format("request {} of the workload has {} and {}", index + 1,
                                       counted(prompt, "prompt token"), counted(output, "output token"));
  throw Error(ExitCode::input,
              prompt == 0 ? what : fmt::format("{}, the model takes {} in sum", what, max_model_len),
              all_or_none, "other --lengths, or where the model allows a larger --max-model-len");
}

void draw_requests(Workload& workload, const BenchOptions& options, std::optional<uint32_t> count,
                   uint32_t max_model_len) {
  const std::vector<RequestLength> lengths =
      draw_lengths(options.lengths, count, options.seed, max_model_len);
  Bits bits(options.seed);
  const std::vector<int32_t> prefix = draw_tokens(bits, options.prefix, workload.vocabulary);
  for (const RequestLength& length : lengths) {
    refuse_unfit(workload.requests.size(), length.prompt, length.output, max_model_len);
    std::vector<int32_t> prompt = draw_tokens(bits, length.prompt, workload.vocabulary);
    std::copy_n(prefix.begin(), std::min<size_t>(options.prefix, length.prompt), prompt.begin());
    workload.requests.push_back({std::move(prompt), length.output});
  }
  const auto longest = std::ranges::max_element(lengths, {}, &RequestLength::prompt);
  if (longest != lengths.end() && options.prefix > longest->prompt)
    throw Error(
        ExitCode::usage,
        fmt::format("--prefix ({}) is above the longest prompt ({})", options.prefix, longest->prompt),
        "the first tokens of a prompt are the prefix", "a smaller --prefix, or longer --lengths");
}

// Chat templates see the same date every day.
void read_requests(Workload& workload, const BenchOptions& options, const ModelFiles& model, size_t most,
                   uint32_t max_model_len) {
  LineReader input(options.in, [](const LineReader::Line& line) { return request_of_text(line); });
  const InputSummary summary = validate_requests(input);
  std::optional<Tokenizer> tokenizer;
  if (!summary.first_text.empty()) tokenizer = read_tokenizer(model);
  std::optional<ChatTemplate> chats;
  if (!summary.first_chat.empty()) chats = ChatTemplate::load(model);
  RequestReader::Options reading;
  reading.tokenizer = tokenizer ? &*tokenizer : nullptr;
  reading.render_chat = [&](const nlohmann::ordered_json& chat) {
    return chat_prompt(*chats, chat, std::time_t{0});
  };
  reading.requests = summary.requests;
  RequestReader reader([&] { return input.next(); }, reading);
  for (reader.wait(); workload.requests.size() < most && !reader.dry(); reader.wait()) {
    std::optional<PreparedRequest> read = reader.take();
    std::string reason = read->error;
    for (const int32_t token : read->request.prompt)
      if (token < 0 || token >= workload.vocabulary)
        reason =
            fmt::format("token id {} is not in the vocabulary (0 to {})", token, workload.vocabulary - 1);
    if (!reason.empty())
      throw Error(ExitCode::input,
                  fmt::format("{}, request {}: {}", input.name(), workload.requests.size() + 1, reason),
                  all_or_none, "take it out of the file");
    refuse_unfit(workload.requests.size(), read->request.prompt.size(), read->request.sampling.max_tokens,
                 max_model_len);
    workload.requests.push_back({std::move(read->request.prompt), read->request.sampling.max_tokens});
  }
}

}  // namespace

GenerationRequest Workload::request(size_t index, uint64_t repeat) const {
  const auto& [prompt, output] = requests[index];
  GenerationRequest request;
  request.prompt = prompt;
  for (int32_t& token : request.prompt)
    token = static_cast<int32_t>((static_cast<uint64_t>(token) + repeat) % static_cast<uint64_t>(vocabulary));
  request.sampling.temperature = 0;
  request.sampling.max_tokens = output;
  request.sampling.ignore_eos = true;
  return request;
}

uint64_t Workload::hash() const {
  StreamHash hash(HashKind::xxh64);
  for (const auto& [prompt, output] : requests) {
    const uint32_t head[] = {output, static_cast<uint32_t>(prompt.size())};
    hash.add(std::as_bytes(std::span(head)));
    hash.add(std::as_bytes(std::span(prompt)));
  }
  return hash.value();
}

std::vector<RequestLength> draw_lengths(const Lengths& lengths, std::optional<uint32_t> count, uint64_t seed,
                                        uint32_t max_model_len) {
  if (lengths.kind == Lengths::Kind::file) return read_lengths(lengths.file, count.value_or(UINT32_MAX));
  Bits bits(seed);
  std::vector<RequestLength> drawn(count.value_or(1000));
  for (RequestLength& length : drawn)
    if (lengths.kind == Lengths::Kind::sharegpt)
      length = draw_chat(bits, max_model_len);
    else
      length.prompt = draw(bits, lengths.prompt), length.output = draw(bits, lengths.output);
  return drawn;
}

Workload make_workload(const BenchOptions& options, const ModelFiles& model, int64_t vocabulary,
                       uint32_t max_model_len) {
  const std::optional<uint32_t> count = options.bench == BenchKind::latency
                                            ? std::optional(std::ranges::max(options.batch_sizes))
                                            : options.num_prompts;
  Workload workload;
  workload.vocabulary = static_cast<int32_t>(vocabulary);
  workload.name = options.in.empty() ? fmt::format("{}, seed {}", options.lengths.text, options.seed)
                                     : fmt::format("{}", fmt::join(options.in, ", "));
  if (options.in.empty())
    draw_requests(workload, options, count, max_model_len);
  else
    read_requests(workload, options, model, count.value_or(UINT32_MAX), max_model_len);
  if (workload.requests.size() < count.value_or(1))
    throw Error(ExitCode::input,
                fmt::format("{} has {}, {} wanted",
                            options.in.empty() ? options.lengths.file.string() : workload.name,
                            counted(workload.requests.size(), "request"), count.value_or(1)),
                "", "more lines, or a smaller --num-prompts or --batch-size");
  return workload;
}

}  // namespace maniple
