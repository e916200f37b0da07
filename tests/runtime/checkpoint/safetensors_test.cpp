#include <runtime/checkpoint/safetensors.hpp>

#include "checkpoint_testing.hpp"

#include <support/safetensors_writer.hpp>

#include <atomic>
#include <cstring>
#include <random>
#include <thread>

namespace maniple {
namespace {

std::vector<std::byte> random_bytes(size_t count, std::mt19937& random) {
  std::vector<std::byte> bytes(count);
  for (std::byte& byte : bytes) byte = static_cast<std::byte>(random() & 0xff);
  return bytes;
}

struct Box {
  std::vector<int64_t> begin, extent;

  int64_t elements() const {
    int64_t product = 1;
    for (const int64_t size : extent) product *= size;
    return product;
  }
};

std::vector<std::byte> read_box(const CheckpointReader& reader, const std::string& name, const Box& box) {
  std::vector<std::byte> out(static_cast<size_t>(box.elements()) * size_of(*reader.find(name)->dtype));
  reader.read(name, box.begin, box.extent, out);
  return out;
}

// Independent of the reader's strides: element by element from the whole tensor.
std::vector<std::byte> naive_box(const TensorToWrite& tensor, size_t item, const Box& box) {
  const int64_t columns = tensor.shape.size() > 1 ? tensor.shape[1] : 1,
                first_column = box.begin.size() > 1 ? box.begin[1] : 0,
                width = box.extent.size() > 1 ? box.extent[1] : 1;
  std::vector<std::byte> out;
  for (int64_t row = box.begin[0]; row < box.begin[0] + box.extent[0]; ++row)
    for (int64_t column = first_column; column < first_column + width; ++column)
      for (size_t byte = 0; byte < item; ++byte)
        out.push_back(tensor.bytes[static_cast<size_t>(row * columns + column) * item + byte]);
  return out;
}

Box random_box(const std::vector<int64_t>& shape, std::mt19937& random) {
  Box box;
  for (const int64_t size : shape) {
    box.begin.push_back(static_cast<int64_t>(random() % static_cast<uint64_t>(size + 1)));
    box.extent.push_back(static_cast<int64_t>(random() % static_cast<uint64_t>(size - box.begin.back() + 1)));
  }
  return box;
}

TEST(Safetensors, RandomBoxesEqualANaiveRead) {
  std::mt19937 random(1);
  const TempDirectory directory;
  std::vector<TensorToWrite> tensors;
  const std::vector<std::vector<int64_t>> shapes = {{1},       {7},       {1, 1}, {5, 3}, {3, 515},
                                                    {64, 160}, {331, 17}, {1, 9}, {9, 1}};
  const std::pair<std::string, size_t> types[] = {{"F32", 4}, {"BF16", 2}, {"F16", 2}, {"I32", 4}, {"U8", 1}};
  for (size_t i = 0; i < shapes.size(); ++i) {
    const auto& [type, item] = types[i % std::size(types)];
    const Box whole{{}, shapes[i]};
    tensors.push_back({fmt::format("t{}", i), type, shapes[i],
                       random_bytes(static_cast<size_t>(whole.elements()) * item, random)});
  }
  write_safetensors(directory / "t.safetensors", tensors);
  const SafetensorsFile file(directory / "t.safetensors");
  ASSERT_EQ(file.names().size(), shapes.size());
  for (const TensorToWrite& tensor : tensors) {
    EXPECT_EQ(file.find(tensor.name)->shape, tensor.shape);
    EXPECT_EQ(file.find(tensor.name)->byte_size, tensor.bytes.size());
    const size_t item = size_of(*file.find(tensor.name)->dtype);
    const Box whole{std::vector<int64_t>(tensor.shape.size(), 0), tensor.shape};
    EXPECT_EQ(read_box(file, tensor.name, whole), tensor.bytes);
    for (int trial = 0; trial < 50; ++trial) {
      const Box box = random_box(tensor.shape, random);
      EXPECT_EQ(read_box(file, tensor.name, box), naive_box(tensor, item, box)) << tensor.name;
    }
  }
}

// Rows long enough that gaps are skipped, and columns of many rows that take several chunks.
TEST(Safetensors, ReadsColumnsOfLargeTensorsInChunksOrRuns) {
  std::mt19937 random(2);
  const TempDirectory directory;
  const std::vector<TensorToWrite> tensors = {
      {"wide", "U8", {40, 200'000}, random_bytes(40 * 200'000, random)},
      {"tall", "BF16", {3001, 1700}, random_bytes(2 * 3001 * 1700, random)}};
  write_safetensors(directory / "t.safetensors", tensors);
  const SafetensorsFile file(directory / "t.safetensors");
  const Box boxes[] = {{{3, 100'000}, {37, 50'000}}, {{0, 199'999}, {40, 1}}, {{0, 10}, {40, 199'000}}};
  for (const Box& box : boxes) EXPECT_EQ(read_box(file, "wide", box), naive_box(tensors[0], 1, box));
  const Box tall_boxes[] = {
      {{0, 1275}, {3001, 425}}, {{1, 0}, {3000, 1699}}, {{0, 0}, {3001, 1}}, {{2999, 3}, {2, 1000}}};
  for (const Box& box : tall_boxes) EXPECT_EQ(read_box(file, "tall", box), naive_box(tensors[1], 2, box));
}

TEST(Safetensors, ManyThreadsReadAtOnce) {
  std::mt19937 random(3);
  const TempDirectory directory;
  const std::vector<TensorToWrite> tensors = {{"t", "F32", {300, 40}, random_bytes(300 * 40 * 4, random)}};
  write_safetensors(directory / "t.safetensors", tensors);
  const SafetensorsFile file(directory / "t.safetensors");
  std::atomic<int> wrong = 0;
  std::vector<std::jthread> threads;
  for (int i = 0; i < 4; ++i)
    threads.emplace_back([&, i] {
      for (int64_t row = i; row < 200; row += 4) {
        const Box box{{row, 5}, {100, 20}};
        wrong += read_box(file, "t", box) != naive_box(tensors[0], 4, box);
      }
    });
  threads.clear();
  EXPECT_EQ(wrong, 0);
}

TEST(Safetensors, ReadsScalarsAndEmptyTensors) {
  const TempDirectory directory;
  write_safetensors(directory / "t.safetensors",
                    {{"scalar", "U8", {}, {std::byte{42}}}, {"empty", "F32", {0, 9}, {}}});
  const SafetensorsFile file(directory / "t.safetensors");
  EXPECT_EQ(read_box(file, "scalar", {}), std::vector<std::byte>{std::byte{42}});
  EXPECT_TRUE(read_box(file, "empty", {{0, 2}, {0, 3}}).empty());
}

TEST(Safetensors, ReadsWhatTheReferenceLibraryWrote) {
  const SafetensorsFile file(model_directory("tiny-qwen3") / "golden.safetensors");
  const auto bytes = read_box(file, "tokens_0", {{0}, {24}});
  int32_t tokens[24];
  std::memcpy(tokens, bytes.data(), sizeof tokens);
  const auto logits = read_box(file, "logits_0", {{0, 0}, {24, 515}});
  for (int row = 0; row < 24; ++row) {  // greedy: the token is the place of the largest logit
    float values[515];
    std::memcpy(values, &logits[static_cast<size_t>(row) * sizeof values], sizeof values);
    EXPECT_EQ(tokens[row], std::max_element(values, values + 515) - values);
  }
}

TEST(Safetensors, RefusesBoxesAndNamesThatAreNotThere) {
  const TempDirectory directory;
  write_safetensors(directory / "t.safetensors", {{"t", "U8", {2, 3}, std::vector<std::byte>(6)}});
  const SafetensorsFile file(directory / "t.safetensors");
  std::vector<std::byte> out(6);
  const int64_t max = std::numeric_limits<int64_t>::max();
  const Box boxes[] = {{{0, 0}, {3, 2}},   {{0, 1}, {2, 3}},     {{-1, 0}, {2, 3}},
                       {{0, 0}, {-2, -3}}, {{max, 0}, {max, 3}}, {{0}, {6}}};
  for (const Box& box : boxes)
    expect_contains(input_error_of([&] { file.read("t", box.begin, box.extent, out); }),
                    "tensor \"t\" of shape [2, 3]");
  expect_contains(input_error_of([&] { file.read("u", boxes[0].begin, boxes[0].extent, out); }),
                  "has no tensor \"u\"");
}

TEST(Safetensors, ListsTypesThatItCannotRead) {
  const TempDirectory directory;
  write_safetensors(directory / "t.safetensors", {{"f8", "F8_E4M3", {2}, std::vector<std::byte>(2)},
                                                  {"new", "F3", {9}, std::vector<std::byte>(4)}});
  const SafetensorsFile file(directory / "t.safetensors");
  EXPECT_EQ(file.find("f8")->stored_type, "F8_E4M3");
  EXPECT_FALSE(file.find("new")->dtype);
  std::vector<std::byte> out(2);
  expect_contains(
      input_error_of([&] { file.read("f8", std::vector<int64_t>{0}, std::vector<int64_t>{2}, out); }),
      "F8_E4M3");
}

TEST(Safetensors, ReportsAFileThatShrinksAfterItWasOpened) {
  const TempDirectory directory;
  write_safetensors(directory / "t.safetensors", {{"t", "U8", {100}, std::vector<std::byte>(100)}});
  const SafetensorsFile file(directory / "t.safetensors");
  std::filesystem::resize_file(directory / "t.safetensors",
                               std::filesystem::file_size(directory / "t.safetensors") - 1);
  expect_contains(input_error_of([&] { read_box(file, "t", {{0}, {100}}); }), "ends at byte");
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
    const std::string message = input_error_of([&] { SafetensorsFile file(directory / "bad.safetensors"); });
    expect_contains(message, "bad.safetensors");
    expect_contains(message, std::string(says));
  }
}

TEST(Safetensors, RefusesLengthsThatTheFileDoesNotHave) {
  const TempDirectory directory;
  const auto message_for = [&](std::string_view content) {
    write_file(directory / "bad.safetensors", content);
    return input_error_of([&] { SafetensorsFile file(directory / "bad.safetensors"); });
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
  expect_contains(input_error_of([&] { SafetensorsFile big(directory / "big.safetensors"); }),
                  "at most 100000000");
}

TEST(Safetensors, RefusesWhatIsNotARegularFile) {
  const TempDirectory directory;
  expect_contains(input_error_of([&] { SafetensorsFile file(directory.path()); }), "not a regular file");
  expect_contains(input_error_of([&] { SafetensorsFile file(directory / "none"); }), "No such file");
}

}  // namespace
}  // namespace maniple
