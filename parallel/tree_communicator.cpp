#include <parallel/collectives.hpp>
#include <parallel/split_rows.hpp>
#include <parallel/tree_communicator.hpp>

#include <bit>
#include <numeric>

namespace maniple {

namespace {

// Bytes. The time of a smaller sum depends on the number of messages, that of a larger one on the bytes that
// each rank moves and adds.
constexpr size_t small_sum = size_t{16} << 10;

std::span<const std::byte> bytes_of(ConstTensorView x) { return {x.data, x.bytes()}; }
std::span<std::byte> bytes_of(TensorView x) { return {x.data, x.bytes()}; }

}  // namespace

TreeCommunicator::TreeCommunicator(std::unique_ptr<Transport> transport, Ops& ops, std::string sums)
    : transport_(std::move(transport)),
      ops_(ops),
      rank_(transport_->rank()),
      size_(transport_->size()),
      sums_(std::move(sums)),
      levels_(tree_levels(size_)) {}

void TreeCommunicator::all_reduce(TensorView x) {
  if (size_ == 1 || x.empty()) return;
  if (x.bytes() > small_sum)
    sum_in_parts(x);
  else if (std::has_single_bit(static_cast<unsigned>(size_)))
    exchange_partial_sums(x);
  else
    gather_and_sum(x);
}

// Recursive doubling: both partners compute lower + upper, a node of the tree.
void TreeCommunicator::exchange_partial_sums(TensorView x) {
  const TensorView other = scratch(x.dtype, x.shape);
  for (int distance = 1; distance < size_; distance *= 2) {
    const int partner = rank_ ^ distance;
    const Outgoing outgoing{partner, bytes_of(x)};
    const Incoming incoming{partner, bytes_of(other)};
    transport_->exchange({&outgoing, 1}, {&incoming, 1});
    if (rank_ < partner)
      ops_.add(x, other, x);
    else
      ops_.add(other, x, x);
  }
}

void TreeCommunicator::gather_and_sum(TensorView x) {
  const int64_t elements = x.shape.elements();
  const TensorView flat = x.reshaped({elements}), slots = scratch(x.dtype, {size_, elements});
  std::vector<ConstTensorView> parts;
  std::vector<std::span<std::byte>> places;
  for (int peer = 0; peer < size_; ++peer) {
    const TensorView part = peer == rank_ ? flat : stacked_part(slots, peer, flat.shape);
    parts.push_back(part);
    places.push_back(bytes_of(part));
  }
  maniple::all_gather(*transport_, places);
  sum(parts, slots, flat);
}

// Each rank sums one part of x; an all-gather distributes the parts.
void TreeCommunicator::sum_in_parts(TensorView x) {
  const TensorView flat = x.reshaped({x.shape.elements()});
  const std::vector<int64_t> counts = equal_parts(x);
  const TensorView mine = split_rows(flat, counts)[rank_];
  reduce_scatterv(flat, mine, counts);
  all_gatherv(mine, flat, counts);
}

// Adds parts[r] of all ranks r along the tree. slots [size, ...] holds partial sums; out may be one of parts.
void TreeCommunicator::sum(std::vector<ConstTensorView>& parts, TensorView slots, TensorView out) {
  for (const auto& level : levels_) {
    for (const TreeAddition& addition : level) {
      const TensorView target = &level == &levels_.back() ? out : stacked_part(slots, addition.to, out.shape);
      ops_.add(parts[addition.to], parts[addition.from], target);
      parts[addition.to] = target;
    }
  }
}

void TreeCommunicator::all_gatherv(ConstTensorView in, TensorView out, std::span<const int64_t> rows) {
  const std::vector<TensorView> parts = split_rows(out, in, rows, rank_, size_);
  copy(in, parts[rank_]);
  std::vector<std::span<std::byte>> places;
  for (const TensorView& part : parts) places.push_back(bytes_of(part));
  maniple::all_gather(*transport_, places);
}

void TreeCommunicator::reduce_scatterv(ConstTensorView in, TensorView out, std::span<const int64_t> rows) {
  const std::vector<ConstTensorView> mine = split_rows(in, out, rows, rank_, size_);
  const TensorView slots = scratch(in.dtype, {size_, out.shape.elements()});
  std::vector<ConstTensorView> parts;
  std::vector<Outgoing> outgoing;
  std::vector<Incoming> incoming;
  for (int peer = 0; peer < size_; ++peer) {
    const TensorView slot = stacked_part(slots, peer, out.shape);
    parts.push_back(peer == rank_ ? mine[peer] : slot);
    if (peer == rank_) continue;
    outgoing.push_back({peer, bytes_of(mine[peer])});
    incoming.push_back({peer, bytes_of(slot)});
  }
  transport_->exchange(outgoing, incoming);
  if (out.empty()) return;
  if (size_ == 1)
    copy(in, out);
  else
    sum(parts, slots, out);
}

void TreeCommunicator::all_to_all(ConstTensorView in, TensorView out) {
  require(exchangeable(in, out, size_), "all_to_all: the tensors are not [size, ...] alike");
  if (in.empty()) return;
  std::vector<Outgoing> outgoing;
  std::vector<Incoming> incoming;
  for (int peer = 0; peer < size_; ++peer) {
    if (peer == rank_) continue;
    outgoing.push_back({peer, bytes_of(in.rows(peer, 1))});
    incoming.push_back({peer, bytes_of(out.rows(peer, 1))});
  }
  copy(in.rows(rank_, 1), out.rows(rank_, 1));
  transport_->exchange(outgoing, incoming);
}

void TreeCommunicator::broadcast(TensorView x, int root) {
  maniple::broadcast(*transport_, bytes_of(x), root);
}

void TreeCommunicator::send(ConstTensorView x, int to) {
  require(to != rank_, "a rank sends to itself");
  const Outgoing outgoing{to, bytes_of(x)};
  transport_->exchange({&outgoing, 1}, {});
}

void TreeCommunicator::receive(TensorView x, int from) {
  require(from != rank_, "a rank receives from itself");
  const Incoming incoming{from, bytes_of(x)};
  transport_->exchange({}, {&incoming, 1});
}

std::vector<int64_t> TreeCommunicator::equal_parts(ConstTensorView x) const {
  const int64_t elements = x.shape.elements();
  std::vector<int64_t> counts;
  for (int peer = 0; peer < size_; ++peer)
    counts.push_back(elements * (peer + 1) / size_ - elements * peer / size_);
  return counts;
}

void TreeCommunicator::copy(ConstTensorView from, TensorView to) {
  if (from.data != to.data && !from.empty()) ops_.device().copy(to.data, from.data, from.bytes());
}

TensorView TreeCommunicator::scratch(DType dtype, const Shape& shape) {
  const int64_t bytes = shape.elements() * static_cast<int64_t>(size_of(dtype));
  if (scratch_.shape().elements() < bytes) scratch_ = Tensor(ops_.device(), DType::uint8, {bytes});
  return {scratch_.view().data, dtype, shape};
}

}  // namespace maniple
