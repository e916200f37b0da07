// The subjects of the conformance tests: the reference, every instruction path of the CPU backend, the CUDA
// backend over the emulation, and a GPU where there is one. All are compared with double precision.
#pragma once

#include <emulation/emulated_backend.hpp>
#include <kernels/backend.hpp>
#include <kernels/cpu/cpu_device.hpp>
#include <kernels/cpu/cpu_ops.hpp>
#include <kernels/factory/make_backend.hpp>
#include <support/mirrored_backend.hpp>
#include <support/random_tensors.hpp>

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <ostream>
#include <string>
#include <utility>
#include <vector>

namespace maniple::testing {

inline Backend backend_of(BackendKind kind, CpuPath path = CpuPath::automatic, int threads = 1) {
  BackendOptions options;
  options.kind = kind;
  options.cpu_path = path;
  options.threads = threads;
  return make_backend(options);
}

// The path amx, on processors without it too: only in the binary whose tiles are plain C++.
inline Backend emulated_tiles(int threads) {
  auto device = std::make_unique<CpuDevice>("emulated tiles");
  auto ops = std::make_unique<cpu::CpuOps>(*device, std::make_unique<ThreadPool>(threads), CpuPath::amx);
  return {std::move(device), std::move(ops)};
}

struct Subject {
  BackendKind kind;
  CpuPath path = CpuPath::automatic;
  bool emulated = false;  // the GPU, or the tiles of amx
};

inline void PrintTo(const Subject& subject, std::ostream* out) {
  if (subject.kind == BackendKind::cpu)
    *out << name_of(subject.path);
  else
    *out << (subject.kind == BackendKind::reference ? "reference"
             : subject.emulated                     ? "emulated_cuda"
                                                    : "cuda");
}

// Of this test binary.
const std::vector<Subject>& all_subjects();

inline std::string name_of_subject(const ::testing::TestParamInfo<Subject>& info) {
  return ::testing::PrintToString(info.param);
}

// Why this machine cannot run a subject; empty: it can.
inline std::string lack_of_hardware(const Subject& subject) {
  if (subject.kind == BackendKind::cuda && !subject.emulated) try {
      backend_of(BackendKind::cuda);
    } catch (const Error& error) {
      return std::string("no GPU: ") + error.what();
    }
  const auto paths = available_cpu_paths();
  const bool missing = subject.kind == BackendKind::cpu && !subject.emulated &&
                       std::find(paths.begin(), paths.end(), subject.path) == paths.end();
  return missing ? fmt::format("this processor cannot run the path {}", name_of(subject.path)) : "";
}

class Conformance : public ::testing::TestWithParam<Subject> {
 protected:
  void SetUp() override {
    if (const std::string lack = lack_of_hardware(GetParam()); !lack.empty())
      GTEST_SKIP() << lack;  // CPU or GPU
    backend_ = with_threads(2);
  }

  // threads: on a GPU the number of the run; under emulation it decides the order of the device's threads.
  static Backend with_threads(int threads) {
    if (GetParam().kind == BackendKind::cpu && GetParam().emulated) return emulated_tiles(threads);
    if (GetParam().kind != BackendKind::cuda) return backend_of(GetParam().kind, GetParam().path, threads);
    return mirrored(GetParam().emulated ? emulation::emulated_cuda_backend(static_cast<uint64_t>(threads))
                                        : backend_of(BackendKind::cuda));
  }
  // Whether a row's bits are independent of the other rows and of
  // the chunking (level `grid`); a GPU promises bounds (`off`).
  static bool promises_bits() { return GetParam().kind != BackendKind::cuda; }
  static std::vector<DType> activation_types() {
    if (GetParam().kind == BackendKind::cpu) return {DType::bf16, DType::fp32};
    return {DType::bf16, DType::fp16, DType::fp32};
  }
  Ops& ops() { return *backend_.ops; }
  Device& device() { return *backend_.device; }

 private:
  Backend backend_;
};

// Gates as in kernels/gate_activation.hpp, in double precision. The small limit clamps many numbers of tests.
inline constexpr GateActivation small_clamp{.limit = 0.75F, .alpha = 1.702F};
inline double exact_gated(GateActivation activation, double gate, double up) {
  const double limit = activation.limit;
  if (limit == 0) return gate / (1 + std::exp(-gate)) * up;
  const double g = std::min(gate, limit), u = std::clamp(up, -limit, limit);
  return g / (1 + std::exp(-double{activation.alpha} * g)) * (u + 1);
}

// Half a unit in the last place, relative.
inline double rounding(DType dtype) {
  return dtype == DType::bf16 ? 0x1p-8 : dtype == DType::fp16 ? 0x1p-11 : 0x1p-24;
}
// The same where numbers are too small to be normal.
inline double rounding_near_zero(DType dtype) { return dtype == DType::fp16 ? 0x1p-25 : 1e-37; }

}  // namespace maniple::testing
