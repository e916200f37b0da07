#include <emulation/device_test.hpp>
#include <kernels/cuda/sampling.hpp>
#include <support/random_tensors.hpp>

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <vector>

namespace maniple {
namespace {

using testing::downloaded;
using testing::uploaded;

class Filters : public testing::DeviceTest {};
INSTANTIATE_TEST_SUITE_P(Orders, Filters, ::testing::Values(0, 1));

// Rows of two parts. In the first, threads of half of a block have the larger logits, and four of these threads the smallest of them: too
// many precede the bound of the first ones. All of the second are equal.
TEST_P(Filters, ListTheFirstTokensOfAnyRow) {
  constexpr int rows = 3, width = 9400, first = 7;
  Device& memory = device().memory();
  std::vector<float> values;
  for (int i = 0; i < width; ++i) {
    const int thread = i / 4 % 512;
    values.push_back(0.25f * static_cast<float>(i / 200) + (thread < 252   ? 200.0f
                                                            : thread < 256 ? 100.0f
                                                                           : 0.0f));
  }
  values.resize(2 * width, 0.5f);
  for (uint64_t i = 0; i < width; ++i) values.push_back(testing::uniform(1, i));
  Tensor all = uploaded(memory, values), listed = uploaded(memory, std::vector<int32_t>{0, 1, 2}),
         partial = uploaded(memory, std::vector<CandidateList>(rows * cuda::max_parts)),
         out = uploaded(memory, std::vector<CandidateList>(rows));
  const cuda::Logits logits{testing::data<float>(all), rows, width, first, width};
  cuda::candidates(device().stream(), logits, testing::data<int32_t>(listed), rows,
                   testing::data<CandidateList>(partial), testing::data<CandidateList>(out));
  const auto lists = downloaded<CandidateList>(memory, out);
  for (size_t row = 0; row < rows; ++row) {
    std::vector<TokenLogit> tokens;
    for (int i = 0; i < width; ++i)
      tokens.push_back({first + i, values[row * width + static_cast<size_t>(i)]});
    std::ranges::stable_sort(tokens, std::greater{}, &TokenLogit::logit);
    for (size_t i = 0; i < max_candidates; ++i) {
      ASSERT_EQ(lists[row].tokens[i].id, tokens[i].id) << row << ' ' << i;
      EXPECT_EQ(lists[row].tokens[i].logit, tokens[i].logit);
    }
    const auto reached = std::ranges::count_if(
        tokens, [&](const TokenLogit& token) { return token.logit >= tokens[max_candidates - 1].logit; });
    EXPECT_EQ(lists[row].further, reached - max_candidates) << row;
    for (const int many : {1, 129, 1024}) {
      Tensor largest = uploaded(memory, std::vector<TokenLogit>(static_cast<size_t>(many)));
      cuda::largest_logits(device().stream(), logits, static_cast<int>(row), many,
                           testing::data<TokenLogit>(largest));
      const auto found = downloaded<TokenLogit>(memory, largest);
      for (size_t i = 0; i < found.size(); ++i) ASSERT_EQ(found[i].id, tokens[i].id) << many << ' ' << i;
    }
  }
}

// A row for each kind of search, in two parts each; the last one's cut is among equal logits.
TEST_P(Filters, CutRowsInTurnWhereThereIsRoomForFew) {
  constexpr int rows = 4, width = 9000;
  Device& memory = device().memory();
  std::vector<float> values;
  for (uint64_t i = 0; i < 3 * width; ++i) values.push_back(4 * testing::uniform(1, i));
  values.resize(rows * width, 0.5f);
  const std::vector<SamplingRow> draws{{.temperature = 0.7f, .top_p = 0.9f},
                                       {.temperature = 0.7f, .top_k = 2000, .top_p = 0.5f},
                                       {.temperature = 0.7f, .min_p = 0.1f},
                                       {.temperature = 0.7f, .top_p = 0.5f}};
  Tensor all = uploaded(memory, values), how = uploaded(memory, draws),
         listed = uploaded(memory, std::vector<int32_t>{0, 1, 2, 3});
  const cuda::Logits logits{testing::data<float>(all), rows, width, 0, width};
  std::vector<std::vector<Cut>> found;
  for (const int64_t at_once : {4, 3, 1})
    for (const bool in_place : {true, false}) {
      Tensor room(memory, DType::uint8, {at_once * cuda::filter_bytes(logits)}),
          cuts = uploaded(memory, std::vector<Cut>(rows));
      cuda::filter_logits(device().stream(), logits, in_place, testing::data<int32_t>(listed), rows,
                          testing::data<SamplingRow>(how), {room.view().data, room.view().bytes()},
                          testing::data<Cut>(cuts));
      found.push_back(downloaded<Cut>(memory, cuts));
    }
  EXPECT_EQ(found[0][3].id, width / 2 - 1);
  for (const std::vector<Cut>& cuts : found)
    for (size_t row = 0; row < rows; ++row) {
      EXPECT_GT(cuts[row].logit, 0);
      EXPECT_EQ(cuts[row].logit, found[0][row].logit);
      EXPECT_EQ(cuts[row].id, found[0][row].id);
    }
}

}  // namespace
}  // namespace maniple
