// Sums of a group inside a node through memory that its ranks share. The bits are those of the tree of
// Communicator::all_reduce, in every way of summing, so a measurement may choose the way.
//
// Operations work in pieces, counted from the start by all ranks alike: the epochs. In epoch e a rank fills
// its slot e % 4, says so, and uses the slots of the others when they are filled too. It fills the next slot
// first, so a rank that comes a little later does not hold up the others. A slot is free in time: who fills
// e has seen that all had filled e - 2, and who filled e - 2 had left e - 4.
//
// In two shots rank r adds what lies at its place in the slots, and writes the sums over the term of rank
// r + 1. Between `filled` of all and its own `summed` nobody but r touches its place in any slot; after that the
// others read the sums there, until they leave the epoch.
#pragma once

#include <parallel/mailbox.hpp>
#include <parallel/shared_memory.hpp>
#include <parallel/tree_communicator.hpp>

#include <array>
#include <atomic>
#include <string>

namespace maniple {

// one_shot: every rank adds everything. two_shot: each rank adds a part, and the others copy its sums.
enum class SumWay : uint8_t { messages, one_shot, two_shot };

// The way for each size of what is summed.
struct SumWays {
  static constexpr size_t smallest = size_t{4} << 10;  // bytes; each size is four times the one before
  static constexpr size_t count = 6;
  std::array<SumWay, count> of_size{};

  static constexpr size_t size(size_t index) { return smallest << 2 * index; }
  SumWay of(size_t bytes) const;  // as the next larger of these sizes, or the largest
  std::string text() const;       // "shared memory (one-shot up to 64 KiB, two-shot)"
};

class SharedCommunicator final : public TreeCommunicator {
 public:
  static constexpr int most_ranks = 256;  // slots have a place of whole cache lines for each
  static constexpr uint64_t slots = 4;
  static constexpr size_t slot_bytes = size_t{256} << 10;
  static constexpr size_t bytes_of_rank = 4096 + slots * slot_bytes;

  // memory: of share_memory(), bytes_of_rank for each rank. The device is a CPU. A wait throws or lasts for
  // ever where one of the transport does.
  SharedCommunicator(std::unique_ptr<Transport> transport, Ops& ops, SharedMemory memory, Backoff::Spin spin,
                     const SumWays& ways = {});

  std::string sums() const override { return ways_.text(); }
  void all_reduce(TensorView x) override;
  void all_gatherv(ConstTensorView in, TensorView out, std::span<const int64_t> rows) override;
  void reduce_scatterv(ConstTensorView in, TensorView out, std::span<const int64_t> rows) override;

  // Collective. Takes some 50 ms. Rank 0 decides. A shared way must win by 10 % where messages may be used.
  void choose_ways(bool may_use_messages);

 private:
  // The epochs that a rank has filled, and summed (its part, in two shots). A cache line of its own.
  struct alignas(64) Flags {
    std::atomic<uint64_t> filled, summed;
    std::array<std::atomic<uint64_t>, slots>
        bytes;  // of the whole operation: a rank with another one is a fault
  };
  static_assert(sizeof(Flags) == 64);

  void sum_in_one_shot(TensorView x);
  // Each rank adds its part of `in` to `out`. all: where the sums of all ranks go, or nothing.
  void sum_in_parts(ConstTensorView in, TensorView out, TensorView all, std::span<const int64_t> counts);
  // fill(piece, epoch) for each piece, and use(piece, epoch) when all ranks have filled it. bytes: of the
  // operation.
  template <typename Fill, typename Use>
  void for_pieces(int64_t pieces, size_t bytes, Fill fill, Use use);
  void wait_for(std::atomic<uint64_t> Flags::*flag, uint64_t epochs);

  Flags& flags(int rank) { return *reinterpret_cast<Flags*>(memory_.get() + rank * bytes_of_rank); }
  // Elements from `begin` on of a rank's slot; as many and of the type as `like`.
  TensorView slot(int rank, uint64_t epoch, int64_t begin, ConstTensorView like);

  const SharedMemory memory_;
  const Backoff::Spin spin_;
  SumWays ways_;
  uint64_t epoch_ = 0;  // the next
};

}  // namespace maniple
