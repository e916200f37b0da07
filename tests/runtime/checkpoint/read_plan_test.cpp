#include <runtime/checkpoint/read_plan.hpp>

#include "checkpoint_testing.hpp"

#include <runtime/checkpoint/extents.hpp>
#include <runtime/checkpoint/loading/model_config.hpp>
#include <runtime/checkpoint/loading/weight_loader.hpp>
#include <support/rank_plans.hpp>

#include <random>
#include <set>

namespace maniple {
namespace {

std::vector<WeightNeeds> needs_of_model(const std::string& name, const WeightIndex& index, int tensor_size) {
  const ModelConfig config = read_model_config(model_directory(name));
  std::vector<WeightNeeds> needs;
  for (int rank = 0; rank < tensor_size; ++rank)
    needs.push_back(needs_of(*make_stored_model(config, testing::plan_of({rank, tensor_size}), index), index,
                             *scheme_of(config)));
  return needs;
}

uint64_t bytes_of(const std::vector<ReadRound>& plan) {
  uint64_t bytes = 0;
  for (const ReadRound& round : plan)
    for (const ReadUnit& unit : round.units) bytes += unit.bytes();
  return bytes;
}

// By member: the bytes that it keeps, and those that it holds for others.
std::vector<uint64_t> held_in(const ReadRound& round, size_t members) {
  std::vector<uint64_t> held(members);
  for (const ReadUnit& unit : round.units)
    for (const Delivery& delivery : unit.deliveries) {
      std::set<int> holders(delivery.to.begin(), delivery.to.end());
      holders.insert(unit.reader);
      for (const int member : holders) held[member] += unit.bytes(delivery.columns);
    }
  return held;
}

// Every element that a member needs reaches it once, in a slice of the requested
// columns. Every row of an extent of which any member needs a part is read once, and no other row.
void expect_complete(const std::vector<ReadRound>& plan, const std::vector<WeightNeeds>& needs,
                     const WeightIndex& index) {
  using Columns = std::pair<int64_t, int64_t>;
  std::set<std::tuple<const Extent*, int64_t>> needed_rows, read_rows;
  std::set<std::tuple<const IndexedTensor*, int64_t, Columns, int>> needed, got;
  for (size_t member = 0; member < needs.size(); ++member)
    for (const auto& [name, rows, columns] : needs[member])
      for (int64_t row = rows.begin; row < rows.end && columns.size() > 0; ++row) {
        const IndexedTensor* tensor = &index.tensors.at(name);
        for (const Extent& extent : tensor->extents)
          if (extent.rows.contains(row) && columns.begin < extent.columns.end &&
              extent.columns.begin < columns.end)
            needed_rows.emplace(&extent, row);
        needed.emplace(tensor, row, Columns{columns.begin, columns.end}, static_cast<int>(member));
      }
  for (const ReadRound& round : plan)
    for (const ReadUnit& unit : round.units) {
      bool reader_needs_it = false;
      for (int64_t row = unit.rows.begin; row < unit.rows.end; ++row) {
        for (const Extent& extent : unit.extents) {
          EXPECT_TRUE(extent.rows.contains(row));
          EXPECT_TRUE(read_rows.emplace(&extent, row).second) << "row " << row << " is read twice";
        }
        for (const auto& [columns, to] : unit.deliveries)
          for (const int member : to) {
            EXPECT_TRUE(got.emplace(unit.tensor, row, Columns{columns.begin, columns.end}, member).second);
            reader_needs_it |= member == unit.reader;
          }
      }
      EXPECT_TRUE(reader_needs_it);
    }
  EXPECT_TRUE(read_rows == needed_rows);
  EXPECT_TRUE(got == needed);
}

TEST(ReadPlan, ReadsEveryByteOfAModelOnceOnEveryGrid) {
  for (const std::string name :
       {"tiny-qwen3", "tiny-qwen3-kv1", "tiny-llama3", "tiny-qwen2", "shakespeare"}) {
    const WeightIndex index = read_index(model_directory(name));
    uint64_t stored = 0;
    for (const auto& [tensor, where] : index.tensors) stored += where.info.byte_size;
    const int64_t heads = read_model_config(model_directory(name)).num_heads;
    for (const int tensor_size : {1, 2, 4, 8}) {
      if (heads % tensor_size != 0) continue;
      const std::vector<WeightNeeds> needs = needs_of_model(name, index, tensor_size);
      for (const uint64_t round_bytes : {uint64_t{3000}, uint64_t{100'000}, uint64_t{1} << 20}) {
        SCOPED_TRACE(fmt::format("{} tp {} rounds of {}", name, tensor_size, round_bytes));
        const std::vector<ReadRound> plan = plan_reads(needs, index, 2, round_bytes);
        EXPECT_EQ(bytes_of(plan), stored);
        expect_complete(plan, needs, index);
      }
    }
  }
}

WeightIndex index_of(const std::vector<std::vector<int64_t>>& shapes) {
  WeightIndex index{{{"f", {}}}, {}};
  uint64_t end = 8;
  for (size_t i = 0; i < shapes.size(); ++i) {
    uint64_t bytes = 2;
    for (const int64_t size : shapes[i]) bytes *= static_cast<uint64_t>(size);
    const TensorInfo info{"BF16", DType::bf16, shapes[i], bytes};
    index.tensors[fmt::format("t{}", i)] = {info, whole_extent(info, 0, end)};
    end += bytes;
  }
  return index;
}

IndexRange random_part(int64_t size, std::mt19937& random) {
  const auto begin = static_cast<int64_t>(random() % static_cast<uint64_t>(size));
  return {begin, begin + static_cast<int64_t>(random() % static_cast<uint64_t>(size - begin + 1))};
}

// More than models need: overlapping parts, different parts of the same rows, no parts at all.
TEST(ReadPlan, ServesAnyBoxesWithinItsLimits) {
  std::mt19937 random(1);
  const WeightIndex index = index_of({{40, 30}, {7}, {300, 5}, {1, 2000}, {64, 64}});
  for (int trial = 0; trial < 200; ++trial) {
    std::vector<WeightNeeds> needs(1 + random() % 6);
    for (WeightNeeds& boxes : needs)
      for (const auto& [name, tensor] : index.tensors)
        for (uint32_t count = random() % 4; count > 0; --count)
          boxes.push_back({name, random_part(tensor.info.shape[0], random),
                           random_part(tensor.info.shape.size() > 1 ? tensor.info.shape[1] : 1, random)});
    const std::vector<ReadRound> plan = plan_reads(needs, index, 3, 2000);
    expect_complete(plan, needs, index);
    for (const ReadRound& round : plan) {
      const uint64_t most = std::ranges::max(held_in(round, needs.size()));
      EXPECT_TRUE(most <= 2000 || (round.units.size() == 1 && round.units[0].rows.size() == 1)) << most;
    }
  }
}

// Chunks of rows or of columns, some wider than what is left for the last one.
WeightIndex cut_index_of(const std::vector<std::vector<int64_t>>& shapes, int64_t parts) {
  WeightIndex index = index_of(shapes);
  uint64_t end = user_block_bytes;
  bool by_rows = false;
  for (auto& [name, tensor] : index.tensors) {
    const StoredMatrix matrix = matrix_of(tensor.info);
    by_rows = !by_rows;
    PackedTensor packed{matrix.rows, matrix.columns, {}, {}};
    int64_t& cut = by_rows ? packed.chunk_rows : packed.chunk_columns;
    const int64_t size = cut;
    cut = (size + parts - 1) / parts;
    for (int64_t at = 0; at < size; at += cut) {
      packed.offsets.push_back(static_cast<int64_t>(end));
      packed.hashes.push_back(0);
      end += static_cast<uint64_t>(packed.chunk_rows * packed.chunk_columns) * matrix.item_bytes;
    }
    tensor.extents = extents_of(tensor.info, packed, 0, end, name);
  }
  return index;
}

TEST(ReadPlan, ServesAnyBoxesOfTensorsInChunks) {
  std::mt19937 random(2);
  for (int trial = 0; trial < 200; ++trial) {
    const WeightIndex index =
        cut_index_of({{40, 30}, {64, 7}, {300, 5}, {3, 2000}, {64, 64}}, 1 + random() % 9);
    std::vector<WeightNeeds> needs(1 + random() % 6);
    for (WeightNeeds& boxes : needs)
      for (const auto& [name, tensor] : index.tensors)
        for (uint32_t count = random() % 4; count > 0; --count)
          boxes.push_back(
              {name, random_part(tensor.info.shape[0], random), random_part(tensor.info.shape[1], random)});
    expect_complete(plan_reads(needs, index, 3, 2000), needs, index);
  }
}

TEST(ReadPlan, GivesEachTensorRankUnitsOfItsOwnChunks) {
  const WeightIndex index = cut_index_of({{64, 64}, {64, 64}}, 8);  // by rows; by columns
  for (const int ranks : {1, 2, 4, 8}) {
    std::vector<WeightNeeds> needs;
    for (int rank = 0; rank < ranks; ++rank) {
      const IndexRange part{rank * 64 / ranks, (rank + 1) * 64 / ranks};
      needs.push_back({{"t0", part, {0, 64}}, {"t1", {0, 64}, part}});
    }
    const std::vector<ReadRound> plan = plan_reads(needs, index, 1);
    expect_complete(plan, needs, index);
    for (const ReadRound& round : plan)
      for (const ReadUnit& unit : round.units) {
        ASSERT_EQ(unit.deliveries.size(), 1u);
        EXPECT_EQ(unit.bytes(), unit.bytes(unit.deliveries[0].columns))
            << "bytes are read that it does not need";
      }
  }
}

TEST(ReadPlan, LetsReplicasTakeTurnsUpToSixteen) {
  const WeightIndex index = index_of({{1000, 10}});
  const WeightNeeds needs[] = {{{"t0", {0, 1000}, {0, 10}}}};
  for (const int replicas : {1, 2, 3, 16, 17, 400}) {
    const std::vector<ReadRound> plan = plan_reads(needs, index, replicas, 400);
    ASSERT_EQ(plan.size(), 50u);
    for (size_t round = 0; round < plan.size(); ++round)
      EXPECT_EQ(plan[round].replica, static_cast<int>(round) % std::min(replicas, 16)) << replicas;
  }
}

// Halves of rows, columns and whole tensors: each member reads its half, and no round is one member's alone.
TEST(ReadPlan, LetsAllPlacesReadAtTheSamePace) {
  const WeightIndex index = index_of({{4096, 64}, {512, 512}, {64}, {4096, 64}});
  std::vector<WeightNeeds> needs;
  for (const int64_t half : {0, 1})
    needs.push_back({{"t0", {half * 2048, half * 2048 + 2048}, {0, 64}},
                     {"t1", {0, 512}, {half * 256, half * 256 + 256}},
                     {"t2", {0, 64}, {0, 1}},
                     {"t3", {half * 2048, half * 2048 + 2048}, {0, 64}}});
  uint64_t read[2] = {};
  const std::vector<ReadRound> plan = plan_reads(needs, index, 1, 65536);
  EXPECT_GT(plan.size(), 10u);
  for (const ReadRound& round : plan)
    for (const ReadUnit& unit : round.units) {
      read[unit.reader] += unit.bytes();
      EXPECT_LE(std::max(read[0], read[1]) - std::min(read[0], read[1]), 2u * 16384u);
    }
}

}  // namespace
}  // namespace maniple
