#include <kernels/support/check.hpp>
#include <launch/input/input_format.hpp>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <array>
#include <tuple>
#include <utility>

namespace maniple {
namespace {

using namespace std::string_view_literals;
using nlohmann::json;

// remedy: {0} stands for the file, {1} for what its lines are.
struct Format {
  std::string_view magic;
  const char* description;
  const char* remedy;
};

constexpr const char* from_utf16 = "iconv -f UTF-16 -t UTF-8 {0} > {0}.utf8.{1}, and give that";
constexpr Format formats[] = {
    {"\xff\xfe\0\0"sv, "is UTF-32 text", "iconv -f UTF-32 -t UTF-8 {0} > {0}.utf8.{1}, and give that"},
    {"\xff\xfe"sv, "is UTF-16 text", from_utf16},
    {"\xfe\xff"sv, "is UTF-16 text", from_utf16},
    {"PAR1"sv, "is a Parquet file",
     "python3 -c \"import pandas; pandas.read_parquet('{0}').to_json('{0}.jsonl', orient='records', "
     "lines=True)\""},
    {"BZh"sv, "is packed with bzip2", "bzip2 -dc {0} | maniple ... --in -"},
    {"\xfd"
     "7zXZ\0"sv,
     "is packed with xz", "xz -dc {0} | maniple ... --in -"},
    {"PK\3\4"sv, "is a zip archive", "unzip -p {0} | maniple ... --in -"},
};

[[noreturn]] void refuse(const std::string& name, std::string_view description, std::string_view remedy) {
  throw Error(ExitCode::input, fmt::format("{} {}", name, description),
              "an input is UTF-8 text with one request a line, also packed with gzip or zstd",
              fmt::format(fmt::runtime(remedy), name == "stdin" ? "FILE" : name,
                          is_called_text(name) ? "txt" : "jsonl"));
}

std::string_view without_blanks(std::string_view text) {
  constexpr std::string_view blanks = " \t\r\n";
  return text.substr(std::min(text.find_first_not_of(blanks), text.size()));
}

// Skips a byte order mark, which UTF-8 may have.
std::string_view first_content(std::string_view head) {
  constexpr std::string_view mark = "\xef\xbb\xbf";
  return without_blanks(head.starts_with(mark) ? head.substr(mark.size()) : head);
}

// True for a JSON text that ends before its value does.
bool is_beginning_of_json(std::string_view text) try {
  std::ignore = json::parse(text);
  return false;
} catch (const json::exception& error) {
  return std::string_view(error.what()).find("unexpected end of input") != std::string_view::npos;
}

}  // namespace

void refuse_foreign_bytes(std::string_view head, const std::string& name) {
  for (const Format& format : formats)
    if (head.starts_with(format.magic)) refuse(name, format.description, format.remedy);
  // UTF-16 without a byte order mark: most characters still have a zero byte.
  for (const auto& [zero, encoding] : {std::pair(1U, "UTF-16LE"), std::pair(0U, "UTF-16BE")})
    if (head.size() >= 4 && head[zero] == 0 && head[zero + 2] == 0 && head[1 - zero] != 0 &&
        head[3 - zero] != 0)
      refuse(name, "is UTF-16 text",
             fmt::format("iconv -f {} -t UTF-8 {{0}} > {{0}}.utf8.{{1}}, and give that", encoding));
  if (head.find('\0') != head.npos)
    refuse(name, "is a binary file, not text", "write the requests as JSON lines, {{\"prompt\": \"...\"}}");
}

void refuse_foreign_json(std::string_view head, const std::string& name) {
  const std::string_view text = first_content(head);
  const std::string_view line = text.substr(0, text.find('\n'));
  const std::string_view element = text.starts_with('[') ? without_blanks(text.substr(1)) : "";
  const bool of_requests = !element.empty() && std::string_view("{[\"").find(element[0]) != line.npos;
  if (of_requests || (text.starts_with('[') && line.size() < text.size() && is_beginning_of_json(line)))
    refuse(name, "is a JSON array, not JSON lines", "jq -c '.[]' {0} > {0}.jsonl, and give that");
  const std::string_view next = without_blanks(text.substr(line.size()));
  if (text.starts_with('{') && !next.empty() && !next.starts_with('{') && is_beginning_of_json(line))
    refuse(name, "is JSON over several lines, not JSON lines", "jq -c . {0} > {0}.jsonl, and give that");
}

bool is_called_text(std::string_view name) {
  constexpr std::array<std::string_view, 3> endings = {".txt", ".txt.gz", ".txt.zst"};
  return std::ranges::any_of(endings, [&](std::string_view ending) { return name.ends_with(ending); });
}

bool holds_prompts(std::string_view head, const std::string& name) {
  if (!is_called_text(name)) return false;
  const std::string_view text = first_content(head);
  const json first = json::parse(text.substr(0, text.find('\n')), nullptr, /*allow_exceptions=*/false);
  constexpr std::array request_fields = {"prompt", "tokens", "messages", "body"};
  return !first.is_object() ||
         std::ranges::none_of(request_fields, [&](const char* field) { return first.contains(field); });
}

}  // namespace maniple
