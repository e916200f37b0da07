#include <runtime/checkpoint/file_fingerprint.hpp>

#include "checkpoint_testing.hpp"

#include <support/temp_directory.hpp>

#include <fstream>

namespace maniple {
namespace {

// A safetensors file's frame: the length of a header, the header, data.
void write(const std::filesystem::path& path, const std::string& header, const std::string& data) {
  std::ofstream file(path, std::ios::binary);
  const uint64_t length = header.size();
  file.write(reinterpret_cast<const char*>(&length), sizeof length) << header << data;
}

class FileFingerprintTest : public ::testing::Test {
 protected:
  FileFingerprint print(const std::string& header, const std::string& data) {
    write(directory_ / "file", header, data);
    return fingerprint_of(InputFile(directory_ / "file"));
  }
  std::string refusal(const IndexedFile& file) {
    try {
      open_same(file);
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ExitCode::input);
      return error.what();
    }
    return "";
  }
  TempDirectory directory_;
};

TEST_F(FileFingerprintTest, IsTheSameOfTheSameContent) {
  const std::string data(100'000, 'x');
  EXPECT_EQ(print("{}", data), print("{}", data));
}

TEST_F(FileFingerprintTest, TellsSizeHeaderAndValuesApart) {
  const std::string data(100'000, 'x');
  const FileFingerprint first = print("{a}", data), header = print("{b}", data),
                        values = print("{a}", std::string(100'000, 'y')), size = print("{a}", data + "x");
  EXPECT_NE(first.header, header.header);
  EXPECT_EQ(first.samples, header.samples);
  EXPECT_NE(first.samples, values.samples);
  EXPECT_EQ(first.header, values.header);
  EXPECT_NE(first.size, size.size);
}

TEST_F(FileFingerprintTest, SamplesALargeFileInFourPlaces) {
  std::string data(size_t{70} << 20, 'x');
  const FileFingerprint first = print("{}", data);
  for (size_t i = 1; i <= 4; ++i) {
    std::string other = data;
    std::fill_n(other.begin() + static_cast<std::ptrdiff_t>(data.size() / 5 * i + 100), 8, 'y');
    EXPECT_NE(first.samples, print("{}", other).samples) << i;
  }
}

TEST_F(FileFingerprintTest, TakesAnyContent) {
  for (const size_t size : {0, 1, 7, 8, 9, 4095}) print("", std::string(size, '\xff'));
  std::ofstream(directory_ / "short") << "abc";
  EXPECT_EQ(fingerprint_of(InputFile(directory_ / "short")).size, 3u);
  std::ofstream(directory_ / "none");
  EXPECT_EQ(fingerprint_of(InputFile(directory_ / "none")).size, 0u);
}

TEST_F(FileFingerprintTest, RefusesAnotherFileByItsName) {
  const std::string data(50'000, 'x');
  const IndexedFile listed{directory_ / "file", print("{a}", data)};
  EXPECT_EQ(refusal(listed), "");
  print("{a}", data + "more");
  expect_contains(refusal(listed), "file is not the file that rank 0 read: 50015 bytes, there 50011");
  print("{b}", data);
  expect_contains(refusal(listed), "other tensors");
  print("{a}", std::string(50'000, 'y'));
  expect_contains(refusal(listed), "other values");
}

}  // namespace
}  // namespace maniple
