#include <launch/tools/convert/model_writer.hpp>
#include <launch/tools/convert/round_trip.hpp>
#include <launch/tools/convert/tensor_copy.hpp>

#include <gtest/gtest.h>
#include <runtime/checkpoint/extents.hpp>
#include <support/safetensors_writer.hpp>
#include <support/temp_directory.hpp>
#include <support/test_data.hpp>

#include <xxhash.h>

#include <cctype>
#include <cstring>
#include <random>
#include <set>

namespace maniple {
namespace {

namespace fs = std::filesystem;

std::string content_of(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

void expect_same_files(const fs::path& one, const fs::path& other) {
  std::set<std::string> names, others;
  for (const auto& entry : fs::directory_iterator(one)) names.insert(entry.path().filename());
  for (const auto& entry : fs::directory_iterator(other)) others.insert(entry.path().filename());
  EXPECT_EQ(names, others);
  for (const std::string& name : names)
    EXPECT_TRUE(content_of(one / name) == content_of(other / name)) << name;
}

void pack(const fs::path& from, const fs::path& to, const PackOptions& options = {}) {
  pack_model(ModelFiles(from), to, options);
}

std::string refusal_of(const auto& action, ExitCode code = ExitCode::input) {
  try {
    action();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), code) << error.what();
    return error.what();
  }
  return "nothing was refused";
}

TEST(RoundTrip, GivesEveryFileAsItWasForAllModels) {
  for (const char* name : {"tiny-qwen3", "tiny-qwen3-kv1", "tiny-llama3", "tiny-qwen2", "tiny-mistral",
                           "tiny-gpt-oss", "shakespeare"})
    for (const int shards : {1, 8, 7}) {
      SCOPED_TRACE(fmt::format("{} in {} shards", name, shards));
      const TempDirectory folder;
      const fs::path model = test_data() / "models" / name, packed = folder / "m.h5";
      pack(model, packed, {shards, 4096, 2, true});
      unpack_model(ModelFiles(packed), folder / "back", 2);
      expect_same_files(model, folder / "back");
      EXPECT_FALSE(fs::exists(folder / "m.h5.part"));
    }
}

// Of tensors of all kinds, in two files, one of them named by no index; the model cannot be run.
TEST(RoundTrip, KeepsWhatNoModelNeeds) {
  const TempDirectory folder;
  const fs::path model = folder / "model";
  fs::create_directory(model);
  const auto bytes = [](size_t count) { return std::vector<std::byte>(count, std::byte{7}); };
  write_safetensors(model / "a.safetensors", {{"scalar", "U8", {}, bytes(1)},
                                              {"a/b", "F32", {2, 3}, bytes(24)},
                                              {"..", "I64", {3}, bytes(24)},
                                              {"empty", "BF16", {0, 9}, {}},
                                              {"f8", "F8_E4M3", {2, 5}, bytes(10)},
                                              {"cube", "BF16", {2, 3, 4}, bytes(48)},
                                              {"new", "F3", {9}, bytes(4)}});
  write_safetensors(model / "b.safetensors",
                    {{"scalar", "U8", {}, bytes(1)}, {"more", "F16", {5}, bytes(10)}});
  write_safetensors(model / "c.safetensors", {{"other", "U8", {}, bytes(1)}});
  folder.write("model/config.json", "{\"architectures\": [\"Unheard\"]}");
  folder.write("model/model.safetensors.index.json",
               R"({"weight_map": {"scalar": "a.safetensors", "more": "b.safetensors"}})");
  folder.write("model/empty.txt", "");
  pack(model, folder / "m.h5", {.verify = true});
  unpack_model(ModelFiles(folder / "m.h5"), folder / "back", 0);
  expect_same_files(model, folder / "back");
}

TEST(RoundTrip, RefusesToWriteANameThatNoReaderTakes) {
  const TempDirectory folder;
  folder.write("model/config.json", "{}");
  for (const size_t length : {255, 256}) {
    write_safetensors(folder / "model/a.safetensors", {{std::string(length, 'n'), "U8", {}, {std::byte{7}}}});
    const std::string refusal = refusal_of([&] { pack(folder / "model", folder / std::to_string(length)); });
    EXPECT_EQ(refusal.find("has 256 bytes; at most 255 are possible") != std::string::npos, length == 256)
        << refusal;
  }
  EXPECT_FALSE(fs::exists(folder / "256.part"));
}

TEST(RoundTrip, CutsWhatTensorRanksShareAndNothingElse) {
  const ModelFiles files = test_data() / "models" / "tiny-qwen3";
  const Packing packing = packing_of(files, 8);
  const auto& tensors = packing.index.safetensors.at("model.safetensors").tensors;
  EXPECT_EQ(packing.note, "");
  const auto chunks = [&](const char* name) { return tensors.find(name)->second.offsets.size(); };
  EXPECT_EQ(chunks("model.norm.weight"), 1u);
  EXPECT_EQ(chunks("model.layers.0.self_attn.q_proj.weight"), 8u);
  const PackedTensor& down = tensors.find("model.layers.0.mlp.down_proj.weight")->second;
  EXPECT_EQ(down.offsets.size(), 8u);
  EXPECT_LT(down.chunk_columns, down.chunk_rows * 8);
}

TEST(RoundTrip, CutsStackedExpertsApart) {
  const ModelFiles files = test_data() / "models" / "tiny-gpt-oss";
  for (const int shards : {8, 7, 3}) {
    const Packing packing = packing_of(files, shards);
    EXPECT_EQ(packing.note, "");
    const PackedTensor& stacked = packing.index.safetensors.at("model.safetensors")
                                      .tensors.find("model.layers.0.mlp.experts.gate_up_proj")
                                      ->second;
    const int64_t experts = (8 + shards - 1) / shards, hidden = 96, outputs = 128;
    EXPECT_EQ(stacked.chunk_rows, experts * hidden);
    EXPECT_EQ(stacked.chunk_columns, outputs);
    EXPECT_EQ(std::ssize(stacked.offsets), (8 + experts - 1) / experts);
  }
}

// Any chunks on both sides, by rows or by columns, that do not divide the tensor.
TEST(TensorCopy, MovesBetweenAnyLayouts) {
  std::mt19937 random(3);
  for (int trial = 0; trial < 100; ++trial) {
    const TempDirectory folder;
    const auto rows = static_cast<int64_t>(1 + random() % 40),
               columns = static_cast<int64_t>(1 + random() % 40);
    const TensorInfo info{"BF16", DType::bf16, {rows, columns}, static_cast<uint64_t>(rows * columns * 2)};
    const auto cut = [&] {
      PackedTensor packed{
          1 + static_cast<int64_t>(random()) % rows, 1 + static_cast<int64_t>(random()) % columns, {}, {}};
      const auto parts = [](int64_t size, int64_t part) { return (size + part - 1) / part; };
      const int64_t count = parts(rows, packed.chunk_rows) * parts(columns, packed.chunk_columns);
      for (int64_t i = 0; i < count; ++i)
        packed.offsets.push_back(4096 + i * packed.chunk_rows * packed.chunk_columns * 2);
      packed.hashes.resize(packed.offsets.size());
      return extents_of(info, packed, 0, uint64_t{1} << 30, "t");
    };
    std::string values(info.byte_size, '\0');
    for (char& value : values) value = static_cast<char>(random());
    folder.write("dense", values);
    const std::vector<Extent> dense = whole_extent(info, 0, 0), first = cut(), second = cut();
    const auto out = [&](const char* name) {
      RangeFile file(folder / name, RangeFile::How::create);
      file.resize(1 << 20);
      return file;
    };
    const RangeFile one = out("one"), two = out("two"), back = out("back");
    const InputFile source(folder / "dense");
    const CopiedHashes written = copy_tensor(info, {&source, dense}, {&one, first});
    const InputFile from_one(folder / "one"), from_two(folder / "two");
    EXPECT_EQ(copy_tensor(info, {&from_one, first}, {&two, second}).from, written.to);
    copy_tensor(info, {&from_two, second}, {&back, dense});
    EXPECT_TRUE(content_of(folder / "back").starts_with(values));
  }
}

class DamagedModel : public ::testing::Test {
 protected:
  DamagedModel() { pack(model_, path_); }

  void flip(uint64_t at) const {
    std::fstream file(path_, std::ios::in | std::ios::out | std::ios::binary);
    file.seekg(static_cast<std::streamoff>(at));
    const int byte = file.get();
    file.seekp(static_cast<std::streamoff>(at));
    file.put(static_cast<char>(byte ^ 1));
  }

  TempDirectory folder_;
  fs::path model_ = test_data() / "models" / "tiny-qwen3", path_ = folder_ / "m.h5";
};

TEST_F(DamagedModel, IsRefusedWithTensorAndChunk) {
  const ModelFiles files(path_);
  const auto& tensors = files.packed()->safetensors.at("model.safetensors").tensors;
  flip(static_cast<uint64_t>(tensors.find("model.layers.1.mlp.up_proj.weight")->second.offsets.at(3)));
  const std::string says = "m.h5: tensor model.layers.1.mlp.up_proj.weight, chunk 3: the checksum differs";
  EXPECT_NE(refusal_of([&] { unpack_model(files, folder_ / "back", 1); }).find(says), std::string::npos);
  EXPECT_FALSE(fs::exists(folder_ / "back"));
  EXPECT_NE(refusal_of([&] { check_packed(path_, 1); }).find(says), std::string::npos);
}

TEST_F(DamagedModel, IsRefusedWithTheNameOfASmallFile) {
  const ModelFiles files(path_);
  flip(files.packed()->files.at("config.json").offset + 5);
  EXPECT_NE(refusal_of([&] { files.text("config.json"); }).find("m.h5: config.json: the checksum differs"),
            std::string::npos);
}

// The flags of a message in an object header say that its content lies elsewhere: HDF5 1.10.8 follows a pointer to nowhere.
TEST_F(DamagedModel, IsRefusedWhereItMakesTheHdf5LibraryCrash) {
  std::string bytes = content_of(test_data() / "schema-1.0" / "model.h5");
  bytes.at(29860) = 66;
  folder_.write("m.h5", bytes);
  const std::string refusal = refusal_of([&] { check_packed(path_, 1); });
  EXPECT_NE(refusal.find("m.h5: "), std::string::npos) << refusal;
}

// Digits and other characters of the index change, its hash does not tell: all that it says is checked.
TEST_F(DamagedModel, IsRefusedOrIsAModelWhateverItsIndexSays) {
  const std::string whole = content_of(path_);
  uint64_t offset = 0, size = 0;
  std::memcpy(&offset, &whole[24], sizeof offset);
  std::memcpy(&size, &whole[32], sizeof size);
  std::mt19937 random(4);
  int refused = 0;
  for (int trial = 0; trial < 300; ++trial) {
    std::string text = whole.substr(offset, size);
    for (int change = 0; change < 3; ++change) {
      const size_t at = random() % text.size();
      text[at] = std::isdigit(text[at]) ? static_cast<char>('0' + random() % 10)
                                        : static_cast<char>(' ' + random() % 90);
    }
    const RangeFile file(path_, RangeFile::How::open);
    file.write(offset, text);
    file.write(0, user_block_of(whole.size(), {offset, size, XXH64(text.data(), text.size(), 0)}));
    try {
      read_index(ModelFiles(path_));
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ExitCode::input) << error.what();
      ++refused;
    }
  }
  EXPECT_GT(refused, 100);
}

// A way back that ends at a damaged chunk; then the file is whole again.
class InterruptedWayBack : public DamagedModel {
 protected:
  InterruptedWayBack() {
    const PackedIndex index = *ModelFiles(path_).packed();
    const auto& last = *index.safetensors.at("model.safetensors").tensors.rbegin();
    const auto at = static_cast<uint64_t>(last.second.offsets.at(0));
    flip(at);
    EXPECT_NE(refusal_of([&] { unpack(); }).find("the checksum differs"), std::string::npos);
    flip(at);
    EXPECT_FALSE(fs::exists(back_));
    EXPECT_TRUE(fs::exists(part_));
  }
  void unpack() const { unpack_model(ModelFiles(path_), back_, 1); }

  fs::path back_ = folder_ / "back", part_ = folder_ / "back.part";
};

TEST_F(InterruptedWayBack, StartsOver) {
  folder_.write("back.part/config.json", "old");
  folder_.write("back.part/of another model", "old");
  unpack();
  expect_same_files(model_, back_);
  EXPECT_FALSE(fs::exists(part_));
}

// Killed while the model in its place was being replaced.
TEST_F(InterruptedWayBack, ReplacesAModelInTwoSteps) {
  fs::copy(model_, part_.string() + ".replaced");
  fs::copy(test_data() / "models" / "tiny-qwen3-kv1", back_);
  unpack();
  expect_same_files(model_, back_);
  EXPECT_FALSE(fs::exists(part_.string() + ".replaced"));
}

// maniple 0.3 kept a log beside the part.
TEST_F(InterruptedWayBack, RemovesWhatOlderVersionsLeft) {
  fs::create_directory(part_.string() + ".replaced");
  folder_.write("back.progress", "a log");
  folder_.write("back.progress.new", "a log");
  unpack();
  std::set<std::string> names;
  for (const auto& entry : fs::directory_iterator(folder_.path())) names.insert(entry.path().filename());
  EXPECT_EQ(names, (std::set<std::string>{"back", "m.h5"}));
}

TEST_F(InterruptedWayBack, RefusesASecondWriter) {
  const RangeFile other(part_ / "config.json", RangeFile::How::open);
  other.lock();
  EXPECT_NE(refusal_of([&] { unpack(); }, ExitCode::preflight).find("is being written by another process"),
            std::string::npos);
  EXPECT_TRUE(fs::exists(part_ / "model.safetensors"));
}

// A conversion that ends before its last step: a folder has the name of the target.
class InterruptedWriter : public ::testing::Test {
 protected:
  InterruptedWriter() {
    fs::create_directories(packed_ / "in the way");
    EXPECT_ANY_THROW(pack(model_, packed_));
    fs::remove_all(packed_);
  }

  TempDirectory folder_;
  fs::path model_ = test_data() / "models" / "tiny-qwen3-kv1", packed_ = folder_ / "m.h5",
           part_ = folder_ / "m.h5.part";
};

TEST_F(InterruptedWriter, StartsOver) {
  pack(model_, folder_ / "whole");
  std::string content = content_of(part_);
  for (char& byte : content) byte = static_cast<char>(byte ^ 1);
  folder_.write("m.h5.part", content);
  folder_.write("m.h5.progress", "the log of maniple 0.3");
  pack(model_, packed_);
  EXPECT_TRUE(content_of(packed_) == content_of(folder_ / "whole"));
  EXPECT_FALSE(fs::exists(part_) || fs::exists(folder_ / "m.h5.progress"));
  check_packed(packed_, 1);
}

TEST_F(InterruptedWriter, RefusesASecondWriter) {
  const RangeFile other(part_, RangeFile::How::open);
  other.lock();
  EXPECT_NE(refusal_of([&] { pack(model_, packed_); }, ExitCode::preflight)
                .find("m.h5.part is being written by another process"),
            std::string::npos);
  EXPECT_TRUE(fs::exists(part_) && !fs::exists(packed_));
}

}  // namespace
}  // namespace maniple
