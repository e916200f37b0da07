// Offsets beyond 2^31 elements: what lies at both ends of a tensor, of which nearly all is never touched, gives the same bits.
#include <emulation/device_test.hpp>
#include <kernels/ops.hpp>
#include <support/random_tensors.hpp>

#include <algorithm>
#include <cmath>
#include <numeric>

namespace maniple {
namespace {

using namespace testing;

constexpr int64_t beyond = int64_t{1} << 31;

class LargeMemory : public ::testing::Test {
 protected:
  Ops& ops() { return *backend_.ops; }
  Device& device() { return *backend_.device; }
  TensorView ints(const std::vector<int32_t>& values) {
    const Tensor& made = kept_.emplace_back(uploaded(device(), values));
    return {const_cast<std::byte*>(made.view().data), DType::int32, {static_cast<int64_t>(values.size())}};
  }

 private:
  Backend backend_ = emulation::emulated_cuda_backend(2);
  std::vector<Tensor> kept_;
};

// Two sequences of the same tokens, one in the first blocks and one in the last: a prompt, then decode steps.
TEST_F(LargeMemory, ACacheHoldsTheSameAtBothEnds) {
  const HeadLayout heads{32, 2, 64};
  for (const auto& [dtype, kept] :
       {std::pair(DType::bf16, DType::bf16), {DType::bf16, DType::fp8}, {DType::fp32, DType::fp32}}) {
    SCOPED_TRACE(name_of(dtype));
    constexpr int width = 20;  // blocks of a sequence
    const KvLayout layout{heads.kv_heads, heads.key_dim, 16, kept};
    const int64_t blocks = beyond / (heads.kv_width() * layout.block_size) + width;
    Tensor cache(device(), DType::uint8, {blocks, static_cast<int64_t>(layout.block_bytes())});
    std::vector<int32_t> table(2 * width);
    std::iota(table.begin(), table.begin() + width, 0);
    std::iota(table.begin() + width, table.end(), static_cast<int32_t>(blocks - width));
    const int prompt = dtype == DType::fp32 ? 40 : 270;  // two splits; in fp32 without tensor cores, slowly
    for (const auto& [past, query] : {std::pair(0, prompt), {prompt, 1}, {prompt + 1, 1}}) {
      const int64_t tokens = 2 * query;
      std::vector<int32_t> positions, slots;
      for (size_t sequence = 0; sequence < 2; ++sequence)
        for (int i = past; i < past + query; ++i) {
          positions.push_back(i);
          slots.push_back(table[width * sequence + static_cast<size_t>(i) / 16] * 16 + i % 16);
        }
      std::vector<float> one(static_cast<size_t>(query * heads.qkv_width()));
      for (size_t i = 0; i < one.size(); ++i) one[i] = uniform(static_cast<uint64_t>(past), i);
      std::vector<float> both = one;
      both.insert(both.end(), one.begin(), one.end());
      std::vector<BFloat16> rounded(both.begin(), both.end());
      const Tensor raw = dtype == DType::fp32 ? uploaded(device(), both) : uploaded(device(), rounded),
                   turns = uploaded(device(), std::vector<float>(512 * 64, 0.5f));
      Tensor queries(device(), dtype, {tokens, heads.query_width()}), out(device(), dtype, queries.shape());
      TensorView tables = ints(table);
      tables.shape = {2, width};
      const AttentionBatch batch{ints({0, query, 2 * query}),
                                 ints({past, past}),
                                 ints({0, 1}),
                                 tables,
                                 ints(positions),
                                 ints(slots)};
      const KvPages pages{cache, layout};
      ops().rotary_store({raw.view().data, dtype, {tokens, heads.qkv_width()}}, heads, {},
                         {turns.view().data, DType::fp32, {512, 64}}, batch, queries, pages);
      const AttentionCall call{queries, heads, batch, pages, out, 0.125f};
      AttentionCall largest = call;
      largest.batch.past_lengths.shape = {max_gpu_sequences};
      ops().prepare_attention(largest);  // makes room for more counters than there were
      ops().attention(call);
      const auto bytes = downloaded<std::byte>(device(), out);
      const auto middle = bytes.begin() + static_cast<std::ptrdiff_t>(bytes.size() / 2);
      EXPECT_TRUE(std::equal(bytes.begin(), middle, middle)) << past;
      std::vector<std::byte> host = bytes;
      for (int64_t i = 0; i < out.shape().elements(); ++i)
        ASSERT_TRUE(std::isfinite(get({host.data(), dtype, out.shape()}, i))) << past;
    }
  }
}

TEST_F(LargeMemory, IsTakenForSlotsOnlyWhereTheDecodeKernelRuns) {
  const auto& memory = static_cast<emulation::EmulatedDevice&>(device());
  const Tensor sinks(device(), DType::fp32, {64});
  AttentionCall call{.queries = {nullptr, DType::bf16, {max_gpu_sequences, 64 * 64}},
                     .heads = {.query_heads = 64, .kv_heads = 8, .key_dim = 64},
                     .batch = {},
                     .pages = {},
                     .out = {},
                     .sinks = sinks};
  call.batch.past_lengths.shape = {max_gpu_sequences};
  const size_t before = memory.held();
  ops().prepare_attention(call);
  EXPECT_EQ(memory.held(), before);
  call.sinks = {};
  ops().prepare_attention(call);
  EXPECT_GT(memory.held(), before);
}

TEST_F(LargeMemory, RowsAreGatheredFromBothEnds) {
  constexpr int64_t width = 1 << 18, rows = beyond / width + 5;
  Tensor x(device(), DType::fp32, {rows, width}), out(device(), DType::fp32, {2, width});
  std::vector<float> row(width);
  std::iota(row.begin(), row.end(), 0.0f);
  for (const int64_t at : {int64_t{0}, rows - 1}) {
    device().upload(x.view().rows(at, 1).data, reinterpret_cast<const std::byte*>(row.data()),
                    4 * row.size());
    std::ranges::reverse(row);
  }
  ops().gather_rows(x, ints({static_cast<int32_t>(rows - 1), 0}), out);
  std::vector<float> expected = row;
  std::ranges::reverse(expected);
  expected.insert(expected.end(), row.begin(), row.end());
  EXPECT_EQ(downloaded<float>(device(), out), expected);
}

}  // namespace
}  // namespace maniple
