#include <runtime/checkpoint/extents.hpp>

#include "checkpoint_testing.hpp"

#include <xxhash.h>

#include <cstring>
#include <functional>

namespace maniple {
namespace {

// A file with a valid user block before the text of an index, at its end.
void write_packed(const std::filesystem::path& path, const std::string& index) {
  const uint64_t size = user_block_bytes + index.size();
  write_file(
      path,
      user_block_of(size, {user_block_bytes, index.size(), XXH64(index.data(), index.size(), 0)}) + index);
}

std::string refusal_of_file(const std::filesystem::path& path) {
  return input_error_of([&] { ModelFiles files(path); });
}

TEST(PackedIndex, SaysWhatAFileIsThatIsNoModel) {
  const TempDirectory directory;
  const std::filesystem::path path = directory / "m.h5";
  const auto refusal = [&](const std::string& content) {
    write_file(path, content);
    return refusal_of_file(path);
  };
  expect_contains(refusal(""), "m.h5 is no model file: it is empty");
  expect_contains(refusal("a text\n"), "m.h5 is no model file: it is text");
  expect_contains(refusal("\x89HDF\r\n\x1a\n and more"),
                  "m.h5 is no model file: it is an HDF5 file without maniple's index");
  expect_contains(refusal(std::string(9000, '\1')), "does not begin with the mark of maniple convert");
}

TEST(PackedIndex, SaysBothSizesOfATruncatedFile) {
  const TempDirectory directory;
  const std::filesystem::path path = directory / "m.h5";
  write_packed(path, R"({"files": {}, "safetensors": {}})");
  EXPECT_TRUE(ModelFiles(path).names().empty());
  const uint64_t size = std::filesystem::file_size(path);
  for (const uint64_t left : {size - 1, user_block_bytes}) {
    std::filesystem::resize_file(path, left);
    expect_contains(refusal_of_file(path),
                    fmt::format("it is truncated: {} bytes, and maniple convert wrote {}", left, size));
  }
  std::filesystem::resize_file(path, 100);
  expect_contains(refusal_of_file(path), "it is truncated, to 100 bytes");
}

TEST(PackedIndex, RefusesAnyFlippedByteOfUserBlockOrIndex) {
  const TempDirectory directory;
  const std::filesystem::path path = directory / "m.h5";
  write_packed(path, R"({"files": {}, "safetensors": {}})");
  const std::string whole = read_file(path);
  for (size_t i = 0; i < whole.size(); ++i) {
    if (i == 56) i = user_block_bytes;  // zeros that nobody reads
    std::string damaged = whole;
    damaged[i] = static_cast<char>(damaged[i] ^ 0x10);
    write_file(path, damaged);
    expect_contains(refusal_of_file(path),
                    i < user_block_bytes ? "no model file" : "was rewritten by another program");
  }
}

TEST(PackedIndex, NamesBothVersionsOfAnotherSchema) {
  const TempDirectory directory;
  const std::filesystem::path path = directory / "m.h5";
  std::string block = user_block_of(user_block_bytes, {});
  block[8] = 2;
  block[12] = 0;
  const uint64_t hash = XXH64(block.data(), 48, 0);
  std::memcpy(&block[48], &hash, sizeof hash);
  write_file(path, block);
  expect_contains(refusal_of_file(path), "version 2.0 of the schema maniple-model; this maniple reads 1.x");
}

// 1.0 has XXH64 in `hashes`, 1.1 XXH3 in `xxh3`; a later minor version may say more.
TEST(PackedIndex, ReadsAllMinorVersions) {
  const TempDirectory directory;
  const std::filesystem::path path = directory / "m.h5";
  const std::string begin =
      R"({"more": 1, "safetensors": {"x": {"size": 8, "header": {"offset": 0, "bytes": 1, "hash": "0123456789abcdef"}, "tensors": {"t": {"chunk": [1, 1], "more": 2, "offsets": [5], )";
  for (const auto& [minor, name, kind] :
       {std::tuple{0, "hashes", HashKind::xxh64}, {1, "xxh3", HashKind::xxh3}, {9, "xxh3", HashKind::xxh3}}) {
    write_packed(path, fmt::format("{}\"{}\": \"00000000000000ff\"}}}}}}}}}}", begin, name));
    std::string whole = read_file(path);
    EXPECT_EQ(whole[12], 1);  // what this version writes
    whole[12] = static_cast<char>(minor);
    const uint64_t hash = XXH64(whole.data(), 48, 0);
    std::memcpy(&whole[48], &hash, sizeof hash);
    write_file(path, whole);
    const PackedIndex index = *ModelFiles(path).packed();
    const PackedTensor& tensor = index.safetensors.at("x").tensors.find("t")->second;
    EXPECT_EQ(tensor.hashed_by, kind);
    EXPECT_EQ(tensor.hashes, std::vector<uint64_t>{0xFF});
    EXPECT_NE(to_json(index).find(fmt::format("\"{}\":\"00000000000000ff\"", name)), std::string::npos);
  }
}

TEST(PackedIndex, RefusesWhatAnIndexMayNotSay) {
  const TempDirectory directory;
  const std::filesystem::path path = directory / "m.h5";
  const std::string hash = R"("hash": "0123456789abcdef")";
  const std::pair<std::string, const char*> cases[] = {
      {"[", "index"},
      {R"({"files": {"../x": {"offset": 0, "bytes": 1, )" + hash + "}}}", "no file name"},
      {R"({"files": {"": {"offset": 0, "bytes": 1, )" + hash + "}}}", "no file name"},
      {R"({"files": {"x": {"offset": 1, "bytes": 1152921504606846976, )" + hash + "}}}", "bytes"},
      {R"({"files": {"x": {"offset": 9223372036854775807, "bytes": 8, )" + hash + "}}}", "bytes"},
      {R"({"files": {"x": {"offset": -1, "bytes": 8, )" + hash + "}}}", "offset"},
      {R"({"files": {"x": {"offset": 1, "bytes": 8, "hash": "12"}}})", "hash"},
      {R"({"safetensors": {"x": {"size": 8, "header": 3}}})", "header"},
      {R"({"safetensors": {"x": {"size": 8, "header": {"offset": 0, "bytes": 1, )" + hash +
           R"(}, "tensors": {"t": {"chunk": [1], "offsets": [], "hashes": ""}}}}})",
       "chunk"},
      {R"({"safetensors": {"x": {"size": 8, "header": {"offset": 0, "bytes": 1, )" + hash +
           R"(}, "tensors": {"t": {"chunk": [1, 1], "offsets": [5], "hashes": ""}}}}})",
       "hashes"},
      {R"({"safetensors": {"x": {"size": 8, "header": {"offset": 0, "bytes": 1, )" + hash +
           R"(}, "tensors": {"t": {"chunk": [1, 1], "offsets": [5], "xxh3": "0123"}}}}})",
       "xxh3"},
      {R"({"safetensors": {"x": {"size": 8, "header": {"offset": 0, "bytes": 1, )" + hash +
           R"(}, "tensors": {"t": {"chunk": [1, 1], "offsets": [5]}}}}})",
       "xxh3"},
  };
  for (const auto& [text, says] : cases) {
    write_packed(path, text);
    expect_contains(refusal_of_file(path), says);
  }
  write_file(path, user_block_of(user_block_bytes, {0, uint64_t{1} << 60, 0}));
  expect_contains(refusal_of_file(path), "its index is said to have 1152921504606846976 bytes");
}

TEST(PackedIndex, RefusesNamesThatNoFileHas) {
  const TempDirectory directory;
  const std::filesystem::path path = directory / "m.h5";
  const std::string bytes = R"({"offset": 0, "bytes": 1, "hash": "0123456789abcdef"})";
  const auto of_file = [&](size_t length) {
    return fmt::format(R"({{"files": {{"{}": {}}}}})", std::string(length, 'n'), bytes);
  };
  const auto of_tensor = [&](size_t length) {
    return fmt::format(
        R"({{"safetensors": {{"x": {{"size": 8, "header": {}, "tensors": {{"{}": {{"chunk": [1, 1], "offsets": [], "xxh3": ""}}}}}}}}}})",
        bytes, std::string(length, 'n'));
  };
  for (const auto& text : {std::function<std::string(size_t)>(of_file), {of_tensor}}) {
    write_packed(path, text(255));
    EXPECT_NO_THROW(ModelFiles{path});
    write_packed(path, text(256));
    expect_contains(refusal_of_file(path), "nnn... has 256 bytes; at most 255 are possible");
  }
}

// 45 million offsets, which the parser would hold in 1.8 GB.
TEST(PackedIndex, RefusesMoreValuesThanAnyModelHasBeforeItStoresThem) {
  std::string text =
      R"({"safetensors": {"x": {"size": 8, "header": {"offset": 0, "bytes": 1, "hash": "0123456789abcdef"}, "tensors": {"t": {"chunk": [1, 1], "xxh3": "", "offsets": [0)";
  for (int i = 0; i < 45'000'000; ++i) text += ",0";
  text += "]}}}}}";
  expect_contains(input_error_of([&] { packed_index_from(text, "m.h5: index", 1'000'000'000); }),
                  "m.h5: index: it has 90000");
  EXPECT_LT(text.size(), max_index_bytes);
}

TEST(Extents, TileATensorInChunks) {
  const TensorInfo info{"BF16", DType::bf16, {10, 6}, 120};
  const PackedTensor by_columns{10, 4, {4096, 8192}, {1, 2}};
  const std::vector<Extent> extents = extents_of(info, by_columns, 0, 10'000, "m.h5: tensor t");
  ASSERT_EQ(extents.size(), 2u);
  EXPECT_EQ(extents[1], (Extent{{0, 10}, {4, 6}, 8, 0, 8192, Checksum{2}}));  // the chunk passes the edge
  EXPECT_EQ(extents[1].bytes(), 80u);
}

// Chunks of whole experts; what earlier versions wrote in one piece, in other rows.
TEST(Extents, TileATensorOfFourDimensionsByItsFirstTwo) {
  const TensorInfo info{"U8", DType::uint8, {4, 3, 2, 5}, 120};
  const std::vector<Extent> extents =
      extents_of(info, {6, 10, {4096, 8192}, {1, 2}}, 0, 10'000, "m.h5: tensor t");
  ASSERT_EQ(extents.size(), 2u);
  EXPECT_EQ(extents[1], (Extent{{6, 12}, {0, 10}, 10, 0, 8192, Checksum{2}}));
  const std::vector<Extent> whole = extents_of(info, {24, 5, {4096}, {1}}, 0, 10'000, "m.h5: tensor t");
  ASSERT_EQ(whole.size(), 1u);
  EXPECT_EQ(whole[0], (Extent{{0, 12}, {0, 10}, 10, 0, 4096, Checksum{1}}));
}

TEST(Extents, RefuseChunksThatDoNotMakeUpTheTensor) {
  const TensorInfo info{"BF16", DType::bf16, {10, 6}, 120};
  const auto refusal = [&](PackedTensor packed) {
    packed.hashes.resize(packed.offsets.size());
    return input_error_of([&] { extents_of(info, packed, 0, 10'000, "m.h5: tensor t"); });
  };
  expect_contains(refusal({5, 6, {4096}, {}}), "m.h5: tensor t: 1 chunk of 5 x 6");
  expect_contains(refusal({0, 6, {4096}, {}}), "do not make up");
  expect_contains(refusal({10, 7, {4096}, {}}), "do not make up");
  expect_contains(refusal({10, 6, {4096, 4096}, {}}), "do not make up");
  expect_contains(refusal({1, int64_t{1} << 62, {4096}, {}}), "do not make up");
  expect_contains(refusal({10, 6, {9900}, {}}),
                  "chunk 0: its 120 bytes at byte 9900 pass the end of the file at 10000");
  expect_contains(refusal({10, 6, {0}, {}}), "chunk 0");
}

TEST(Extents, RefuseRangesThatShareAByte) {
  WeightIndex index;
  const TensorInfo info{"BF16", DType::bf16, {10, 6}, 120};
  index.tensors["t"] = {info, extents_of(info, {10, 3, {5000, 5059}, {0, 0}}, 0, 10'000, "t")};
  expect_contains(input_error_of([&] { check_apart(index, {}, "m.h5"); }),
                  "chunk 1 overlaps tensor \"t\", chunk 0");
  index.tensors["t"] = {info, extents_of(info, {10, 3, {5000, 5060}, {0, 0}}, 0, 10'000, "t")};
  check_apart(index, {}, "m.h5");
  PackedIndex packed;
  packed.files["config.json"] = {4990, 11, 0};
  expect_contains(input_error_of([&] { check_apart(index, packed, "m.h5"); }), "overlaps config.json");
}

}  // namespace
}  // namespace maniple
