#include <commit.hpp>
#include <kernels/backend.hpp>
#include <launch/hdf5/hdf5_calls.hpp>
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

std::vector<std::pair<std::string, std::string>> build_facts() {
  return {{"commit", MANIPLE_COMMIT},
          {"compiler", std::string(compiler)},
          {"MPI", mpi_library()},
          {"CUDA", MANIPLE_CUDA_VERSION},
          {"NCCL", MANIPLE_NCCL_VERSION},
          {"HDF5", hdf5_version()},
          {"CPU paths", cpu_paths() + " (of this machine, best first)"}};
}
std::string commit() { return MANIPLE_COMMIT; }

std::string version_text() {
  std::string text = fmt::format("maniple {}\n", MANIPLE_VERSION);
  for (const auto& [name, value] : build_facts()) text += fmt::format("{:<11}{}\n", name + ":", value);
  return text;
}

}  // namespace maniple
