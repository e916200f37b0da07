#include <launch/commands/commands.hpp>
#include <launch/json_line.hpp>
#include <launch/text_files.hpp>
#include <runtime/checkpoint/json_fields.hpp>
#include <runtime/tokenizer/tokenizer.hpp>

#include <fmt/format.h>

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

}  // namespace

ExitCode run_tokenize(const TokenizeOptions& options) {
  check_model_directory(options.model);
  const Tokenizer tokenizer = Tokenizer::from_file(options.model / "tokenizer.json");
  LineReader input(options.in);
  OutputFile output(options.out);
  if (output.is_one_of(input))
    fail(ExitCode::usage, "--in and --out are the same file, {}; write the results to another one",
         options.in);
  output.clear();
  while (const std::optional<LineReader::Line> line = input.next()) {
    const std::string where = fmt::format("{} {}", input.name(), line->where);
    const json value = parse_json_line(line->text, where);
    output.write((options.decode ? decode_line : encode_line)(tokenizer, value, where, options.special));
  }
  output.close();
  return ExitCode::complete;
}

}  // namespace maniple
