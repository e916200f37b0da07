#include <launch/chat_prompt.hpp>
#include <launch/commands/commands.hpp>
#include <launch/json_line.hpp>
#include <launch/text_files.hpp>
#include <runtime/checkpoint/json_fields.hpp>
#include <runtime/shared_model.hpp>

#include <fmt/format.h>

#include <ctime>
#include <functional>

namespace maniple {

using nlohmann::json;

namespace {

// The id's part of an output line, where the input line has one.
std::string id_part(const JsonFields& fields) {
  const json* id = fields.find("id");
  return id ? fmt::format("\"id\":{},", id->dump()) : "";
}

std::string encoded(const Tokenizer& tokenizer, const std::string& text, const std::string& id,
                    bool special) {
  return fmt::format("{{{}\"tokens\":[{}]}}\n", id, fmt::join(tokenizer.encode(text, special), ","));
}

std::string decoded(const Tokenizer& tokenizer, const std::vector<int32_t>& tokens, const std::string& id,
                    bool special) {
  return fmt::format("{{{}\"text\":{}}}\n", id, json(tokenizer.decode(tokens, !special)).dump());
}

std::string encode_line(const Tokenizer& tokenizer, const json& value, std::string_view where, bool special) {
  if (value.is_string()) return encoded(tokenizer, value, "", special);
  const JsonFields fields(value, where);
  fields.allow_only({"id", "text", "prompt"});
  return encoded(tokenizer, fields.text(fields.find("prompt") ? "prompt" : "text"), id_part(fields), special);
}

std::string decode_line(const Tokenizer& tokenizer, const json& value, std::string_view where, bool special) {
  const json object = value.is_array() ? json{{"tokens", value}} : value;
  const JsonFields fields(object, where);
  fields.allow_only({"id", "tokens"});
  if (!fields.find("tokens")) fields.refuse("tokens", "a list of token ids");
  return decoded(tokenizer, fields.token_ids("tokens"), id_part(fields), special);
}

// {"messages", ...}, or a line of an OpenAI batch, which holds that in its body.
std::string chat_line(const Tokenizer& tokenizer, const ChatTemplate& chat_template, const std::string& text,
                      std::string_view where) {
  const auto line = nlohmann::ordered_json::parse(text);  // templates show keys in the order of the request
  if (!line.is_object()) fail(ExitCode::input, "{}: not a chat request: {{\"messages\": [...]}}", where);
  std::string id;
  for (const char* name : {"id", "custom_id"})
    if (line.contains(name)) id += fmt::format("\"{}\":{},", name, line[name].dump());
  std::string prompt;
  try {
    prompt = chat_prompt(chat_template, line.contains("body") ? line["body"] : line, std::time(nullptr));
  } catch (const Error& error) {
    fail(ExitCode::input, "{}: {}", where, error.what());
  }
  return fmt::format(
      "{{{}\"prompt\":{},\"tokens\":[{}]}}\n", id, json(prompt).dump(),
      fmt::join(tokenizer.encode(prompt, false), ","));  // the template gives the special tokens
}

// What becomes of a line: its text, and the JSON in it.
using LineAction = std::function<std::string(const std::string&, const json&, std::string_view where)>;

LineAction action_of(const TokenizeOptions& options, const ModelFiles& files, const Tokenizer& tokenizer) {
  if (options.chat)
    return [&tokenizer, chat_template = ChatTemplate::load(files)](const std::string& text, const json&,
                                                                   std::string_view where) {
      return chat_line(tokenizer, chat_template, text, where);
    };
  const auto convert = options.decode ? decode_line : encode_line;
  return [&tokenizer, convert, special = options.special](const std::string&, const json& value,
                                                          std::string_view where) {
    return convert(tokenizer, value, where, special);
  };
}

}  // namespace

ExitCode run_tokenize(const TokenizeOptions& options) {
  const ModelFiles files(options.model);
  const Tokenizer tokenizer = read_tokenizer(files);
  const LineAction action = action_of(options, files, tokenizer);
  LineReader input(options.in);
  OutputFile output(options.out);
  if (output.is_one_of(input))
    fail(ExitCode::usage, "--in and --out are the same file, {}; write the results to another one",
         options.in);
  output.clear();
  while (const std::optional<LineReader::Line> line = input.next()) {
    const std::string where = fmt::format("{} {}", input.name(), line->where);
    output.write(action(line->text, parse_json_line(line->text, where), where));
  }
  output.close();
  return ExitCode::complete;
}

}  // namespace maniple
