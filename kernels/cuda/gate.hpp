// kernels/gate_activation.hpp on the device.
#pragma once

#include <device/primitives.hpp>
#include <kernels/gate_activation.hpp>

namespace maniple::cuda {

__device__ inline float gated(GateActivation activation, float gate, float up) {
  const float limit = activation.limit;
  if (limit == 0) return gate / (1.0f + expf(-gate)) * up;
  const float g = gate > limit ? limit : gate, u = up > limit ? limit : up < -limit ? -limit : up;
  return g / (1.0f + expf(-activation.alpha * g)) * (u + 1.0f);
}

}  // namespace maniple::cuda
