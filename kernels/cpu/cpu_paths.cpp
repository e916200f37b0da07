#include <kernels/cpu/path_kernels.hpp>

#include <fmt/format.h>

#include <algorithm>
#ifdef __x86_64__
#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>
#endif

namespace maniple {

namespace {

#ifdef __x86_64__
// Whether the processor has tiles and the kernel lets this process use their
// 8 KiB of state. The process must request them before its threads start.
bool has_amx() {
  constexpr unsigned amx_bf16 = 1u << 22, amx_tile = 1u << 24, amx_int8 = 1u << 25,
                     all = amx_bf16 | amx_tile | amx_int8;
  constexpr long request_permission = 0x1023, tile_data = 18;  // ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA
  unsigned a = 0, b = 0, c = 0, d = 0;
  if (!__get_cpuid_count(7, 0, &a, &b, &c, &d) || (d & all) != all) return false;
  return syscall(SYS_arch_prctl, request_permission, tile_data) == 0;
}

bool has_avx512() {
  return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
         __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq") &&
         __builtin_cpu_supports("fma");
}

bool has_avx512_bf16() {
  unsigned a = 0, b = 0, c = 0, d = 0;
  return has_avx512() && __builtin_cpu_supports("avx512vnni") && __get_cpuid_count(7, 1, &a, &b, &c, &d) &&
         (a & (1u << 5)) != 0;
}

bool has_f16c() {
  unsigned a = 0, b = 0, c = 0, d = 0;
  return __get_cpuid(1, &a, &b, &c, &d) && (c & (1u << 29)) != 0;
}

// vdpbf16ps does twice the work of an fp32 FMA on AMD from Zen 4 on and on Intel's Cooper Lake (family 6,
// model 0x55). On Intel parts with AMX it runs at less than half the rate of FMA.
bool bf16_dot_is_fast() {
  unsigned a = 0, b = 0, c = 0, d = 0;
  __get_cpuid(1, &a, &b, &c, &d);
  const unsigned family = (a >> 8) & 0xfu, model = ((a >> 4) & 0xfu) | ((a >> 12) & 0xf0u);
  return __builtin_cpu_is("amd") || (__builtin_cpu_is("intel") && family == 6 && model == 0x55);
}

std::vector<CpuPath> vector_paths() {
  std::vector<CpuPath> paths;
  const bool avx512 = has_avx512(), bf16 = has_avx512_bf16();
  if (bf16 && has_amx()) paths.push_back(CpuPath::amx);
  if (bf16 && bf16_dot_is_fast()) paths.push_back(CpuPath::avx512_bf16);
  if (avx512) paths.push_back(CpuPath::avx512);
  if (bf16 && !bf16_dot_is_fast()) paths.push_back(CpuPath::avx512_bf16);
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && has_f16c())
    paths.push_back(CpuPath::avx2);
  return paths;
}
#else
std::vector<CpuPath> vector_paths() { return {}; }
#endif

}  // namespace

std::string_view name_of(CpuPath path) {
  constexpr std::string_view names[] = {"auto", "amx", "avx512_bf16", "avx512", "avx2", "portable"};
  return names[static_cast<size_t>(path)];
}

std::vector<CpuPath> available_cpu_paths() {
  std::vector<CpuPath> paths = vector_paths();
  paths.push_back(CpuPath::portable);
  return paths;
}

CpuPath cpu::chosen_path(CpuPath asked) {
  const std::vector<CpuPath> available = available_cpu_paths();
  if (asked == CpuPath::automatic) return available.front();
  if (std::find(available.begin(), available.end(), asked) != available.end()) return asked;
  std::string names;
  for (const CpuPath path : available) names += fmt::format("{}{}", names.empty() ? "" : ", ", name_of(path));
  fail(ExitCode::preflight, "this processor cannot run the cpu path {}; it has {}", name_of(asked), names);
}

}  // namespace maniple
