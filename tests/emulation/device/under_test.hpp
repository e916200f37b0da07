// The device that tests of the primitives run on: here the emulated one.
#pragma once

#include <device/stream.hpp>
#include <emulation/emulated_backend.hpp>

namespace maniple::device {

class DeviceUnderTest {
 public:
  // order: the first of the orders of threads.
  explicit DeviceUnderTest(uint64_t order) : memory_(order) {}
  Device& memory() { return memory_; }
  Stream stream() { return &memory_.stream(); }

  static std::string lack() { return ""; }

 private:
  emulation::EmulatedDevice memory_;
};

}  // namespace maniple::device
