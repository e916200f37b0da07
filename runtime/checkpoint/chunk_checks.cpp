#include <runtime/checkpoint/chunk_checks.hpp>

#include <fmt/format.h>

#include <algorithm>

namespace maniple {
namespace {

bool holds(IndexRange columns, const Extent& extent) {
  return columns.begin <= extent.columns.begin && extent.columns.end <= columns.end;
}

// Zeros follow the columns of a chunk that passes the tensor's edge.
void add_columns(StreamHash& hash, const Extent& extent, const IndexRange& columns, size_t item,
                 std::span<const std::byte> slice) {
  const size_t row = static_cast<size_t>(columns.size()) * item,
               from = static_cast<size_t>(extent.columns.begin - columns.begin) * item,
               size = static_cast<size_t>(extent.columns.size()) * item;
  const std::vector<std::byte> zeros(static_cast<size_t>(extent.row_bytes) - size);
  if (size == row && zeros.empty()) return hash.add(slice);
  for (size_t begin = from; begin < slice.size(); begin += row) {
    hash.add(slice.subspan(begin, size));
    hash.add(zeros);
  }
}

}  // namespace

bool ChunkChecks::checks(size_t chunk, const Delivery& delivery) const {
  const auto replicas = static_cast<size_t>(replicas_);
  return chunk % replicas == static_cast<size_t>(replica_) &&
         delivery.to[chunk / replicas % delivery.to.size()] == member_;
}

void ChunkChecks::add(const ReadUnit& unit, const Delivery& delivery, std::span<const std::byte> slice) {
  for (const Extent& extent : unit.extents) {
    const auto chunk = static_cast<size_t>(&extent - unit.tensor->extents.data());
    if (!extent.hash || !holds(delivery.columns, extent) || !checks(chunk, delivery)) continue;
    if (unit.rows.begin == extent.rows.begin)
      begun_.insert_or_assign(&extent, Begun{unit.rows.begin, StreamHash(extent.hash->kind)});
    const auto found = begun_.find(&extent);
    if (found == begun_.end() || found->second.next != unit.rows.begin) continue;
    Begun& begun = found->second;
    add_columns(begun.hash, extent, delivery.columns, unit.tensor->info.item_bytes(), slice);
    begun.next = unit.rows.end;
    if (unit.rows.end != extent.rows.end) continue;
    const bool same = begun.hash.value() == extent.hash->value;
    begun_.erase(found);
    if (same || damaged_) continue;
    damaged_ = unit.tensor;
    damaged_chunk_ = chunk;
  }
}

void ChunkChecks::refuse_differences() const {
  if (!damaged_) return;
  const auto tensor =
      std::ranges::find_if(index_.tensors, [&](const auto& entry) { return &entry.second == damaged_; });
  refuse_checksum(index_.files[damaged_->extents[damaged_chunk_].file].path.string(),
                  fmt::format("tensor {}, chunk {}", tensor->first, damaged_chunk_));
}

}  // namespace maniple
