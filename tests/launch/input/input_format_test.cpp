#include <kernels/support/check.hpp>
#include <launch/input/input_format.hpp>
#include <launch/input/requests.hpp>

#include <gtest/gtest.h>
#include <support/temp_directory.hpp>

#include <zlib.h>
#include <zstd.h>

#include <vector>

namespace maniple {
namespace {

using namespace std::string_literals;

std::string zstandard(const std::string& content) {
  std::string packed(ZSTD_compressBound(content.size()), '\0');
  packed.resize(ZSTD_compress(packed.data(), packed.size(), content.data(), content.size(), 1));
  return packed;
}

std::string many_lines() {
  std::string many;
  for (int line = 1; line <= 50'000; ++line) many += "{\"tokens\":[" + std::to_string(line) + "]}\n";
  return many;
}

std::vector<std::string> lines_of(LineReader& reader) {
  std::vector<std::string> lines;
  while (const auto line = reader.next()) lines.push_back(line->text);
  return lines;
}

Error reading_error(const TempDirectory& folder, const std::string& name, const std::string& content) {
  folder.write(name, content);
  try {
    LineReader reader(folder / name);
    lines_of(reader);
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ExitCode::input);
    return error;
  }
  return {ExitCode::complete, "was read"};
}

TEST(Zstandard, IsUnpackedFrameByFrameAndMoreThanOnce) {
  const TempDirectory folder;
  const std::string skipped = "\x5a\x2a\x4d\x18\x03\0\0\0abc"s;
  folder.write("in.zst", skipped + zstandard(many_lines()) + zstandard("{\"tokens\":[0]}"));
  LineReader reader(folder / "in.zst");
  for (int pass = 0; pass < 2; ++pass) {
    EXPECT_EQ(validate_requests(reader).requests, 50'001U);
    EXPECT_EQ(reader.next()->text, "{\"tokens\":[1]}");
    reader.rewind();
  }
}

TEST(Zstandard, ThatIsCutOffOrDamagedIsRefused) {
  const TempDirectory folder;
  const std::string packed = zstandard(many_lines());
  EXPECT_EQ(reading_error(folder, "cut", packed.substr(0, packed.size() - 9)).what(),
            "cannot unpack " + (folder / "cut").string() + ": unexpected end of file");
  EXPECT_NE(std::string(reading_error(folder, "tail", packed + "garbage").what()).find("cannot unpack"),
            std::string::npos);
}

TEST(TextFile, HoldsAPromptALineBehindAByteOrderMark) {
  const TempDirectory folder;
  const auto from_text = [](const LineReader::Line& line) { return request_of_text(line); };
  const std::string content = "\xef\xbb\xbf ROMEO:\r\n\n{\"a\": 1}\n";
  folder.write("in.txt", content);
  folder.write("in.txt.zst", zstandard(content));
  folder.write("in.jsonl", "{\"prompt\":\"c\"}\n");
  for (const char* name : {"in.txt", "in.txt.zst"}) {
    LineReader reader({folder / name, folder / "in.jsonl"}, from_text);
    EXPECT_EQ(parse_request(*reader.next()).prompt, " ROMEO:");
    const auto third = reader.next();
    EXPECT_EQ(parse_request(*third).prompt, "{\"a\": 1}");
    EXPECT_EQ(parse_request(*third).label.id, "3");
    EXPECT_EQ(parse_request(*reader.next()).prompt, "c");
  }
  folder.write("in.txt", "\xc3\n");
  LineReader reader({folder / "in.txt"}, from_text);
  EXPECT_THROW(reader.next(), Error);
}

TEST(TextFile, ThatBeginsWithARequestHoldsJsonLinesAsEver) {
  const TempDirectory folder;
  folder.write("in.txt", "{\"tokens\":[1]}\n{\"tokens\":[2]}\n");
  LineReader reader({folder / "in.txt"}, [](const LineReader::Line& line) { return request_of_text(line); });
  EXPECT_EQ(lines_of(reader), (std::vector<std::string>{"{\"tokens\":[1]}", "{\"tokens\":[2]}"}));
}

TEST(InputFormat, ThatIsAnotherIsNamedWithTheCommandThatHelps) {
  const TempDirectory folder;
  const std::string lines = "{\"prompt\":\"a\"}\n{\"prompt\":\"b\"}\n";
  std::string wide;
  for (const char c : lines) wide += std::string{c, '\0'};
  const std::vector<std::vector<std::string>> cases = {
      {"\xff\xfe" + wide, "is UTF-16 text", "iconv -f UTF-16 -t UTF-8 "},
      {"\xfe\xff\0"s + wide, "is UTF-16 text", "iconv -f UTF-16 -t UTF-8 "},
      {wide, "is UTF-16 text", "iconv -f UTF-16LE "},
      {"\0"s + wide, "is UTF-16 text", "iconv -f UTF-16BE "},
      {zstandard(wide), "is UTF-16 text", "iconv"},
      {"PAR1\x15\x04", "is a Parquet file", "read_parquet"},
      {"BZh91AY&SY", "is packed with bzip2", "bzip2 -dc "},
      {"\xfd\x37zXZ\0\0"s, "is packed with xz", "xz -dc "},
      {"PK\3\4\x14", "is a zip archive", "unzip -p "},
      {"{\"a\": \0\1"s, "is a binary file", "JSON lines"},
      {"[{\"prompt\":\"a\"},{\"prompt\":\"b\"}]\n", "is a JSON array", "jq -c '.[]' "},
      {"\xef\xbb\xbf\n[\n  {\"prompt\": \"a\"}\n]\n", "is a JSON array", "jq -c '.[]' "},
      {"[\n  1,\n  2\n]\n", "is a JSON array", "jq -c '.[]' "},
      {"{\n  \"prompt\": \"a\"\n}\n{\n  \"prompt\": \"b\"\n}\n", "is JSON over several lines", "jq -c . "},
      {"{\"prompt\": \"a\",\n \"seed\": 1}\n", "is JSON over several lines", "jq -c . "}};
  for (const auto& parts : cases) {
    const Error error = reading_error(folder, "in", parts[0]);
    EXPECT_TRUE(std::string(error.what()).starts_with((folder / "in").string() + " " + parts[1]))
        << error.what();
    EXPECT_NE(error.remedy().find(parts[2]), std::string::npos) << error.remedy();
  }
}

TEST(InputFormat, OfLinesWithAMistakeIsNotMistakenForAnother) {
  const TempDirectory folder;
  for (const std::string& content :
       {"\xef\xbb\xbf{\"prompt\":\"a\"}\n"s, "{\"prompt\":\"a\"\n{\"prompt\":\"b\"}\n"s,
        "{\"prompt\":\"a\"\n"s, "{\"prompt\":}\nx\n"s, "[]\n{\"prompt\":\"b\"}\n"s, "[1,2]\n[3]\n"s, ""s,
        "7\n"s, "\"a\"\n"s})
    EXPECT_STREQ(reading_error(folder, "in", content).what(), "was read") << content;
}

}  // namespace
}  // namespace maniple
