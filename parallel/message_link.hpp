// A link between stages by messages of host memory, each with a header that both ends check.
#pragma once

#include <kernels/cpu/cpu_device.hpp>
#include <parallel/stage_link.hpp>

#include <array>
#include <atomic>
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

class MessageLink final : public StageLink {
 public:
  // name: of this stage, for messages ("stage 1 of replica 0"). first, last: there is no stage before, after
  // it. waits: true while this rank waits for another stage. The references must outlive the link.
  MessageLink(std::unique_ptr<StageTransport> transport, std::string name, bool first, bool last,
              const StageRows& rows, Device& device, std::atomic<bool>& waits);

  // Waits while two sends are not done.
  void send(const StageStep& step, ConstTensorView rows) override;
  // Waits for the message. Throws Error (fault) if it is that of another step or size.
  TensorView take(const StageStep& step, int64_t rows) override;
  void release() override;
  void poll() override;
  double seconds() const override { return seconds_; }
  CollectiveCounts counts() const override { return counts_; }  // with the waits

 private:
  struct Header;
  // Returns the seconds.
  double wait_until(const auto& done);
  std::span<std::byte> bytes_of(Tensor& slot, int64_t rows) const;

  std::string name_;
  StageRows rows_;
  Device& device_;
  std::atomic<bool>& waits_;
  CpuDevice host_{"messages between stages"};
  std::array<Tensor, StageTransport::slots> out_,
      in_;            // uint8 on the host: a header, then rows; without memory at an end
  Tensor on_device_;  // the rows that were taken, where the host cannot reach the device's memory
  std::unique_ptr<StageTransport> transport_;  // goes before the memory that it uses
  uint64_t sends_ = 0, takes_ = 0;             // so far
  double seconds_ = 0;
  CollectiveCounts counts_;
};

}  // namespace maniple
