#include <commit.hpp>
#include <kernels/backend.hpp>
#include <launch/options/version.hpp>
#include <parallel/mpi/mpi_world.hpp>

#include <fmt/ranges.h>

namespace maniple {
namespace {

#ifdef __clang__
constexpr std::string_view compiler = "Clang " __clang_version__;
#else
constexpr std::string_view compiler = "GCC " __VERSION__;
#endif

// Best first. A build for other processors has only the portable path.
std::string cpu_paths() {
  std::vector<std::string_view> names;
  for (const CpuPath path : available_cpu_paths()) names.push_back(name_of(path));
  return fmt::format("{}", fmt::join(names, ", "));
}

}  // namespace

std::string version_text() {
  return fmt::format(
      "maniple {}\n"
      "commit:    {}\n"
      "compiler:  {}\n"
      "MPI:       {}\n"
      "CUDA:      {}\n"
      "NCCL:      {}\n"
      "CPU paths: {} (of this machine, best first)\n",
      MANIPLE_VERSION, MANIPLE_COMMIT, compiler, mpi_library(), MANIPLE_CUDA_VERSION, MANIPLE_NCCL_VERSION,
      cpu_paths());
}

}  // namespace maniple
