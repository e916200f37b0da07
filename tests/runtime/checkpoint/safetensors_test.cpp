#include <runtime/checkpoint/safetensors.hpp>

#include "checkpoint_testing.hpp"

#include <support/safetensors_writer.hpp>

#include <algorithm>

namespace maniple {
namespace {

StoredTensors read_header(const std::filesystem::path& path) {
  return read_safetensors_header(InputFile(path));
}

// Greedy: the token is the place of the largest logit.
TEST(Safetensors, ReadsWhatTheReferenceLibraryWrote) {
  const InputFile file(model_directory("tiny-qwen3") / "golden.safetensors");
  const StoredTensors tensors = read_safetensors_header(file);
  int32_t tokens[24];
  float logits[24][515];
  EXPECT_EQ(tensors.at("logits_0").info.shape, (std::vector<int64_t>{24, 515}));
  file.read(tensors.at("tokens_0").offset, std::as_writable_bytes(std::span(tokens)));
  file.read(tensors.at("logits_0").offset, std::as_writable_bytes(std::span(logits)));
  for (int row = 0; row < 24; ++row)
    EXPECT_EQ(tokens[row], std::max_element(logits[row], logits[row] + 515) - logits[row]);
}

TEST(Safetensors, ListsScalarsEmptyTensorsAndTypesThatCannotBeRead) {
  const TempDirectory directory;
  write_safetensors(directory / "t.safetensors", {{"scalar", "U8", {}, {std::byte{42}}},
                                                  {"empty", "F32", {0, 9}, {}},
                                                  {"f8", "F8_E4M3", {2}, std::vector<std::byte>(2)},
                                                  {"new", "F3", {9}, std::vector<std::byte>(4)}});
  const InputFile file(directory / "t.safetensors");
  const StoredTensors tensors = read_safetensors_header(file);
  std::byte scalar{};
  file.read(tensors.at("scalar").offset, {&scalar, 1});
  EXPECT_EQ(scalar, std::byte{42});
  EXPECT_EQ(tensors.at("empty").info.byte_size, 0u);
  EXPECT_EQ(tensors.at("f8").info.stored_type, "F8_E4M3");
  EXPECT_FALSE(tensors.at("f8").info.dtype);
  EXPECT_FALSE(tensors.at("new").info.dtype);
}

// '<' is 60: the first byte of a length of 60, 316 ... bytes, and of a web page.
TEST(Safetensors, IsNoWebPageWhateverItsLengthIs) {
  const TempDirectory directory;
  for (const size_t length : {60, 316}) {
    std::string header = R"({"t":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}})";
    header.resize(length, ' ');
    write_raw_safetensors(directory / "t.safetensors", header, "x");
    EXPECT_EQ(read_safetensors_header(ModelFiles(directory.path()).open("t.safetensors")).size(), 1u);
  }
  write_file(directory / "t.safetensors", "<script>{");
  expect_contains(input_error_of([&] { ModelFiles(directory.path()).open("t.safetensors"); }),
                  "is a web page");
}

TEST(Safetensors, ReportsAFileThatShrinksAfterItWasOpened) {
  const TempDirectory directory;
  write_safetensors(directory / "t.safetensors", {{"t", "U8", {100}, std::vector<std::byte>(100)}});
  const InputFile file(directory / "t.safetensors");
  std::filesystem::resize_file(directory / "t.safetensors", file.size() - 1);
  std::vector<std::byte> bytes(100);
  expect_contains(input_error_of([&] { file.read(file.size() - 100, bytes); }), "ends at byte");
}

struct HostileHeader {
  std::string_view header;
  uint64_t data_bytes;
  std::string_view says;
};

TEST(Safetensors, RefusesHostileHeaders) {
  const std::string deep_array(1'000'000, '['), deep_shape = R"({"a":{"dtype":"F32","shape":)" + deep_array;
  const HostileHeader table[] = {
      {R"(["a"])", 0, "not a JSON object"},
      {R"({"a":3})", 0, "tensor \"a\" is 3, not a JSON object"},
      {R"({"a":{"shape":[1],"data_offsets":[0,4]}})", 4, "tensor \"a\".dtype is missing"},
      {R"({"a":{"dtype":4,"shape":[1],"data_offsets":[0,4]}})", 4, "tensor \"a\".dtype is 4"},
      {R"({"a":{"dtype":"F32","data_offsets":[0,4]}})", 4, "shape is missing"},
      {R"({"a":{"dtype":"F32","shape":1,"data_offsets":[0,4]}})", 4, "shape is 1"},
      {R"({"a":{"dtype":"F32","shape":[-1],"data_offsets":[0,4]}})", 4, "[-1]"},
      {R"({"a":{"dtype":"F32","shape":[1.0],"data_offsets":[0,4]}})", 4, "[1.0]"},
      {R"({"a":{"dtype":"F32","shape":[9223372036854775808],"data_offsets":[0,4]}})", 4,
       "9223372036854775808"},
      {R"({"a":{"dtype":"F32","shape":[4294967296,4294967296],"data_offsets":[0,0]}})", 0, "more than 2^64"},
      {R"({"a":{"dtype":"F32","shape":[9223372036854775807,2],"data_offsets":[0,4]}})", 4, "more than 2^64"},
      {R"({"a":{"dtype":"F32","shape":[1]}})", 4, "data_offsets is missing"},
      {R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0]}})", 4, "data_offsets is [0]"},
      {R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[-4,0]}})", 4, "data_offsets is [-4,0]"},
      {R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[4,0]}})", 4, "data_offsets is [4,0]"},
      {R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,18446744073709551615]}})", 4,
       "18446744073709551615"},
      {R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,18446744073709551616]}})", 4,
       "list of whole numbers"},
      {R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}})", 4, "in the 4 bytes"},
      {R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,4]}})", 4, "8 bytes, for F32 of shape [2]"},
      {R"({"a":{"dtype":"BF16","shape":[],"data_offsets":[0,4]}})", 4, "2 bytes, for BF16 of shape []"},
      {R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},"b":{"dtype":"F32","shape":[1],"data_offsets":[2,6]}})",
       6, "overlapping"},
      {R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},"b":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}})",
       4, "overlapping"},
      {R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},"b":{"dtype":"F32","shape":[1],"data_offsets":[5,9]}})",
       9, "hole"},
      {R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}})", 5, "the file at 5"},
      {R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}})",
       4, "\"a\" is given twice"},
      {R"({"a":{"dtype":"F32","shape":[1],"shape":[1],"data_offsets":[0,4]}})", 4,
       "\"shape\" is given twice"},
      {"{\"\xff\":{}}", 0, "not valid JSON"},
      {"{\"a\x1b[31m\":{}}", 0, "not valid JSON"},
      {"{\"a\\u001b[31m\":3}", 0, "\"a\\u001b[31m\""},
      {"{", 0, "not valid JSON"},
      {"", 0, "not valid JSON"},
      {deep_array, 0, "nested deeper"},
      {deep_shape, 0, "nested deeper"},
  };
  const TempDirectory directory;
  for (const auto& [header, data_bytes, says] : table) {
    SCOPED_TRACE(std::string(header.substr(0, 200)));
    write_raw_safetensors(directory / "bad.safetensors", header, std::string(data_bytes, 'x'));
    const std::string message = input_error_of([&] { read_header(directory / "bad.safetensors"); });
    expect_contains(message, "bad.safetensors");
    expect_contains(message, std::string(says));
  }
}

TEST(Safetensors, RefusesLengthsThatTheFileDoesNotHave) {
  const TempDirectory directory;
  const auto message_for = [&](std::string_view content) {
    write_file(directory / "bad.safetensors", content);
    return input_error_of([&] { read_header(directory / "bad.safetensors"); });
  };
  using namespace std::string_view_literals;
  expect_contains(message_for(""), "has 0 bytes");
  expect_contains(message_for("1234567"), "has 7 bytes");
  expect_contains(message_for("\0\0\0\0\0\0\0\0"sv), "not valid JSON");
  expect_contains(message_for("\3\0\0\0\0\0\0\0{}"sv), "claims 3 bytes; at most 2");
  expect_contains(message_for("\0\0\0\0\0\0\0\x80{}"sv), "claims 9223372036854775808 bytes");
  expect_contains(message_for("\xff\xff\xff\xff\xff\xff\xff\xff{}"sv), "claims 18446744073709551615 bytes");
}

TEST(Safetensors, LimitsTheHeaderAsTheFormatDoes) {
  const TempDirectory directory;
  write_raw_safetensors(directory / "big.safetensors", "{}", "");
  std::filesystem::resize_file(directory / "big.safetensors", 200'000'000);  // sparse
  std::fstream file(directory / "big.safetensors", std::ios::in | std::ios::out | std::ios::binary);
  file.write("\x01\xe1\xf5\x05\0\0\0\0", 8);  // 100,000,001
  file.close();
  expect_contains(input_error_of([&] { read_header(directory / "big.safetensors"); }), "at most 100000000");
}

TEST(Safetensors, RefusesWhatIsNotARegularFile) {
  const TempDirectory directory;
  expect_contains(input_error_of([&] { read_header(directory.path()); }), "not a regular file");
  expect_contains(input_error_of([&] { read_header(directory / "none"); }), "No such file");
}

}  // namespace
}  // namespace maniple
