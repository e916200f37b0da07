#include <kernels/subjects.hpp>

#include <numeric>
#include <random>

namespace maniple {
namespace {

using namespace testing;

class Seats : public Conformance {};
INSTANTIATE_TEST_SUITE_P(Every, Seats, ::testing::ValuesIn(all_subjects()), name_of_subject);

std::vector<int32_t> ints_of(ConstTensorView tensor) {
  return {tensor.as<int32_t>(), tensor.as<int32_t>() + tensor.shape.elements()};
}

// Host and device may change their bytes at once: uploads and downloads take the values in the order of work.
TEST_P(Seats, UploadsAndStartedDownloadsKeepTheOrderOfWork) {
  std::vector<int32_t> host(1000);
  Tensor memory(device(), DType::int32, {1000});
  const auto upload = [&](int32_t value) {
    std::fill(host.begin(), host.end(), value);
    device().upload(memory.view().data, reinterpret_cast<const std::byte*>(host.data()), 4000);
    std::fill(host.begin(), host.end(), -1);
  };
  std::vector<std::unique_ptr<Download>> started;
  for (int32_t value = 0; value < 3; ++value) {
    upload(value);
    started.push_back(device().start_download(memory.view().data, 4000));
  }
  upload(9);
  for (int32_t value = 2; value >= 0; --value) {
    const std::span<const std::byte> bytes = started[static_cast<size_t>(value)]->wait();
    EXPECT_TRUE(started[static_cast<size_t>(value)]->ready());
    const auto* found = reinterpret_cast<const int32_t*>(bytes.data());
    EXPECT_EQ(std::vector<int32_t>(found, found + bytes.size() / 4), std::vector<int32_t>(1000, value));
  }
}

TEST_P(Seats, ScatterWritesTheNamedEntriesOfATableAndNoOthers) {
  std::mt19937 random(1);
  for (const int64_t count : {0, 1, 33, 700}) {
    std::vector<int32_t> table(7 * 100, -5), indices(table.size()), values;
    std::iota(indices.begin(), indices.end(), 0);
    std::shuffle(indices.begin(), indices.end(), random);
    indices.resize(static_cast<size_t>(count));
    Tensor out = int_tensor(device(), table);
    for (const int32_t index : indices) {
      values.push_back(static_cast<int32_t>(random()));
      table[static_cast<size_t>(index)] = values.back();
    }
    ops().scatter(int_tensor(device(), indices), int_tensor(device(), values), out.view().reshaped({7, 100}));
    EXPECT_EQ(ints_of(out), table) << count;
  }
}

TEST_P(Seats, IdsBelowZeroBecomeTheTokensOfTheirSeats) {
  const Tensor last = int_tensor(device(), {100, 101, 102, 103});
  Tensor ids = int_tensor(device(), {-4, 7, 0, -1, 151935, -1, -3});
  ops().resolve_last_tokens(last, ids);
  EXPECT_EQ(ints_of(ids), (std::vector<int32_t>{103, 7, 0, 100, 151935, 100, 102}));
}

TEST_P(Seats, IdsAreKeptInThePlacesOfTheirBlocks) {
  Tensor ids = int_tensor(device(), {-4, 7, -1}), tokens = int_tensor(device(), {9, 9, 9, 9, 9, 9});
  ops().resolve_last_tokens(int_tensor(device(), {100, 101, 102, 103}), ids, int_tensor(device(), {5, -1, 0}),
                            tokens.view().reshaped({2, 3}));
  EXPECT_EQ(ints_of(ids), (std::vector<int32_t>{103, 7, 100}));
  EXPECT_EQ(ints_of(tokens), (std::vector<int32_t>{100, 9, 9, 9, 9, 103}));
}

TEST_P(Seats, TheWinnerOverTheShardsHasTheLargestScoreThenTheLowestIdAndIsKeptForItsSeat) {
  constexpr float infinity = std::numeric_limits<float>::infinity();
  const std::vector<Candidate> gathered{{1, 10, 0.5F},  {2, 11, 0},   {3, 12, 0},   {-infinity, 13, 0},
                                        {2, 110, 1.5F}, {2, 111, 0},  {-4, 112, 0}, {-infinity, 7, 0},
                                        {1.5F, 210, 0}, {2, 3, 2.5F}, {3, 212, 0},  {-infinity, 213, 0}};
  for (const size_t shards : {1, 3}) {
    std::vector<Candidate> chosen(4);
    Tensor last = int_tensor(device(), {-1, -1, -1, -1, -1, -1});
    ops().choose(std::span(gathered).first(4 * shards), int_tensor(device(), {5, 0, 3, 2}), chosen, last);
    const std::vector<int32_t> ids =
        shards == 1 ? std::vector<int32_t>{10, 11, 12, 13} : std::vector<int32_t>{110, 3, 12, 7};
    for (size_t row = 0; row < 4; ++row) EXPECT_EQ(chosen[row].id, ids[row]);
    EXPECT_EQ(chosen[1].logit, shards == 1 ? 0 : 2.5F);
    EXPECT_EQ(ints_of(last), (std::vector<int32_t>{ids[1], -1, ids[3], ids[2], -1, ids[0]}));
  }
}

TEST_P(Seats, AWinnerWhoseSeatIsMinusOneIsKeptNowhere) {
  const std::vector<Candidate> gathered{{1, 10, 0}, {2, 11, 0}, {3, 12, 0}};
  std::vector<Candidate> chosen(3);
  Tensor last = int_tensor(device(), {-5, -6});
  ops().choose(gathered, int_tensor(device(), {-1, 1, -1}), chosen, last);
  for (size_t row = 0; row < 3; ++row) EXPECT_EQ(chosen[row].id, gathered[row].id);
  EXPECT_EQ(ints_of(last), (std::vector<int32_t>{-5, 11}));
}

}  // namespace
}  // namespace maniple
