#include <runtime/checkpoint/weight_index.hpp>

#include "checkpoint_testing.hpp"

#include <nlohmann/json.hpp>
#include <support/safetensors_writer.hpp>

namespace maniple {
namespace {

namespace fs = std::filesystem;

TensorToWrite one_byte(const std::string& name, int value) {
  return {name, "U8", {1}, {static_cast<std::byte>(value)}};
}

int byte_of(const WeightIndex& index, std::string_view name) {
  const Extent& extent = index.tensors.find(name)->second.extents.at(0);
  std::byte value{};
  InputFile(index.files[extent.file].path).read(extent.offset, {&value, 1});
  return std::to_integer<int>(value);
}

void write_index(const TempDirectory& directory, const nlohmann::json& weight_map) {
  write_file(directory / "model.safetensors.index.json", nlohmann::json{{"weight_map", weight_map}}.dump());
}

std::string refusal_of_index(const fs::path& directory) {
  return input_error_of([&] { read_index(directory); });
}

TEST(WeightIndex, OfAModelOfNineFilesIsThatOfItsIndexFile) {
  const WeightIndex index = read_index(model_directory("tiny-qwen3-kv1"));
  EXPECT_EQ(index.tensors.size(), 46u);
  EXPECT_EQ(index.files.size(), 9u);
  uint64_t bytes = 0;
  for (const auto& [name, tensor] : index.tensors) bytes += tensor.info.byte_size;
  EXPECT_EQ(bytes, 2067712u);  // total_size in the index
  const TensorInfo& info = index.tensors.at("model.layers.3.mlp.down_proj.weight").info;
  EXPECT_EQ(info.shape, (std::vector<int64_t>{128, 256}));
  EXPECT_EQ(info.dtype, DType::bf16);
  EXPECT_FALSE(index.tensors.contains("lm_head.weight"));
}

TEST(WeightIndex, HoldsTheSingleFileAndNothingBesideIt) {
  const WeightIndex index = read_index(model_directory("tiny-qwen3"));
  EXPECT_EQ(index.tensors.size(), 36u);  // golden.safetensors is beside it
  EXPECT_FALSE(index.tensors.contains("logits_0"));
}

// An index that was left beside a newer file leads to old weights, or to files that are gone.
TEST(WeightIndex, OfASingleFileTakesNoNoticeOfAnIndexBesideIt) {
  const TempDirectory directory;
  write_safetensors(directory / "model.safetensors", {one_byte("a", 1)});
  write_index(directory, {{"a", "model-00001-of-00001.safetensors"}});
  for (const bool shards : {false, true}) {
    if (shards) write_safetensors(directory / "model-00001-of-00001.safetensors", {one_byte("a", 2)});
    const WeightIndex index = read_index(directory.path());
    EXPECT_EQ(byte_of(index, "a"), 1);
    expect_contains(index.warning, "both model.safetensors and model.safetensors.index.json");
  }
  EXPECT_EQ(read_index(model_directory("tiny-qwen3")).warning, "");
  EXPECT_EQ(read_index(model_directory("tiny-qwen3-kv1")).warning, "");
}

// models--ORGANISATION--MODEL of huggingface_hub: blobs, refs and snapshots, whose files are links.
TEST(ModelFilesInAHubCache, AreThoseOfTheOneSnapshot) {
  const TempDirectory directory;
  const fs::path cache = directory / "models--a--b", snapshot = cache / "snapshots" / "123";
  fs::create_directories(snapshot);
  fs::create_directories(cache / "blobs");
  write_file(cache / "blobs" / "x", "{}");
  fs::create_symlink("../../blobs/x", snapshot / "config.json");
  EXPECT_EQ(ModelFiles(cache).text("config.json"), "{}");
  EXPECT_EQ(ModelFiles(cache).where(), snapshot.string());
  fs::remove(cache / "blobs" / "x");
  expect_contains(input_error_of([&] { ModelFiles(cache).text("config.json"); }),
                  "it is a link to ../../blobs/x, which is not there");
  EXPECT_TRUE(ModelFiles(cache).has("config.json"));
  fs::create_directories(cache / "snapshots" / "456");
  expect_contains(input_error_of([&] { ModelFiles files(cache); }), "holds 2 snapshots");
  fs::create_symlink("nowhere", directory / "link");
  expect_contains(input_error_of([&] { ModelFiles files(directory / "link"); }),
                  "does not exist: it is a link to nowhere");
}

TEST(WeightIndex, IsTheSameOnTheRanksThatGetItsBytes) {
  const TempDirectory directory;
  write_safetensors(directory / "a.safetensors", {one_byte("a \u00e9", 1), {"empty", "F32", {0, 9}, {}}});
  write_safetensors(directory / "\xff.safetensors", {{"scalar", "F8_E4M3", {}, {std::byte{42}}}});
  const WeightIndex index = read_index(directory.path()), copy = index_from(to_bytes(index));
  EXPECT_EQ(copy.files, index.files);
  ASSERT_EQ(copy.tensors.size(), 3u);
  for (const auto& [name, tensor] : index.tensors) {
    const IndexedTensor& other = copy.tensors.at(name);
    EXPECT_EQ(other.info.stored_type, tensor.info.stored_type);
    EXPECT_EQ(other.info.dtype, tensor.info.dtype);
    EXPECT_EQ(other.info.shape, tensor.info.shape);
    EXPECT_EQ(other.info.byte_size, tensor.info.byte_size);
    EXPECT_EQ(other.extents, tensor.extents);
  }
  EXPECT_EQ(byte_of(copy, "scalar"), 42);
}

TEST(WeightIndex, IgnoresDuplicatesThatTheIndexDoesNotMention) {
  const TempDirectory directory;
  write_safetensors(directory / "model-1.safetensors", {one_byte("a", 1), one_byte("unlisted", 9)});
  write_safetensors(directory / "model-2.safetensors", {one_byte("b", 2)});
  write_safetensors(directory / "consolidated.safetensors", {one_byte("a", 8), one_byte("b", 8)});
  write_file(directory / "model.safetensors.old", "not opened");
  write_index(directory, {{"a", "model-1.safetensors"}, {"b", "model-2.safetensors"}});
  const WeightIndex index = read_index(directory.path());
  EXPECT_EQ(index.tensors.size(), 2u);
  EXPECT_EQ(byte_of(index, "a"), 1);
  EXPECT_EQ(byte_of(index, "b"), 2);
}

TEST(WeightIndex, JoinsAllFilesWhereNoIndexIsGiven) {
  const TempDirectory directory;
  write_safetensors(directory / "part-2.safetensors", {one_byte("b", 2)});
  write_safetensors(directory / "part-1.safetensors", {one_byte("a", 1)});
  EXPECT_EQ(byte_of(read_index(directory.path()), "b"), 2);
  write_safetensors(directory / "part-3.safetensors", {one_byte("a", 1)});
  const std::string message = refusal_of_index(directory.path());
  expect_contains(message, "part-1.safetensors");
  expect_contains(message, "part-3.safetensors");
}

TEST(WeightIndex, FollowsLinksAsDownloadCachesMakeThem) {
  const TempDirectory directory, blobs;
  write_safetensors(blobs / "0123abcd", {one_byte("a", 5)});
  fs::create_symlink(blobs / "0123abcd", directory / "model.safetensors");
  EXPECT_EQ(byte_of(read_index(directory.path()), "a"), 5);
  fs::remove(blobs / "0123abcd");
  EXPECT_FALSE(refusal_of_index(directory.path()).empty());
}

TEST(WeightIndex, RefusesAnIndexThatLiesOrLeadsElsewhere) {
  const TempDirectory directory;
  write_safetensors(directory / "model-1.safetensors", {one_byte("a", 1)});
  const std::pair<nlohmann::json, std::string> table[] = {
      {{{"a", "../secret.safetensors"}}, "../secret.safetensors"},
      {{{"a", "/etc/x.safetensors"}}, "/etc/x.safetensors"},
      {{{"a", ".."}}, "same directory"},
      {{{"a", 3}}, "is said to be in 3"},
      {{{"a", "model-9.safetensors"}}, "not there"},
      {{{"a", "model-1.safetensors"}, {"b", "model-1.safetensors"}}, "tensor \"b\""},
      {nlohmann::json::object(), "weight_map"},
      {nlohmann::json::array({1}), "weight_map"},
      {nullptr, "weight_map"},
  };
  for (const auto& [weight_map, says] : table) {
    write_index(directory, weight_map);
    const std::string message = refusal_of_index(directory.path());
    expect_contains(message, "model.safetensors.index.json");
    expect_contains(message, says);
  }
  write_file(directory / "model.safetensors.index.json",
             R"({"weight_map": {"a": "model-1.safetensors", "a": "model-1.safetensors"}})");
  expect_contains(refusal_of_index(directory.path()), "given twice");
}

TEST(WeightIndex, ExplainsADirectoryWithoutSafetensors) {
  const TempDirectory directory;
  expect_contains(refusal_of_index(directory.path()), "no *.safetensors file");
  write_file(directory / "model.gguf", "x");
  expect_contains(refusal_of_index(directory.path()), "model.gguf");
  write_file(directory / "pytorch_model.bin", "x");
  expect_contains(refusal_of_index(directory.path()), "pytorch_model.bin");
  expect_contains(refusal_of_index(directory / "model.gguf"), "model.gguf is no model file: it is text");
  expect_contains(refusal_of_index("Qwen/Qwen3-0.6B"), "does not exist");
}

}  // namespace
}  // namespace maniple
