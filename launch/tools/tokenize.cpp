#include <kernels/support/counted.hpp>
#include <launch/input/chat_prompt.hpp>
#include <launch/input/json_line.hpp>
#include <launch/input/line_reader.hpp>
#include <launch/options/grammar.hpp>
#include <launch/output/output_file.hpp>
#include <launch/tools/tools.hpp>
#include <runtime/shared_model.hpp>

#include <fmt/format.h>

#include <ctime>

namespace maniple {

namespace {

// The id's part of an output line; empty if the input line has none.
std::string id_part(const JsonFields& fields) {
  const nlohmann::json* id = fields.find("id");
  return id ? fmt::format("\"id\":{},", id->dump()) : "";
}

std::string encode_line(const Tokenizer& tokenizer, const nlohmann::json& value, std::string_view where,
                        bool special) {
  const nlohmann::json object = value.is_string() ? nlohmann::json{{"text", value}} : value;
  const JsonFields fields(object, where);
  fields.allow_only({"id", "text", "prompt"});
  if (fields.find("prompt") && fields.find("text")) fields.refuse("text", "either text or prompt");
  const std::string text = fields.text(fields.find("prompt") ? "prompt" : "text");
  return fmt::format("{{{}\"tokens\":[{}]}}\n", id_part(fields),
                     fmt::join(tokenizer.encode(text, special), ","));
}

// Ids without a token: Hugging Face's tokenizers leave them out without a word.
struct LeftOut {
  size_t count = 0;
  std::string first;

  void note() const {
    if (count > 0)
      fmt::print(stderr,
                 "maniple: tokenize: note: left out {} without a token, as Hugging Face's tokenizers do; the "
                 "first: {}\n",
                 counted(count, "id"), first);
  }
};

std::string decode_line(const Tokenizer& tokenizer, const nlohmann::json& value, std::string_view where,
                        bool special, LeftOut& left_out) {
  const nlohmann::json object = value.is_array() ? nlohmann::json{{"tokens", value}} : value;
  const JsonFields fields(object, where);
  fields.allow_only({"id", "tokens"});
  if (!fields.find("tokens")) fields.refuse("tokens", "a list of token ids");
  const std::vector<int32_t> ids = fields.token_ids("tokens");
  for (const int32_t id : ids)
    if (!tokenizer.token_text(id) && left_out.count++ == 0) left_out.first = fmt::format("{}, {}", id, where);
  const std::string text = tokenizer.decode(ids, !special);
  return fmt::format("{{{}\"text\":{}}}\n", id_part(fields), nlohmann::json(text).dump());
}

// {"messages", ...}, or a line of an OpenAI batch with these fields in its body.
std::string chat_line(const Tokenizer& tokenizer, const ChatTemplate& chat_template, const std::string& text,
                      std::string_view where) {
  auto line = nlohmann::ordered_json::parse(text);  // templates show keys in the order of the request
  if (!line.is_object()) fail(ExitCode::input, "{}: not a chat request: {{\"messages\": [...]}}", where);
  std::string id;
  for (const char* name : {"id", "custom_id"})
    if (line.contains(name)) id += fmt::format("\"{}\":{},", name, line[name].dump());
  std::string prompt;
  try {
    if (line.contains("body") && line["body"].contains("messages")) read_arguments(line["body"]["messages"]);
    prompt = chat_prompt(chat_template, line.contains("body") ? line["body"] : line, std::time(nullptr));
  } catch (const Error& error) {
    fail(ExitCode::input, "{}: {}", where, error.what());
  }
  return fmt::format(
      "{{{}\"prompt\":{},\"tokens\":[{}]}}\n", id, nlohmann::json(prompt).dump(),
      fmt::join(tokenizer.encode(prompt, false), ","));  // the template writes the special tokens
}

}  // namespace

Parsed<TokenizeOptions> parse_tokenize(Grammar& grammar, Words args, const Launch& launch) {
  TokenizeOptions options;
  grammar.group("Tokenize");
  grammar.add("model",
              path("DIR", options.model).or_refuse("--model DIR, the directory that holds tokenizer.json"),
              "directory that holds tokenizer.json");
  grammar.add("in", path("FILE", options.in).by_default("-"), "JSON lines; - for stdin");
  grammar.add("out", path("FILE", options.out).by_default("-"), "JSON lines; - for stdout");
  grammar.add("overwrite", on(options.overwrite.asked), "--out may be a file that is not empty");
  grammar.add("decode", on(options.decode), "the other way: token ids to text");
  grammar.add("chat", on(options.chat), "chat requests to their prompts and token ids");
  grammar.add("chat-template", text("NAME", options.chat_template), "with --chat: the one of this name");
  grammar.add("special", on(options.special),
              "add special tokens as the tokenizer's template says (generate does); --decode: show them");
  if (const auto help = grammar.parse(args)) return Notice{*help};
  if (options.chat && (options.decode || options.special))
    refuse("--chat goes neither with --decode nor with --special",
           "leave these out: the chat template says which special tokens there are");
  options.overwrite.requeued = launch.requeued;
  return options;
}

ExitCode run_tokenize(const TokenizeOptions& options) {
  const ModelFiles files(options.model);
  const Tokenizer tokenizer = read_tokenizer(files);
  std::optional<ChatTemplate> chat_template;
  if (options.chat) chat_template = ChatTemplate::load(files, options.chat_template);
  LeftOut left_out;
  LineReader input(options.in);
  check_output(options.out, options.overwrite, &input);
  OutputFile output(options.out);
  output.clear();
  while (const std::optional<LineReader::Line> line = input.next()) {
    const std::string where = fmt::format("{} {}", input.name(), line->where);
    const nlohmann::json value = parse_json_line(line->text, where);
    output.write(chat_template    ? chat_line(tokenizer, *chat_template, line->text, where)
                 : options.decode ? decode_line(tokenizer, value, where, options.special, left_out)
                                  : encode_line(tokenizer, value, where, options.special));
  }
  output.close();
  left_out.note();
  return ExitCode::complete;
}

}  // namespace maniple
