#include <runtime/checkpoint/input_file.hpp>

#include "checkpoint_testing.hpp"

#include <algorithm>
#include <climits>
#include <random>
#include <vector>

namespace maniple {
namespace {

// Parts of 0 to 3 bytes that cover `bytes` in order: more of them than one call of the system takes.
std::vector<iovec> small_parts(std::vector<char>& bytes) {
  std::mt19937 random(1);
  std::vector<iovec> parts;
  for (size_t at = 0; at < bytes.size(); at += parts.back().iov_len)
    parts.push_back({bytes.data() + at, std::min<size_t>(random() % 4, bytes.size() - at)});
  return parts;
}

TEST(InputFile, FillsMorePartsThanOneCallTakes) {
  const TempDirectory folder;
  std::string text(5 * IOV_MAX, '\0');
  std::mt19937 random(2);
  for (char& byte : text) byte = static_cast<char>(random());
  write_file(folder / "f", text);

  std::vector<char> got(text.size() - 9);
  std::vector<iovec> parts = small_parts(got);
  ASSERT_GT(parts.size(), 2 * IOV_MAX);
  InputFile(folder / "f").read(9, parts);
  EXPECT_EQ(std::string_view(got.data(), got.size()), std::string_view(text).substr(9));
}

TEST(InputFile, NamesTheByteWhereItEndsTooEarly) {
  const TempDirectory folder;
  write_file(folder / "f", std::string(3 * IOV_MAX, 'x'));
  std::vector<char> got(3 * IOV_MAX);
  std::vector<iovec> parts = small_parts(got);
  const std::string message = input_error_of([&] { InputFile(folder / "f").read(1, parts); });
  expect_contains(message, "ends at byte " + std::to_string(3 * IOV_MAX));
}

}  // namespace
}  // namespace maniple
