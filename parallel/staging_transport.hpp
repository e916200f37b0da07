// Lets a transport of host memory serve a device whose memory the host cannot reach: copies through a buffer.
#pragma once

#include <kernels/tensor/device.hpp>
#include <parallel/transport.hpp>

#include <memory>
#include <vector>

namespace maniple {

class StagingTransport : public Transport {
 public:
  StagingTransport(std::unique_ptr<Transport> transport, Device& device)
      : transport_(std::move(transport)), device_(device) {}

  int rank() const override { return transport_->rank(); }
  int size() const override { return transport_->size(); }
  void exchange(std::span<const Outgoing> outgoing, std::span<const Incoming> incoming) override;
  void poll() override { transport_->poll(); }

 private:
  std::unique_ptr<Transport> transport_;
  Device& device_;
  std::vector<std::byte> host_;
};

}  // namespace maniple
