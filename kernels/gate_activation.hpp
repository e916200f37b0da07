// How the gate of an MLP multiplies what stands beside it.
#pragma once

namespace maniple {

// silu: gate * sigmoid(gate) * up. clamped (gpt-oss): g * sigmoid(alpha * g) * (u + 1), g = min(gate, limit) and
// u = up, clamped to [-limit, limit]. In fp32; a NaN stays one.
struct GateActivation {
  float limit = 0;  // 0: silu
  float alpha = 1;  // of clamped

  static const GateActivation silu;
  bool operator==(const GateActivation&) const = default;
};
inline constexpr GateActivation GateActivation::silu{};

}  // namespace maniple
