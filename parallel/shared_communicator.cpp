#include <kernels/support/check.hpp>
#include <kernels/support/number_text.hpp>
#include <kernels/support/quantile.hpp>
#include <parallel/collectives.hpp>
#include <parallel/shared_communicator.hpp>
#include <parallel/split_rows.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <chrono>

namespace maniple {

namespace {

constexpr int64_t divided_up(int64_t a, int64_t b) { return (a + b - 1) / b; }

template <typename View>
View flat(View x) {
  return x.reshaped({x.shape.elements()});
}

// Of the pieces of `size` elements; empty behind the last one.
template <typename View>
View piece_of(View x, int64_t piece, int64_t size) {
  const int64_t begin = std::min(piece * size, x.shape[0]);
  return x.rows(begin, std::min(size, x.shape[0] - begin));
}

std::vector<int64_t> elements_of(std::span<const int64_t> rows, ConstTensorView x) {
  std::vector<int64_t> counts(rows.begin(), rows.end());
  for (int64_t& count : counts) count *= x.shape.row_elements();
  return counts;
}

}  // namespace

SharedCommunicator::SharedCommunicator(std::unique_ptr<Transport> transport, Ops& ops, SharedMemory memory,
                                       Backoff::Spin spin, const SumWays& ways)
    : TreeCommunicator(std::move(transport), ops), memory_(std::move(memory)), spin_(spin), ways_(ways) {}

TensorView SharedCommunicator::slot(int rank, uint64_t epoch, int64_t begin, ConstTensorView like) {
  std::byte* const first = memory_.get() + rank * bytes_of_rank + 4096 + epoch % slots * slot_bytes;
  return {first + static_cast<size_t>(begin) * size_of(like.dtype), like.dtype, like.shape};
}

void SharedCommunicator::wait_for(std::atomic<uint64_t> Flags::*flag, uint64_t epochs) {
  Backoff backoff(spin_);
  for (int peer = 0; peer < size(); ++peer)
    while ((flags(peer).*flag).load(std::memory_order_acquire) < epochs) {
      backoff.pause();
      transport().poll();
    }
}

template <typename Fill, typename Use>
void SharedCommunicator::for_pieces(int64_t pieces, size_t bytes, Fill fill, Use use) {
  Flags& mine = flags(rank());
  for (int64_t piece = 0; piece <= pieces; ++piece) {
    if (piece < pieces) {
      const uint64_t ahead = epoch_ + (piece > 0 ? 1 : 0);
      fill(piece, ahead);
      mine.bytes[ahead % slots].store(bytes, std::memory_order_relaxed);
      mine.filled.store(ahead + 1, std::memory_order_release);
    }
    if (piece == 0) continue;
    wait_for(&Flags::filled, epoch_ + 1);
    for (int peer = 0; peer < size(); ++peer)
      if (const uint64_t its = flags(peer).bytes[epoch_ % slots].load(std::memory_order_relaxed);
          its != bytes)
        fail(ExitCode::fault, "rank {} of a group shares {} bytes and rank {} shares {}", rank(), bytes, peer,
             its);
    use(piece - 1, epoch_++);
  }
}

void SharedCommunicator::all_reduce(TensorView x) {
  if (x.empty()) return;
  const SumWay way = ways_.of(x.bytes());
  if (way == SumWay::messages) return TreeCommunicator::all_reduce(x);
  if (way == SumWay::one_shot) return sum_in_one_shot(flat(x));
  const std::vector<int64_t> counts = equal_parts(x);
  const TensorView all = flat(x);
  sum_in_parts(all, split_rows(all, counts)[rank()], all, counts);
}

void SharedCommunicator::sum_in_one_shot(TensorView x) {
  const auto size_of_piece = static_cast<int64_t>(slot_bytes / size_of(x.dtype));
  for_pieces(
      divided_up(x.shape[0], size_of_piece), x.bytes(),
      [&](int64_t piece, uint64_t epoch) {
        const TensorView from = piece_of(x, piece, size_of_piece);
        copy(from, slot(rank(), epoch, 0, from));
      },
      [&](int64_t piece, uint64_t epoch) {
        const TensorView sum = piece_of(x, piece, size_of_piece);
        std::vector<ConstTensorView> parts;
        for (int peer = 0; peer < size(); ++peer)
          parts.push_back(peer == rank() ? sum : slot(peer, epoch, 0, sum));
        ops().add_tree(parts, sum, {});
      });
}

// A slot has a place for the part of each other rank. Who adds a part also stores its sums where it has read
// the next rank's term: these lines are in its cache, and their owner reads them there.
void SharedCommunicator::sum_in_parts(ConstTensorView in, TensorView out, TensorView all,
                                      std::span<const int64_t> counts) {
  constexpr int64_t line = 64;
  const int64_t place = static_cast<int64_t>(slot_bytes / size_of(in.dtype)) / size() / line * line;
  const std::vector<ConstTensorView> parts = split_rows(in, counts);
  const auto next = [&](int peer) { return (peer + 1) % size(); };
  const std::vector<TensorView> sums = all.empty() ? std::vector<TensorView>{} : split_rows(all, counts);
  for_pieces(
      divided_up(std::ranges::max(counts), place), in.bytes(),
      [&](int64_t piece, uint64_t epoch) {
        for (int peer = 0; peer < size(); ++peer) {
          const ConstTensorView from = piece_of(parts[peer], piece, place);
          if (peer != rank()) copy(from, slot(rank(), epoch, peer * place, from));
        }
      },
      [&](int64_t piece, uint64_t epoch) {
        const TensorView sum = piece_of(out, piece, place);
        std::vector<ConstTensorView> terms;
        for (int peer = 0; peer < size(); ++peer)
          terms.push_back(peer == rank() ? piece_of(parts[peer], piece, place)
                                         : slot(peer, epoch, rank() * place, sum));
        const TensorView shared =
            sums.empty() ? TensorView{} : slot(next(rank()), epoch, rank() * place, sum);
        if (!sum.empty()) ops().add_tree(terms, sum, shared);
        if (sums.empty()) return;
        flags(rank()).summed.store(epoch + 1, std::memory_order_release);
        wait_for(&Flags::summed, epoch + 1);
        for (int peer = 0; peer < size(); ++peer) {
          const TensorView to = piece_of(sums[peer], piece, place);
          if (peer != rank()) copy(slot(next(peer), epoch, peer * place, to), to);
        }
      });
}

void SharedCommunicator::all_gatherv(ConstTensorView in, TensorView out, std::span<const int64_t> rows) {
  if (ways_.of(out.bytes()) == SumWay::messages) return TreeCommunicator::all_gatherv(in, out, rows);
  const TensorView mine = split_rows(out, in, rows, rank(), size())[rank()];
  const std::vector<int64_t> counts = elements_of(rows, out);
  const std::vector<TensorView> parts = split_rows(flat(out), counts);
  const auto size_of_piece = static_cast<int64_t>(slot_bytes / size_of(in.dtype));
  for_pieces(
      divided_up(std::ranges::max(counts), size_of_piece), out.bytes(),
      [&](int64_t piece, uint64_t epoch) {
        const ConstTensorView from = piece_of(flat(in), piece, size_of_piece);
        copy(from, slot(rank(), epoch, 0, from));
      },
      [&](int64_t piece, uint64_t epoch) {
        for (int peer = 0; peer < size(); ++peer) {
          const TensorView to = piece_of(parts[peer], piece, size_of_piece);
          if (peer != rank()) copy(slot(peer, epoch, 0, to), to);
        }
      });
  copy(in, mine);
}

void SharedCommunicator::reduce_scatterv(ConstTensorView in, TensorView out, std::span<const int64_t> rows) {
  if (ways_.of(in.bytes()) == SumWay::messages) return TreeCommunicator::reduce_scatterv(in, out, rows);
  split_rows(in, out, rows, rank(), size());  // checks the shapes
  sum_in_parts(flat(in), flat(out), {}, elements_of(rows, in));
}

// Which way of summing is the fastest for which size, by measurement.
namespace {

constexpr int most_rounds = 7;
constexpr double most_seconds = 50e-3;
constexpr double gain = 0.9;  // of the time of messages, at most

constexpr std::array all_ways = {SumWay::messages, SumWay::one_shot, SumWay::two_shot};
constexpr std::array<std::string_view, all_ways.size()> names = {"messages", "one-shot", "two-shot"};

template <typename T>
T of_rank_0(Transport& transport, T value) {
  broadcast(transport, std::as_writable_bytes(std::span(&value, 1)), 0);
  return value;
}

}  // namespace

SumWay SumWays::of(size_t bytes) const {
  size_t index = 0;
  while (index + 1 < of_size.size() && size(index) < bytes) ++index;
  return of_size[index];
}

std::string SumWays::text() const {
  std::string text;
  for (size_t index = 0; index < of_size.size(); ++index) {
    const bool last = index + 1 == of_size.size();
    if (!last && of_size[index] == of_size[index + 1]) continue;
    text += fmt::format("{}{}{}", text.empty() ? "" : ", ", names[static_cast<size_t>(of_size[index])],
                        last ? "" : " up to " + bytes_text(size(index)));
  }
  return text == names[0] ? text : fmt::format("shared memory ({})", text);
}

void SharedCommunicator::choose_ways(bool may_use_messages) {
  using Clock = std::chrono::steady_clock;
  const auto seconds_since = [](Clock::time_point start) {
    return std::chrono::duration<double>(Clock::now() - start).count();
  };
  const Clock::time_point start = Clock::now();
  Tensor memory(ops().device(), DType::fp32,
                {static_cast<int64_t>(SumWays::size(SumWays::count - 1) / sizeof(float))});
  // As in a layer, where a product has just written x: what lies in the caches decides between the ways.
  const auto seconds = [&](SumWay way, size_t bytes) {
    const TensorView x = memory.view().rows(0, static_cast<int64_t>(bytes / sizeof(float)));
    std::fill_n(x.as<float>(), x.shape[0], 1.0f);
    ways_.of_size.fill(way);
    const Clock::time_point begin = Clock::now();
    all_reduce(x);
    return seconds_since(begin);
  };
  SumWays chosen;
  double of_round = 0;  // seconds, at the last size
  for (size_t index = 0; index < chosen.of_size.size(); ++index) {
    const double rounds_left = (most_seconds - seconds_since(start)) / (4 * of_round);
    const auto rounds = of_rank_0(
        transport(),
        index == 0 ? most_rounds : static_cast<int>(std::clamp<double>(rounds_left, 0, most_rounds)));
    if (rounds == 0) {  // then the larger ones go as the largest that there was time for
      std::fill(chosen.of_size.begin() + static_cast<std::ptrdiff_t>(index), chosen.of_size.end(),
                chosen.of_size[index - 1]);
      break;
    }
    std::array<std::vector<double>, all_ways.size()> taken;
    for (int round = 0; round < rounds; ++round)
      for (const SumWay way : all_ways)
        taken[static_cast<size_t>(way)].push_back(seconds(way, SumWays::size(index)));
    const auto median = [&](size_t way) { return quantile(taken[way], 0.5); };
    const double messages = median(0), one_shot = median(1), two_shot = median(2);
    of_round = messages + one_shot + two_shot;
    if (may_use_messages && std::min(one_shot, two_shot) > gain * messages)
      chosen.of_size[index] = SumWay::messages;
    else
      chosen.of_size[index] = one_shot <= two_shot ? SumWay::one_shot : SumWay::two_shot;
  }
  ways_ = of_rank_0(transport(), chosen);
}

}  // namespace maniple
