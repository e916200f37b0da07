#include <runtime/checkpoint/read_plan.hpp>

#include <algorithm>
#include <set>
#include <tuple>

namespace maniple {

namespace {

struct Need {
  int member = 0;
  IndexRange rows, columns;
};
struct NeededTensor {
  const IndexedTensor* tensor = nullptr;
  std::vector<Need> needs;
};

using StoragePlace = std::pair<uint32_t, uint64_t>;  // file, offset
// Of the module's first tensor; the tensor's size and place. Scales come before their codes, so that codes of fused experts need not
// wait for those of all others.
using ReadingPlace = std::tuple<StoragePlace, uint64_t, StoragePlace>;

StoragePlace place_of(const IndexedTensor& tensor) {
  return {tensor.extents[0].file, tensor.extents[0].offset};
}

// A module whose scales came long after its codes would be held in memory for that long.
std::map<std::string_view, StoragePlace> places_of_modules(std::span<const WeightNeeds> needs,
                                                           const WeightIndex& index) {
  std::map<std::string_view, StoragePlace> places;
  for (const WeightNeeds& of_member : needs)
    for (const StoredBox& box : of_member) {
      if (box.rows.size() == 0 || box.columns.size() == 0) continue;
      const StoragePlace place = place_of(index.tensors.at(box.tensor));
      StoragePlace& first = places.try_emplace(module_of(box.tensor), place).first->second;
      first = std::min(first, place);
    }
  return places;
}

std::map<ReadingPlace, NeededTensor> by_tensor(std::span<const WeightNeeds> needs, const WeightIndex& index) {
  std::map<ReadingPlace, NeededTensor> tensors;
  const std::map<std::string_view, StoragePlace> modules = places_of_modules(needs, index);
  for (size_t member = 0; member < needs.size(); ++member)
    for (const StoredBox& box : needs[member]) {
      if (box.rows.size() == 0 || box.columns.size() == 0) continue;
      const IndexedTensor& tensor = index.tensors.at(box.tensor);
      NeededTensor& needed =
          tensors[{modules.at(module_of(box.tensor)), tensor.info.byte_size, place_of(tensor)}];
      needed.tensor = &tensor;
      needed.needs.push_back({static_cast<int>(member), box.rows, box.columns});
    }
  return tensors;
}

std::vector<Delivery> deliveries_of(const std::vector<Need>& needs, int64_t row) {
  std::map<std::pair<int64_t, int64_t>, std::set<int>> members;  // by columns
  for (const Need& need : needs)
    if (need.rows.contains(row)) members[{need.columns.begin, need.columns.end}].insert(need.member);
  std::vector<Delivery> deliveries;
  for (const auto& [columns, to] : members)
    deliveries.push_back({{columns.first, columns.second}, {to.begin(), to.end()}});
  return deliveries;
}

// At most a quarter of a round, and multiples of 32 where possible: whole panels pack fastest.
int64_t rows_of_unit(const ReadUnit& unit, uint64_t round_bytes) {
  const auto rows = static_cast<int64_t>(round_bytes / 4 / unit.row_bytes());
  return rows >= 32 ? rows / 32 * 32 : std::max<int64_t>(rows, 1);
}

// The extents that hold a row, by columns.
std::span<const Extent> extents_at(const IndexedTensor& tensor, int64_t row) {
  const auto first =
      std::ranges::find_if(tensor.extents, [&](const Extent& e) { return e.rows.contains(row); });
  const auto last =
      std::find_if_not(first, tensor.extents.end(), [&](const Extent& e) { return e.rows.contains(row); });
  return {first, last};
}

// One unit for the deliveries that share extents, so that each extent is in one unit at most.
std::vector<ReadUnit> side_by_side(const IndexedTensor& tensor, IndexRange rows,
                                   const std::vector<Delivery>& deliveries) {
  std::vector<ReadUnit> units;
  const std::span<const Extent> extents = extents_at(tensor, rows.begin);
  for (size_t first = 0, last = 0; last < extents.size(); first = ++last) {
    const auto passes_end = [&](const Delivery& d) {
      return d.columns.begin < extents[last].columns.end && extents[last].columns.end < d.columns.end;
    };
    while (std::ranges::any_of(deliveries, passes_end)) ++last;
    ReadUnit unit{&tensor, extents.subspan(first, last + 1 - first), rows, 0, {}};
    const IndexRange columns{extents[first].columns.begin, extents[last].columns.end};
    std::ranges::copy_if(deliveries, std::back_inserter(unit.deliveries),
                         [&](const Delivery& d) { return columns.contains(d.columns.begin); });
    if (!unit.deliveries.empty()) units.push_back(std::move(unit));
  }
  return units;
}

// Cuts where the needs of any member begin or end, and between extents: each member needs all rows of a unit or none.
std::vector<ReadUnit> cut(const NeededTensor& needed, uint64_t round_bytes) {
  std::set<int64_t> cuts;
  for (const Need& need : needed.needs) cuts.insert({need.rows.begin, need.rows.end});
  for (const Extent& extent : needed.tensor->extents) cuts.insert(extent.rows.begin);
  std::vector<ReadUnit> units;
  for (auto begin = cuts.begin(), end = std::next(begin); end != cuts.end(); ++begin, ++end)
    for (ReadUnit& unit : side_by_side(*needed.tensor, {*begin, *end}, deliveries_of(needed.needs, *begin))) {
      const int64_t most = rows_of_unit(unit, round_bytes);
      for (int64_t row = *begin; row < *end; row += most) {
        unit.rows = {row, std::min(row + most, *end)};
        units.push_back(unit);
      }
    }
  return units;
}

// The units, sorted by the bytes that their members get before them: no member waits while another
// gets all of its part.
std::vector<std::pair<uint64_t, ReadUnit>> ordered_units(std::span<const WeightNeeds> needs,
                                                         const WeightIndex& index, uint64_t round_bytes) {
  std::vector<uint64_t> got(needs.size());
  std::vector<std::pair<uint64_t, ReadUnit>> units;
  for (const auto& [where, needed] : by_tensor(needs, index))
    for (ReadUnit& unit : cut(needed, round_bytes)) {
      uint64_t due = 0;
      for (const Delivery& delivery : unit.deliveries)
        for (const int member : delivery.to) {
          due = std::max(due, got[member]);
          got[member] += unit.bytes(delivery.columns);
        }
      units.emplace_back(due, std::move(unit));
    }
  std::ranges::stable_sort(units, {}, [](const auto& unit) { return unit.first; });
  return units;
}

// Of the members that need the unit, the one that has read the fewest bytes.
int reader_of(const ReadUnit& unit, const std::vector<uint64_t>& read) {
  int reader = unit.deliveries[0].to[0];
  for (const Delivery& delivery : unit.deliveries)
    for (const int member : delivery.to)
      if (read[member] < read[reader]) reader = member;
  return reader;
}

// Adds the bytes that each member holds of a unit, to keep or to send on; returns the most that one holds.
uint64_t add_held(const ReadUnit& unit, std::vector<uint64_t>& held) {
  for (const Delivery& delivery : unit.deliveries) {
    for (const int member : delivery.to) held[member] += unit.bytes(delivery.columns);
    if (std::ranges::count(delivery.to, unit.reader) == 0) held[unit.reader] += unit.bytes(delivery.columns);
  }
  return std::ranges::max(held);
}

}  // namespace

std::vector<ReadRound> plan_reads(std::span<const WeightNeeds> needs, const WeightIndex& index, int replicas,
                                  uint64_t round_bytes) {
  std::vector<ReadRound> rounds;
  std::vector<uint64_t> read(needs.size()), held(needs.size());
  for (auto& [due, unit] : ordered_units(needs, index, round_bytes)) {
    unit.reader = reader_of(unit, read);
    read[unit.reader] += unit.bytes();
    if (add_held(unit, held) > round_bytes || rounds.empty()) {
      rounds.push_back({static_cast<int>(rounds.size()) % std::min(replicas, max_reading_replicas), {}});
      held.assign(needs.size(), 0);
      add_held(unit, held);
    }
    rounds.back().units.push_back(std::move(unit));
  }
  return rounds;
}

}  // namespace maniple
