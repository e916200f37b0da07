// bench kernels: how long the parts of a step of a model take on a rank, by tensor size.
#pragma once

#include <kernels/backend.hpp>
#include <launch/start/start.hpp>
#include <launch/tools/bench/bench_job.hpp>
#include <launch/tools/bench/roofline.hpp>

namespace maniple {

// layer: one layer but its attention, on `tokens`. head: logits of `tokens` rows, and the best token of each. decode: attention
// of one layer, in which `tokens` sequences compute a token each that sees `context` positions. prefill: the same for a single
// sequence that computes `tokens` after `context` others. host: a step of `tokens` decoding sequences without a model (HostStep).
enum class KernelPart : uint8_t { layer, head, decode, prefill, host };
constexpr std::string_view name_of(KernelPart part) {
  constexpr std::string_view names[] = {"layer", "head", "decode", "prefill", "host"};
  return names[static_cast<size_t>(part)];
}

struct KernelCase {
  KernelPart part = KernelPart::layer;
  int64_t tokens = 1, context = 0;
};
// Those to measure. Throws Error (usage) on one that does not divide the model, as the ranks of such a group would.
std::vector<int> tensor_sizes(const std::vector<uint32_t>& asked, const EngineOptions& engine,
                              BackendChoice backend, const ModelConfig& config);
// Those of the model that one with so many positions can have.
std::vector<KernelCase> kernel_cases(int64_t max_positions);

struct Kernel : KernelCase {
  int tensor = 1;               // ranks that share the model
  int64_t layers = 1;           // measured, one after the other; times are those of one
  Interval seconds{};           // of the slowest rank
  double flops = 0, bytes = 0;  // that it computes and moves

  double flop_rate() const { return flops / seconds.median; }
  double byte_rate() const { return bytes / seconds.median; }
};
// ceilings: of a rank.
std::string table_line(const Kernel& kernel, const Ceilings& ceilings);
nlohmann::ordered_json kernel_json(const Kernel& kernel, const Ceilings& ceilings);

KernelRow row_of(const Kernel& kernel);

// Collective. Nothing after a stop.
std::optional<BenchResult> bench_kernels(BenchJob& job, const PlacedJob& placed, Backend& backend);

}  // namespace maniple
