#include <kernels/support/host_memory.hpp>
#include <parallel/collectives.hpp>
#include <parallel/subset_transport.hpp>
#include <runtime/checkpoint/chunk_checks.hpp>
#include <runtime/checkpoint/loading/piece_store.hpp>
#include <runtime/checkpoint/loading/weight_loader.hpp>

#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <functional>
#include <future>
#include <iterator>
#include <utility>

namespace maniple {
namespace {

// Counts a block in the type of a word: so many at a time as a vector register holds.
template <typename Word>
uint64_t count_where_all(std::span<const std::byte> bytes, Word bits) {
  constexpr size_t block = 255;  // what a byte can count
  const size_t words = bytes.size() / sizeof(Word);
  uint64_t found = 0;
  for (size_t begin = 0; begin < words; begin += block) {
    Word some = 0;
    for (size_t i = begin; i < std::min(begin + block, words); ++i) {
      Word word;
      std::memcpy(&word, &bytes[i * sizeof word], sizeof word);
      some = static_cast<Word>(some + ((word & bits) == bits));
    }
    found += some;
  }
  return found;
}

// Numbers whose exponent is all ones; of e4m3 the two codes without a value.
uint64_t count_not_finite(std::span<const std::byte> bytes, std::string_view stored_type) {
  if (stored_type == "BF16") return count_where_all<uint16_t>(bytes, 0x7f80);
  if (stored_type == "F16") return count_where_all<uint16_t>(bytes, 0x7c00);
  if (stored_type == "F32") return count_where_all<uint32_t>(bytes, 0x7f800000);
  if (stored_type == "F8_E4M3") return count_where_all<uint8_t>(bytes, 0x7f);
  return 0;
}

// Whether the files, read once, would fill the memory that the weights need.
bool crowds_memory(const WeightIndex& index) {
  uint64_t stored = 0;
  for (const auto& [name, tensor] : index.tensors) stored += tensor.info.byte_size;
  const auto node =
      static_cast<uint64_t>(::sysconf(_SC_PHYS_PAGES)) * static_cast<uint64_t>(::sysconf(_SC_PAGESIZE));
  return stored > std::min<uint64_t>(node, host_memory().limit) / 2;
}

// The slices of a round on this rank: first those that it keeps, then those that it only sends on.
struct Slices {
  const ReadRound* round = nullptr;
  std::vector<std::byte> bytes;
  size_t kept = 0;
  std::map<const Delivery*, std::span<std::byte>> of;
};

class Loader {
 public:
  Loader(Model& model, Ops& ops, const WeightIndex& index, const QuantScheme& scheme, Transport& transport,
         std::span<const std::vector<int>> replicas, std::atomic<uint32_t>& blocks)
      : index_(index),
        transport_(transport),
        pieces_(model, ops, index, scheme, blocks),
        files_(index.files.size()),
        forgets_(crowds_memory(index)) {
    for (size_t replica = 0; replica < replicas.size(); ++replica) {
      const auto me = std::ranges::find(replicas[replica], transport.rank());
      if (me == replicas[replica].end()) continue;
      replica_ = static_cast<int>(replica);
      member_ = static_cast<int>(me - replicas[replica].begin());
      ranks_ = replicas[replica];
    }
    for (const std::vector<int>& ranks : replicas) {
      data_group_.push_back(ranks.at(member_));
      all_.insert(all_.end(), ranks.begin(), ranks.end());
    }
    for (std::optional<ChunkChecks>* checks : {&checks_, &own_checks_})
      checks->emplace(index, member_, replica_, static_cast<int>(replicas.size()));
  }

  // While one round travels, this replica reads its next one.
  void run(std::span<const ReadRound> plan) {
    SubsetTransport data_group(transport_, data_group_);
    Slices now, next;
    std::future<void> reading;
    auto coming = plan.begin();
    const auto read_next = [&] {
      coming = std::find_if(coming, plan.end(), [&](const ReadRound& r) { return r.replica == replica_; });
      if (coming == plan.end()) return;
      lay_out(*coming++, next);
      if (!failure_) reading = std::async(std::launch::async, [&] { read(next); });
    };
    read_next();
    for (const ReadRound& round : plan) {
      if (round.replica == replica_) {
        if (reading.valid()) attempt([&] { reading.get(); });
        std::swap(now, next);
        read_next();
        hand_on(now);
      } else {
        lay_out(round, now);
      }
      broadcast(data_group, std::span(now.bytes).first(now.kept), round.replica);
      if (!failure_) attempt([&] { store(now); });
    }
    end();
  }

  LoadedBytes loaded() const {
    LoadedBytes loaded{bytes_read_, {}};
    for (const auto& [name, tensor] : index_.tensors) {
      const auto found = not_finite_.find(&tensor);
      uint64_t count = found != not_finite_.end() ? found->second : 0;
      if (transport_.rank() == 0) count += count_not_finite(tensor.value, tensor.info.stored_type);
      if (count > 0) loaded.not_finite[name] = count;
    }
    return loaded;
  }

 private:
  // Other checksums than the file's mean nothing on a rank that got bytes of one that failed.
  void end() {
    SubsetTransport all(transport_, all_);
    const std::vector<std::string> failed = all_gather_bytes(all, failure_ ? "failed" : "");
    if (failure_) std::rethrow_exception(failure_);
    if (!std::ranges::all_of(failed, &std::string::empty)) return;
    own_checks_->refuse_differences();
    checks_->refuse_differences();
  }

  // After a failure nothing more is read or stored, but other ranks still wait for bytes, of any content.
  void attempt(const std::function<void()>& work) {
    try {
      work();
    } catch (...) {
      if (!failure_) failure_ = std::current_exception();
    }
  }

  bool keeps(const Delivery& delivery) const { return std::ranges::count(delivery.to, member_) > 0; }

  void lay_out(const ReadRound& round, Slices& slices) const {
    slices.round = &round;
    slices.of.clear();
    size_t bytes[] = {0, 0};  // only sent on; kept
    const auto for_each_slice = [&](const auto& action) {
      for (const ReadUnit& unit : round.units)
        for (const Delivery& delivery : unit.deliveries)
          if (keeps(delivery) || (round.replica == replica_ && unit.reader == member_))
            action(delivery, unit.bytes(delivery.columns));
    };
    for_each_slice([&](const Delivery& delivery, size_t size) { bytes[keeps(delivery)] += size; });
    slices.kept = bytes[true];
    if (slices.bytes.size() < bytes[0] + bytes[1]) slices.bytes.resize(bytes[0] + bytes[1]);
    size_t begin[] = {slices.kept, 0};
    for_each_slice([&](const Delivery& delivery, size_t size) {
      size_t& next = begin[keeps(delivery)];
      slices.of[&delivery] = std::span(slices.bytes).subspan(std::exchange(next, next + size), size);
    });
  }

  // Nobody else gets a byte of it: its checksums are for the thread that reads, which has time left.
  bool is_own(const ReadUnit& unit) const {
    return data_group_.size() == 1 && unit.deliveries.size() == 1 &&
           unit.deliveries[0].to == std::vector{member_};
  }

  void read(Slices& slices) {
    for (const ReadUnit& unit : slices.round->units) {
      if (unit.reader != member_) continue;
      read(unit, slices);
      if (is_own(unit)) own_checks_->add(unit, unit.deliveries[0], slices.of.at(&unit.deliveries[0]));
    }
  }

  // One copy in a cache is cheaper than a call of the system that scatters short rows.
  void read(const ReadUnit& unit, Slices& slices) {
    bytes_read_ += unit.bytes();
    const std::span<std::byte> first = slices.of.at(&unit.deliveries[0]);
    const bool as_stored =
        unit.deliveries.size() == 1 && unit.extents.size() == 1 && first.size() == unit.bytes();
    const auto count = [&](std::span<const std::byte> bytes) {
      if (!unit.tensor->value.empty()) return;  // rank 0 counts the known ones
      if (const uint64_t found = count_not_finite(bytes, unit.tensor->info.stored_type))
        not_finite_[unit.tensor] += found;
    };
    if (as_stored) {
      read_rows(unit, unit.extents[0], first);
      return count(first);
    }
    for (const Extent& extent : unit.extents) {
      whole_rows_.resize(static_cast<size_t>(unit.rows.size() * extent.row_bytes));
      read_rows(unit, extent, whole_rows_);
      count(whole_rows_);
      for (const Delivery& delivery : unit.deliveries)
        cut_columns(unit, extent, delivery.columns, slices.of.at(&delivery));
    }
  }

  void read_rows(const ReadUnit& unit, const Extent& extent, std::span<std::byte> out) {
    std::optional<InputFile>& file = files_[extent.file];
    if (!file) file.emplace(open_same(index_.files[extent.file]));
    const uint64_t offset =
        extent.offset + static_cast<uint64_t>((unit.rows.begin - extent.rows.begin) * extent.row_bytes);
    file->read(offset, out);
    if (forgets_) file->forget(offset, out.size());
  }

  // whole_rows_: of the extent.
  void cut_columns(const ReadUnit& unit, const Extent& extent, IndexRange columns,
                   std::span<std::byte> out) const {
    const size_t rows = static_cast<size_t>(unit.rows.size()), item = unit.tensor->info.item_bytes();
    const int64_t begin = std::max(columns.begin, extent.columns.begin),
                  end = std::min(columns.end, extent.columns.end);
    if (begin >= end) return;
    const size_t to = static_cast<size_t>(begin - columns.begin) * item, length = out.size() / rows;
    const size_t from = static_cast<size_t>(begin - extent.columns.begin) * item,
                 stored = static_cast<size_t>(extent.row_bytes);
    for (size_t row = 0; row < rows; ++row)
      std::memcpy(&out[row * length + to], &whole_rows_[row * stored + from],
                  static_cast<size_t>(end - begin) * item);
  }

  // Exchanges the slices inside the replica.
  void hand_on(const Slices& slices) {
    std::vector<Outgoing> outgoing;
    std::vector<Incoming> incoming;
    for (const ReadUnit& unit : slices.round->units)
      for (const Delivery& delivery : unit.deliveries) {
        const auto slice = slices.of.find(&delivery);
        if (slice == slices.of.end()) continue;
        if (unit.reader != member_) incoming.push_back({ranks_[unit.reader], slice->second});
        for (const int member : delivery.to)
          if (unit.reader == member_ && member != member_)
            outgoing.push_back({ranks_[member], slice->second});
      }
    transport_.exchange(outgoing, incoming);
  }

  void store(const Slices& slices) {
    for (const ReadUnit& unit : slices.round->units)
      for (const Delivery& delivery : unit.deliveries) {
        if (!keeps(delivery)) continue;
        const std::span<const std::byte> bytes = slices.of.at(&delivery);
        if (!is_own(unit)) checks_->add(unit, delivery, bytes);
        pieces_.take(*unit.tensor, {unit.rows, delivery.columns}, bytes);
      }
  }

  const WeightIndex& index_;
  Transport& transport_;
  PieceStore pieces_;
  int replica_ = 0, member_ = 0;
  std::vector<int> ranks_, data_group_, all_;    // of this replica; of this member in all replicas; of all
  std::vector<std::optional<InputFile>> files_;  // opened when this rank first reads them
  const bool forgets_;                           // what was read, in the system's cache of files
  std::vector<std::byte> whole_rows_;
  uint64_t bytes_read_ = 0;
  std::map<const IndexedTensor*, uint64_t> not_finite_;  // the reading thread's
  std::optional<ChunkChecks> checks_, own_checks_;
  std::exception_ptr failure_;
};

}  // namespace

Readers readers_of(Model& whole, int replicas) {
  Readers readers;
  std::vector<int64_t> elements(static_cast<size_t>(std::min(replicas, max_reading_replicas)));
  for (const Parameter* parameter : whole.parameters()) {
    const WeightSpec& spec = parameter->spec;
    const auto shared = std::ranges::find_if(
        spec.pieces, [&](const WeightPiece& piece) { return readers.contains(piece.source.tensor()); });
    const int reader = shared != spec.pieces.end()
                           ? readers.at(shared->source.tensor())  // tied weights
                           : static_cast<int>(std::ranges::min_element(elements) - elements.begin());
    elements[static_cast<size_t>(reader)] += spec.rows * spec.columns;
    for (const WeightPiece& piece : spec.pieces)
      require(readers.emplace(piece.source.tensor(), reader).first->second == reader,
              "two replicas read what goes into one parameter");
  }
  return readers;
}

WeightNeeds needs_of(Model& model, const WeightIndex& index, const QuantScheme& scheme,
                     const Readers& readers, int replica) {
  WeightNeeds needs;
  for (const Parameter* parameter : model.parameters())
    for (const WeightPiece& piece : parameter->spec.pieces) {
      if (!readers.empty() && readers.at(piece.source.tensor()) != replica) continue;
      std::ranges::move(
          stored_weight(scheme, parameter->spec, piece, &index)->needs({piece.rows, piece.columns}),
          std::back_inserter(needs));
    }
  return needs;
}

size_t make_weights(Model& model, Ops& ops, DType weight_type, const QuantScheme& scheme,
                    const WeightIndex* index) {
  size_t bytes = 0;
  for (Parameter* parameter : model.parameters()) {
    const WeightSpec& spec = parameter->spec;
    if (spec.role == WeightRole::vector) {
      parameter->vector = zeroed(ops.device(), DType::fp32, {spec.rows});
      bytes += parameter->vector.view().bytes();
      continue;
    }
    const PlannedWeight planned = planned_weight(scheme, spec, weight_type, index);
    parameter->matrix = ops.make_weight(planned.shape);
    parameter->matrix.input_scale = planned.quantization.input_scale;
    if (planned.shape.ordered) {
      const int32_t* const order =
          &planned.quantization.order[static_cast<size_t>(planned.shape.first_column)];
      const TensorView to = parameter->matrix.order;
      ops.device().upload(to.data, reinterpret_cast<const std::byte*>(order), to.bytes());
    }
    bytes += parameter->matrix.bytes();
  }
  return bytes;
}

LoadedBytes load_weights(Model& model, Ops& ops, const WeightIndex& index, const QuantScheme& scheme,
                         std::span<const ReadRound> plan, Transport& transport,
                         std::span<const std::vector<int>> replicas, std::atomic<uint32_t>& blocks) {
  Loader loader(model, ops, index, scheme, transport, replicas, blocks);
  loader.run(plan);
  return loader.loaded();
}

void share_weights(Model& model, Communicator& data_group, const Readers& readers,
                   std::atomic<uint32_t>& blocks) {
  for (Parameter* parameter : model.parameters()) {
    Weight& matrix = parameter->matrix;
    const int reader = readers.at(parameter->spec.pieces.at(0).source.tensor());
    for (Tensor* tensor : {&parameter->vector, &matrix.packed, &matrix.scales, &matrix.zero_points})
      if (*tensor) data_group.broadcast(tensor->view(), reader);
    ++blocks;
  }
}

}  // namespace maniple
