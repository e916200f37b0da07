// Tied models whose checkpoint stores both tables, or the head alone.
#include <runtime/checkpoint/loading/own_head.hpp>

#include "checkpoint_testing.hpp"

#include <support/safetensors_writer.hpp>

namespace maniple {
namespace {

std::vector<std::byte> numbers(size_t count, int first) {
  std::vector<std::byte> bytes(2 * count);
  for (size_t i = 0; i < bytes.size(); ++i)
    bytes[i] = static_cast<std::byte>(i * 7 + static_cast<size_t>(first));
  return bytes;
}

struct Settled {
  std::string sentence;
  bool tied;
  WeightIndex index;
};

Settled settled(const std::vector<TensorToWrite>& tensors, bool tied = true) {
  const TempDirectory directory;
  write_safetensors(directory / "model.safetensors", tensors);
  Settled settled{"", tied, read_index(directory.path())};
  ModelConfig config;
  config.tie_word_embeddings = tied;
  settled.sentence = settle_head(config, settled.index);
  settled.tied = config.tie_word_embeddings;
  return settled;
}

constexpr int64_t rows = 90'000;  // more than is compared at a time
const TensorToWrite table{"model.embed_tokens.weight", "BF16", {rows, 32}, numbers(32 * rows, 1)};

TensorToWrite head(std::vector<std::byte> bytes = table.bytes, std::string type = "BF16",
                   std::vector<int64_t> shape = {rows, 32}) {
  return {"lm_head.weight", std::move(type), std::move(shape), std::move(bytes)};
}

TEST(OwnHead, OfTheSameNumbersIsTheEmbedding) {
  for (const auto& same : {settled({table}), settled({table, head()})}) {
    EXPECT_TRUE(same.tied);
    EXPECT_EQ(same.sentence, "");
  }
  EXPECT_FALSE(settled({table, head()}, false).tied);
}

TEST(OwnHead, OfOtherNumbersTypeOrShapeIsNotTied) {
  std::vector<std::byte> last = table.bytes;
  last.back() ^= std::byte{1};
  for (const auto& other : {settled({table, head(last)}), settled({table, head(numbers(32 * rows, 2))}),
                            settled({table, head(table.bytes, "F16")}),
                            settled({table, head(table.bytes, "BF16", {rows / 2, 64})})}) {
    EXPECT_FALSE(other.tied);
    expect_contains(other.sentence, "a different lm_head.weight");
  }
}

TEST(OwnHead, ThatIsQuantisedIsNotTied) {
  const Settled packed = settled({table, {"lm_head.qweight", "I32", {4}, std::vector<std::byte>(16)}});
  EXPECT_FALSE(packed.tied);
  expect_contains(packed.sentence, "a quantised lm_head");
}

TEST(OwnHead, AloneIsTheEmbeddingToo) {
  const Settled alone = settled({head()});
  EXPECT_TRUE(alone.tied);
  EXPECT_TRUE(alone.index.tensors.contains("model.embed_tokens.weight"));
  expect_contains(alone.sentence, "lm_head.weight is read in its place");
}

}  // namespace
}  // namespace maniple
