#include <emulation/device_test.hpp>
#include <kernels/cuda/sampling.hpp>
#include <support/random_tensors.hpp>

#include <gtest/gtest.h>

#include <vector>

namespace maniple {
namespace {

using testing::downloaded;
using testing::uploaded;

class Filters : public testing::DeviceTest {};
INSTANTIATE_TEST_SUITE_P(Orders, Filters, ::testing::Values(0, 1));

// A row for each kind of search, in two parts each.
TEST_P(Filters, CutRowsInTurnWhereThereIsRoomForFew) {
  constexpr int rows = 3, width = 9000;
  Device& memory = device().memory();
  std::vector<float> values;
  for (uint64_t i = 0; i < rows * width; ++i) values.push_back(4 * testing::uniform(1, i));
  const std::vector<SamplingRow> draws{{.temperature = 0.7f, .top_p = 0.9f},
                                       {.temperature = 0.7f, .top_k = 2000, .top_p = 0.5f},
                                       {.temperature = 0.7f, .min_p = 0.1f}};
  Tensor all = uploaded(memory, values), how = uploaded(memory, draws),
         listed = uploaded(memory, std::vector<int32_t>{0, 1, 2});
  const cuda::Logits logits{testing::data<float>(all), rows, width, 0, width};
  std::vector<std::vector<Cut>> found;
  for (const int64_t at_once : {3, 2, 1})
    for (const bool in_place : {true, false}) {
      Tensor room(memory, DType::uint8, {at_once * cuda::filter_bytes(logits)}),
          cuts = uploaded(memory, std::vector<Cut>(rows));
      cuda::filter_logits(device().stream(), logits, in_place, testing::data<int32_t>(listed), rows,
                          testing::data<SamplingRow>(how), {room.view().data, room.view().bytes()},
                          testing::data<Cut>(cuts));
      found.push_back(downloaded<Cut>(memory, cuts));
    }
  for (const std::vector<Cut>& cuts : found)
    for (size_t row = 0; row < rows; ++row) {
      EXPECT_GT(cuts[row].logit, 0);
      EXPECT_EQ(cuts[row].logit, found[0][row].logit);
      EXPECT_EQ(cuts[row].id, found[0][row].id);
    }
}

}  // namespace
}  // namespace maniple
