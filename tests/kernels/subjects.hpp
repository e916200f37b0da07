// What the conformance tests are run on: the reference and every instruction path of the CPU backend. All are
// held against double precision.
#pragma once

#include <kernels/backend.hpp>
#include <support/random_tensors.hpp>

#include <gtest/gtest.h>

#include <algorithm>
#include <ostream>
#include <string>

namespace maniple::testing {

inline Backend backend_of(BackendKind kind, CpuPath path = CpuPath::automatic, int threads = 1) {
  BackendOptions options;
  options.kind = kind;
  options.cpu_path = path;
  options.threads = threads;
  return make_backend(options);
}

struct Subject {
  BackendKind kind;
  CpuPath path;
};

inline void PrintTo(const Subject& subject, std::ostream* out) {
  *out << (subject.kind == BackendKind::reference ? "reference" : name_of(subject.path));
}

inline const std::vector<Subject>& all_subjects() {
  static const std::vector<Subject> subjects{{BackendKind::reference, CpuPath::automatic},
                                             {BackendKind::cpu, CpuPath::amx},
                                             {BackendKind::cpu, CpuPath::avx512_bf16},
                                             {BackendKind::cpu, CpuPath::avx512},
                                             {BackendKind::cpu, CpuPath::avx2},
                                             {BackendKind::cpu, CpuPath::portable}};
  return subjects;
}

inline std::string name_of_subject(const ::testing::TestParamInfo<Subject>& info) {
  return ::testing::PrintToString(info.param);
}

class Conformance : public ::testing::TestWithParam<Subject> {
 protected:
  void SetUp() override {
    const auto paths = available_cpu_paths();
    const bool missing = GetParam().kind == BackendKind::cpu &&
                         std::find(paths.begin(), paths.end(), GetParam().path) == paths.end();
    if (missing) GTEST_SKIP() << "this processor cannot run the path " << name_of(GetParam().path);
    backend_ = with_threads(2);
  }

  static Backend with_threads(int threads) { return backend_of(GetParam().kind, GetParam().path, threads); }
  Ops& ops() { return *backend_.ops; }
  Device& device() { return *backend_.device; }

 private:
  Backend backend_;
};

// Half a unit in the last place, relative.
inline double rounding(DType dtype) { return dtype == DType::bf16 ? 0x1p-8 : 0x1p-24; }

}  // namespace maniple::testing
