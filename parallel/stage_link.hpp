// What crosses between the stages of a pipeline: a step's rows of the residual stream, from each tensor rank to
// the same one of the next stage. Messages travel while both sides compute.
#pragma once

#include <kernels/tensor/tensor.hpp>
#include <parallel/collective_counts.hpp>

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>

namespace maniple {

// Moves messages of host memory from the previous stage and to the next one. No call waits. Each direction has
// two slots, used in turn; the memory of a slot is the transport's from its call on until the transport is done
// with it. Throws Error (fault) when the transport fails or a message is larger than its slot.
class StageTransport {
 public:
  static constexpr size_t slots = 2;

  virtual ~StageTransport() = default;
  virtual void send(size_t slot, std::span<const std::byte> message) = 0;
  virtual bool sent(size_t slot) = 0;  // its memory may be used again
  // The next message may go to this memory.
  virtual void receive(size_t slot, std::span<std::byte> memory) = 0;
  virtual std::optional<size_t> received(size_t slot) = 0;  // bytes of the message that has come
};

// The plan that rows belong to; both ends have it.
struct StageStep {
  uint64_t step = 0;
  uint64_t state_hash = 0;
};

// The rows of the largest step, and of which type.
struct StageRows {
  int64_t most = 0;
  int64_t width = 0;
  DType dtype = DType::bf16;
};

class StageLink {
 public:
  // name: of this stage, for messages ("stage 1 of replica 0"). first, last: there is no stage before, after
  // it. waits: true while this rank waits for another stage. The references must outlive the link.
  StageLink(std::unique_ptr<StageTransport> transport, std::string name, bool first, bool last,
            const StageRows& rows, Device& device, std::atomic<bool>& waits);

  // Sends [rows, width] of a step to the next stage, from memory of its own; waits while two sends are not done.
  void send(const StageStep& step, ConstTensorView rows);
  // The [rows, width] that the stage before has sent for this step; waits for them. They may be overwritten, and
  // are valid until release(). Throws Error (fault) if the message is that of another step or size.
  TensorView take(const StageStep& step, int64_t rows);
  void release();
  // Lets messages move while this rank computes.
  void poll();
  double seconds() const { return seconds_; }                 // waited so far
  const CollectiveCounts& counts() const { return counts_; }  // send and receive, with the waits

 private:
  struct Header;
  // Returns the seconds.
  double wait_until(const auto& done);
  std::span<std::byte> bytes_of(Tensor& slot, int64_t rows) const;

  std::string name_;
  StageRows rows_;
  std::atomic<bool>& waits_;
  std::array<Tensor, StageTransport::slots> out_,
      in_;                                     // uint8: a header, then rows; without memory at an end
  std::unique_ptr<StageTransport> transport_;  // goes before the memory that it uses
  uint64_t sends_ = 0, takes_ = 0;             // so far
  double seconds_ = 0;
  CollectiveCounts counts_;
};

}  // namespace maniple
