#include <kernels/reference/noise.hpp>
#include <kernels/reference/rows.hpp>
#include <parallel/collectives.hpp>
#include <parallel/subset_transport.hpp>
#include <runtime/checkpoint/chunk_checks.hpp>
#include <runtime/checkpoint/weight_loader.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <functional>
#include <future>
#include <ranges>
#include <utility>

namespace maniple {
namespace {

void write_random(uint64_t seed, const WeightPiece& piece, IndexRange rows, BFloat16* values) {
  if (piece.source_shape.rank() == 1) {
    std::fill_n(values, rows.size(), BFloat16(piece.source.ends_with(".bias") ? 0.0F : 1.0F));
    return;
  }
  uint64_t name = seed;
  for (const char c : piece.source) name = split_mix(name ^ static_cast<unsigned char>(c));
  const int64_t width = piece.source_shape[1];
  const float spread = std::sqrt(3.0F / static_cast<float>(width));  // uniform, variance 1 / width
  for (int64_t row = rows.begin; row < rows.end; ++row)
    for (int64_t column = piece.columns.begin; column < piece.columns.end; ++column) {
      const uint64_t bits = split_mix(name + static_cast<uint64_t>(row * width + column));
      *values++ = BFloat16(spread * (static_cast<float>(bits >> 40) * 0x1p-23F - 1.0F));
    }
}

// raw with the columns of its local rows; where some are padding, in `memory`.
ConstTensorView padded_columns(ConstTensorView raw, const ColumnPadding& padding,
                               std::vector<std::byte>& memory) {
  if (padding.run == padding.padded) return raw;
  const Shape shape{raw.shape[0], padding.local(raw.shape[1])};
  const size_t run = static_cast<size_t>(padding.run) * size_of(raw.dtype),
               padded = static_cast<size_t>(padding.padded) * size_of(raw.dtype);
  memory.resize(static_cast<size_t>(shape.elements()) * size_of(raw.dtype));
  for (size_t from = 0, to = 0; from < raw.bytes(); from += run, to += padded)
    std::memcpy(&memory[to], raw.data + from, run);
  return view_of(memory.data(), raw.dtype, shape);
}

// raw: rows of the piece, from row `row` of its source on.
void store(Ops& ops, Parameter& parameter, const WeightPiece& piece, int64_t row, ConstTensorView raw) {
  const int64_t local_row = piece.local_row + row - piece.rows.begin;
  if (parameter.spec.role == WeightRole::matrix) {
    std::vector<std::byte> padded;
    return ops.pack(parameter.matrix, local_row, padded_columns(raw, piece.padding, padded));
  }
  const std::vector<float> wide = reference::read(raw, 0, raw.shape.elements());
  const TensorView rows = parameter.vector.view().rows(local_row, raw.shape[0]);
  ops.device().upload(rows.data, reinterpret_cast<const std::byte*>(wide.data()), rows.bytes());
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
  Loader(Model& model, Ops& ops, const WeightIndex& index, Transport& transport,
         std::span<const std::vector<int>> replicas, std::atomic<uint32_t>& blocks)
      : ops_(ops), index_(index), transport_(transport), blocks_(blocks), files_(index.files.size()) {
    for (size_t replica = 0; replica < replicas.size(); ++replica) {
      const auto me = std::ranges::find(replicas[replica], transport.rank());
      if (me == replicas[replica].end()) continue;
      replica_ = static_cast<int>(replica);
      member_ = static_cast<int>(me - replicas[replica].begin());
      ranks_ = replicas[replica];
    }
    for (const std::vector<int>& ranks : replicas) data_group_.push_back(ranks.at(member_));
    checks_.emplace(index, member_, replica_, static_cast<int>(replicas.size()));
    name_as_stored(model, index);
    for (Parameter* parameter : model.parameters())
      for (const WeightPiece& piece : parameter->spec.pieces)
        pieces_.emplace(&index.tensors.at(piece.source), std::pair(parameter, &piece));
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
    if (failure_) std::rethrow_exception(failure_);
  }

  uint64_t bytes_read() const { return bytes_read_; }

 private:
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

  void read(Slices& slices) {
    for (const ReadUnit& unit : slices.round->units) {
      if (unit.reader != member_) continue;
      bytes_read_ += unit.bytes();
      const std::span<std::byte> first = slices.of.at(&unit.deliveries[0]);
      if (unit.extents.size() == 1 && unit.deliveries.size() == 1 && first.size() == unit.bytes()) {
        read_rows(unit, unit.extents[0], first);
        continue;
      }
      for (const Extent& extent : unit.extents) {
        whole_rows_.resize(static_cast<size_t>(unit.rows.size() * extent.row_bytes));
        read_rows(unit, extent, whole_rows_);
        for (const Delivery& delivery : unit.deliveries)
          cut_columns(unit, extent, delivery.columns, slices.of.at(&delivery));
      }
    }
  }

  void read_rows(const ReadUnit& unit, const Extent& extent, std::span<std::byte> out) {
    std::optional<InputFile>& file = files_[extent.file];
    if (!file) file.emplace(open_same(index_.files[extent.file]));
    file->read(
        extent.offset + static_cast<uint64_t>((unit.rows.begin - extent.rows.begin) * extent.row_bytes), out);
  }

  // whole_rows_: of the extent.
  void cut_columns(const ReadUnit& unit, const Extent& extent, IndexRange columns,
                   std::span<std::byte> out) const {
    const size_t rows = static_cast<size_t>(unit.rows.size()), item = size_of(*unit.tensor->info.dtype);
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
        checks_->add(unit, delivery, slices.of.at(&delivery));
        const ConstTensorView raw = view_of(slices.of.at(&delivery).data(), *unit.tensor->info.dtype,
                                            {unit.rows.size(), delivery.columns.size()});
        const auto [begin, end] = pieces_.equal_range(unit.tensor);
        for (auto entry = begin; entry != end; ++entry) {
          const auto& [parameter, piece] = entry->second;
          if (piece->columns != delivery.columns || !piece->rows.contains(unit.rows.begin)) continue;
          maniple::store(ops_, *parameter, *piece, unit.rows.begin, raw);
          ++blocks_;
        }
      }
  }

  Ops& ops_;
  const WeightIndex& index_;
  Transport& transport_;
  std::atomic<uint32_t>& blocks_;
  int replica_ = 0, member_ = 0;
  std::vector<int> ranks_, data_group_;  // of this replica; of this member in all replicas
  std::multimap<const IndexedTensor*, std::pair<Parameter*, const WeightPiece*>> pieces_;
  std::vector<std::optional<InputFile>> files_;  // opened when this rank first reads them
  std::vector<std::byte> whole_rows_;
  uint64_t bytes_read_ = 0;
  std::optional<ChunkChecks> checks_;
  std::exception_ptr failure_;
};

}  // namespace

Readers readers_of(Model& whole, int replicas) {
  Readers readers;
  std::vector<int64_t> elements(static_cast<size_t>(std::min(replicas, max_reading_replicas)));
  for (const Parameter* parameter : whole.parameters()) {
    const WeightSpec& spec = parameter->spec;
    const auto shared = std::ranges::find_if(
        spec.pieces, [&](const WeightPiece& piece) { return readers.contains(piece.source); });
    const int reader = shared != spec.pieces.end()
                           ? readers.at(shared->source)  // tied weights
                           : static_cast<int>(std::ranges::min_element(elements) - elements.begin());
    elements[static_cast<size_t>(reader)] += spec.rows * spec.columns;
    for (const WeightPiece& piece : spec.pieces)
      require(readers.emplace(piece.source, reader).first->second == reader,
              "two replicas read what goes into one parameter");
  }
  return readers;
}

WeightNeeds needs_of(Model& model, const WeightIndex& index, const Readers& readers, int replica) {
  name_as_stored(model, index);
  WeightNeeds needs;
  for (const Parameter* parameter : model.parameters())
    for (const WeightPiece& piece : parameter->spec.pieces)
      if (readers.empty() || readers.at(piece.source) == replica)
        needs.push_back({piece.source, piece.rows, piece.columns});
  return needs;
}

size_t weight_bytes(Model& model, DType weight_type) {
  size_t bytes = 0;
  for (const Parameter* parameter : model.parameters()) {
    const WeightSpec& spec = parameter->spec;
    bytes += static_cast<size_t>(spec.rows * spec.columns) * size_of(spec.type(weight_type));
  }
  return bytes;
}

size_t make_weights(Model& model, Ops& ops, DType weight_type) {
  size_t bytes = 0;
  for (Parameter* parameter : model.parameters()) {
    const WeightSpec& spec = parameter->spec;
    if (spec.role == WeightRole::matrix)
      parameter->matrix = ops.make_weight(spec.type(weight_type), spec.rows, spec.columns, spec.slices);
    else
      parameter->vector = Tensor(ops.device(), DType::fp32, {spec.rows});
    bytes += spec.role == WeightRole::matrix ? parameter->matrix.packed.view().bytes()
                                             : parameter->vector.view().bytes();
  }
  return bytes;
}

void fill_with_random(Model& model, Ops& ops, uint64_t seed, std::atomic<uint32_t>& blocks) {
  constexpr int64_t elements_at_once = int64_t{4} << 20;
  std::vector<BFloat16> values;
  for (Parameter* parameter : model.parameters())
    for (const WeightPiece& piece : parameter->spec.pieces) {
      const int64_t width = piece.columns.size();
      const int64_t most = std::max<int64_t>(32, elements_at_once / std::max<int64_t>(width, 1) / 32 * 32);
      for (int64_t row = piece.rows.begin; row < piece.rows.end; row += most) {
        const IndexRange rows{row, std::min(row + most, piece.rows.end)};
        values.resize(static_cast<size_t>(rows.size() * width));
        write_random(seed, piece, rows, values.data());
        store(ops, *parameter, piece, row, view_of(values.data(), DType::bf16, {rows.size(), width}));
        ++blocks;
      }
    }
}

uint64_t load_weights(Model& model, Ops& ops, const WeightIndex& index, std::span<const ReadRound> plan,
                      Transport& transport, std::span<const std::vector<int>> replicas,
                      std::atomic<uint32_t>& blocks) {
  Loader loader(model, ops, index, transport, replicas, blocks);
  loader.run(plan);
  return loader.bytes_read();
}

void share_weights(Model& model, Communicator& data_group, const Readers& readers,
                   std::atomic<uint32_t>& blocks) {
  for (Parameter* parameter : model.parameters()) {
    const WeightSpec& spec = parameter->spec;
    Tensor& values = spec.role == WeightRole::matrix ? parameter->matrix.packed : parameter->vector;
    data_group.broadcast(values.view(), readers.at(spec.pieces.at(0).source));
    ++blocks;
  }
}

}  // namespace maniple
