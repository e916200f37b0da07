// Whether a library multiplies codes as the kernels do. What its documentation says is tried once on the device at hand.
#pragma once

#include <kernels/cuda/gemm.hpp>
#include <kernels/tensor/device.hpp>

namespace maniple::cuda {

enum class TrialResult : uint8_t { right, refused, wrong };

// Multiplies some codes (Gemm::multiply), fp8 or uint8, fp8 also with scales of blocks, and compares with sums of the host. Waits for the device.
TrialResult try_codes(Device& device, device::Stream stream, Gemm& gemm, DType codes, bool blocks);

}  // namespace maniple::cuda
