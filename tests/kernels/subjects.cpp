#include <kernels/subjects.hpp>

namespace maniple::testing {

const std::vector<Subject>& all_subjects() {
  static const std::vector<Subject> subjects{{BackendKind::reference},
                                             {BackendKind::cpu, CpuPath::amx},
                                             {BackendKind::cpu, CpuPath::avx512_bf16},
                                             {BackendKind::cpu, CpuPath::avx512},
                                             {BackendKind::cpu, CpuPath::avx2},
                                             {BackendKind::cpu, CpuPath::portable},
                                             {BackendKind::cuda, CpuPath::automatic, true},
                                             {BackendKind::cuda}};
  return subjects;
}

}  // namespace maniple::testing
