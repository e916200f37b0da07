#include <kernels/reference/rows.hpp>
#include <launch/tools/bench/messages.hpp>

#include <algorithm>
#include <chrono>
#include <numeric>

namespace maniple {
namespace {

using Clock = std::chrono::steady_clock;

// Every type holds the whole numbers up to this one.
constexpr int most_exact = 256;
constexpr float never_sent = most_exact;

// What a rank sends where nothing is added: below most_exact, and different for neighbouring ranks.
float sent_by(int rank, int64_t i) { return static_cast<float>((int64_t{31} * rank + i) % 251); }

// What a rank adds to a sum that stays below most_exact for any number of ranks.
float added_by(int rank, int64_t i, int ranks) {
  const int64_t turn = rank + i;
  if (ranks > most_exact / 2) return turn % ranks <= i % (most_exact / 2) ? 1 : 0;
  return static_cast<float>(turn % (most_exact / ranks));
}

// The sum of added_by over the ranks. It repeats after so many elements.
std::vector<float> sums_of(int ranks) {
  std::vector<float> sums;
  for (int i = 0; i < (ranks > most_exact / 2 ? most_exact / 2 : most_exact / ranks); ++i) {
    float sum = 0;
    for (int rank = 0; rank < ranks; ++rank) sum += added_by(rank, i, ranks);
    sums.push_back(sum);
  }
  return sums;
}

}  // namespace

Messages::Messages(Communicator& group, Backend& backend, DType type, int64_t most)
    : group_(group),
      backend_(backend),
      type_(type),
      whole_(*backend.device, type, {most}),
      other_(*backend.device, type, {most}) {}

std::vector<int64_t> Messages::parts(int64_t count) const {
  std::vector<int64_t> parts;
  for (int64_t rank = 0; rank < ranks(); ++rank)
    parts.push_back(count * (rank + 1) / ranks() - count * rank / ranks());
  return parts;
}

void Messages::run(CommOp op, int64_t count, std::span<const int64_t> parts) {
  const int me = group_.rank(), next = (me + 1) % ranks(), previous = (me + ranks() - 1) % ranks();
  const TensorView whole = whole_.view().rows(0, count);
  const TensorView part = other_.view().rows(0, parts[static_cast<size_t>(me)]);
  switch (op) {
    case CommOp::all_reduce:
      return group_.all_reduce(whole);
    case CommOp::all_gather:
      return group_.all_gatherv(part, whole, parts);
    case CommOp::reduce_scatter:
      return group_.reduce_scatterv(whole, part, parts);
    case CommOp::broadcast:
      return group_.broadcast(whole, 0);
    case CommOp::sendrecv:  // a rank does one of both at a time: if all sent first, all would wait
      if (me % 2 == 0) group_.send(whole, next);
      group_.receive(other_.view().rows(0, count), previous);
      if (me % 2 == 1) group_.send(whole, next);
  }
}

double Messages::time(CommOp op, int64_t count, int calls) {
  const std::vector<int64_t> parts = this->parts(count);
  const auto start = Clock::now();
  for (int call = 0; call < calls; ++call) run(op, count, parts);
  backend_.device->synchronize();
  return std::chrono::duration<double>(Clock::now() - start).count() / calls;
}

// In pieces, because host memory may be short.
template <typename Value>
void Messages::fill(TensorView view, Value value) {
  constexpr int64_t piece = int64_t{1} << 20;
  std::vector<float> values;
  std::vector<std::byte> bytes;
  for (int64_t begin = 0; begin < view.shape[0]; begin += piece) {
    const TensorView place = view.rows(begin, std::min(piece, view.shape[0] - begin));
    values.resize(static_cast<size_t>(place.shape[0]));
    for (size_t i = 0; i < values.size(); ++i) values[i] = value(begin + static_cast<int64_t>(i));
    bytes.resize(place.bytes());
    reference::write(view_of(bytes.data(), type_, place.shape), 0, values);
    backend_.device->upload(place.data, bytes.data(), bytes.size());
  }
}

template <typename Value>
uint64_t Messages::count_differences(TensorView view, Value expected) {
  constexpr int64_t piece = int64_t{1} << 20;
  uint64_t wrong = 0;
  std::vector<std::byte> bytes;
  for (int64_t begin = 0; begin < view.shape[0]; begin += piece) {
    const TensorView place = view.rows(begin, std::min(piece, view.shape[0] - begin));
    bytes.resize(place.bytes());
    backend_.device->download(bytes.data(), place.data, bytes.size());
    const std::vector<float> values =
        reference::read(view_of(bytes.data(), type_, place.shape), 0, place.shape[0]);
    for (size_t i = 0; i < values.size(); ++i)
      if (values[i] != expected(begin + static_cast<int64_t>(i))) ++wrong;
  }
  return wrong;
}

uint64_t Messages::count_wrong(CommOp op, int64_t count) {
  const int me = group_.rank(), previous = (me + ranks() - 1) % ranks();
  const std::vector<int64_t> parts = this->parts(count);
  const auto mine = parts.begin() + me;
  const int64_t first = std::accumulate(parts.begin(), mine, int64_t{0});
  const TensorView whole = whole_.view().rows(0, count), part = other_.view().rows(0, *mine);
  const auto nothing = [](int64_t) { return never_sent; };
  const auto sent = [](int rank, int64_t begin = 0) {
    return [=](int64_t i) { return sent_by(rank, begin + i); };
  };
  const auto added = [&](int64_t i) { return added_by(me, i, ranks()); };
  const std::vector<float> sums = sums_of(ranks());
  const auto summed = [&](int64_t i) { return sums[static_cast<size_t>(i) % sums.size()]; };
  switch (op) {
    case CommOp::all_reduce:
      fill(whole, added);
      run(op, count);
      return count_differences(whole, summed);
    case CommOp::reduce_scatter:
      fill(whole, added);
      fill(part, nothing);
      run(op, count);
      return count_differences(part, [&](int64_t i) { return summed(first + i); });
    case CommOp::all_gather: {
      fill(whole, nothing);
      fill(part, sent(me, first));
      run(op, count);
      uint64_t wrong = 0;
      int64_t begin = 0;
      for (int rank = 0; rank < ranks(); begin += parts[static_cast<size_t>(rank++)])
        wrong += count_differences(whole.rows(begin, parts[static_cast<size_t>(rank)]), sent(rank, begin));
      return wrong;
    }
    case CommOp::broadcast:
      if (me == 0)
        fill(whole, sent(0));
      else
        fill(whole, nothing);
      run(op, count);
      return count_differences(whole, sent(0));
    case CommOp::sendrecv: {
      const TensorView received = other_.view().rows(0, count);
      fill(whole, sent(me));
      fill(received, nothing);
      run(op, count);
      return count_differences(received, sent(previous));
    }
  }
  return 0;
}

}  // namespace maniple
