#include <runtime/checkpoint/chunk_checks.hpp>
#include <runtime/checkpoint/extents.hpp>

#include "checkpoint_testing.hpp"

#include <algorithm>
#include <cstring>
#include <random>

namespace maniple {
namespace {

constexpr size_t item = 2;

// A tensor in chunks, with the checksums of its bytes and of the zeros behind an edge.
struct CutTensor {
  CutTensor(int64_t rows, int64_t columns, int64_t chunk_rows, int64_t chunk_columns, HashKind kind)
      : values(static_cast<size_t>(rows * columns) * item), width(static_cast<size_t>(columns) * item) {
    std::mt19937 random(6);
    for (std::byte& value : values) value = static_cast<std::byte>(random());
    const TensorInfo info{"BF16", DType::bf16, {rows, columns}, values.size()};
    PackedTensor packed{chunk_rows, chunk_columns, {}, {}, kind};
    const int64_t bytes = chunk_rows * chunk_columns * static_cast<int64_t>(item);
    for (int64_t row = 0; row < rows; row += chunk_rows)
      for (int64_t column = 0; column < columns; column += chunk_columns)
        packed.offsets.push_back(4096 + bytes * static_cast<int64_t>(packed.offsets.size()));
    packed.hashes.resize(packed.offsets.size());
    index.files = {{"m.h5", {}}};
    IndexedTensor& tensor = index.tensors["t"];
    tensor = {info, extents_of(info, packed, 0, uint64_t{1} << 30, "t")};
    for (Extent& extent : tensor.extents) {
      StreamHash hash(kind);
      const std::vector<std::byte> zeros(static_cast<size_t>(extent.row_bytes) -
                                         static_cast<size_t>(extent.columns.size()) * item);
      for (int64_t row = extent.rows.begin; row < extent.rows.end; ++row) {
        hash.add(rows_of({row, row + 1}, extent.columns));
        hash.add(zeros);
      }
      extent.hash->value = hash.value();
    }
  }

  std::vector<std::byte> rows_of(IndexRange rows, IndexRange columns) const {
    std::vector<std::byte> bytes;
    for (int64_t row = rows.begin; row < rows.end; ++row) {
      const auto begin =
          values.begin() + static_cast<std::ptrdiff_t>(static_cast<size_t>(row) * width +
                                                       static_cast<size_t>(columns.begin) * item);
      bytes.insert(bytes.end(), begin, begin + columns.size() * static_cast<int64_t>(item));
    }
    return bytes;
  }

  std::vector<std::byte> values;
  size_t width;
  WeightIndex index;
};

// What each rank of a job refuses while it loads.
std::vector<std::string> refusals(const CutTensor& cut, const std::vector<WeightNeeds>& needs, int replicas) {
  std::vector<std::string> refused;
  const std::vector<ReadRound> plan = plan_reads(needs, cut.index, replicas, 4000);
  for (int replica = 0; replica < replicas; ++replica)
    for (int member = 0; member < static_cast<int>(needs.size()); ++member) {
      ChunkChecks checks(cut.index, member, replica, replicas);
      for (const ReadRound& round : plan)
        for (const ReadUnit& unit : round.units)
          for (const Delivery& delivery : unit.deliveries)
            if (std::ranges::count(delivery.to, member) > 0)
              checks.add(unit, delivery, cut.rows_of(unit.rows, delivery.columns));
      try {
        checks.refuse_differences();
      } catch (const Error& error) {
        refused.emplace_back(error.what());
      }
    }
  return refused;
}

enum class Share { all, rows, columns };
std::vector<WeightNeeds> needs_of(Share share, int members, int64_t rows, int64_t columns) {
  std::vector<WeightNeeds> needs;
  for (int member = 0; member < members; ++member) {
    const auto part = [&](int64_t size) {
      return IndexRange{size * member / members, size * (member + 1) / members};
    };
    needs.push_back({{"t", share == Share::rows ? part(rows) : IndexRange{0, rows},
                      share == Share::columns ? part(columns) : IndexRange{0, columns}}});
  }
  return needs;
}

// Cut by rows or columns into 8 or 7 chunks, or whole; shared by the members as the file is cut, or kept by all of them.
TEST(ChunkChecks, ExactlyOneRankRefusesEachDamagedChunkOnAnyGrid) {
  for (const HashKind kind : {HashKind::xxh64, HashKind::xxh3})
    for (const auto& [rows, columns, chunk_rows, chunk_columns] : {std::array<int64_t, 4>{64, 96, 8, 96},
                                                                   {64, 96, 64, 12},
                                                                   {50, 31, 50, 5},
                                                                   {50, 31, 8, 31},
                                                                   {300, 1, 300, 1}})
      for (const int members : {1, 2, 4})
        for (const int replicas : {1, 2, 3, 5}) {
          CutTensor cut(rows, columns, chunk_rows, chunk_columns, kind);
          std::vector<Extent>& extents = cut.index.tensors.at("t").extents;
          const bool even = rows * columns == 64 * 96;
          const Share share = !even ? Share::all : chunk_rows < rows ? Share::rows : Share::columns;
          const std::vector<WeightNeeds> needs = needs_of(share, members, rows, columns);
          SCOPED_TRACE(fmt::format("{} x {} in {} chunks, {} members, {} replicas", rows, columns,
                                   extents.size(), members, replicas));
          EXPECT_TRUE(refusals(cut, needs, replicas).empty());
          for (size_t chunk = 0; chunk < extents.size(); ++chunk) {
            extents[chunk].hash->value ^= 1;
            const std::vector<std::string> refused = refusals(cut, needs, replicas);
            extents[chunk].hash->value ^= 1;
            ASSERT_EQ(refused.size(), 1U) << chunk;
            expect_contains(refused[0], fmt::format("m.h5: tensor t, chunk {}: the checksum differs", chunk));
          }
        }
}

TEST(ChunkChecks, SayNothingOfChunksThatNoRankKeepsWhole) {
  const CutTensor by_columns(64, 96, 64, 48, HashKind::xxh3), by_rows(64, 96, 32, 96, HashKind::xxh3);
  EXPECT_TRUE(refusals(by_columns, needs_of(Share::columns, 4, 64, 96), 2).empty());
  EXPECT_TRUE(refusals(by_rows, needs_of(Share::rows, 4, 64, 96), 2).empty());
}

}  // namespace
}  // namespace maniple
