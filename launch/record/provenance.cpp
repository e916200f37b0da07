#include <launch/options/version.hpp>
#include <launch/record/provenance.hpp>
#include <launch/run_directory/durable_file.hpp>

#include <fmt/chrono.h>
#include <fmt/ranges.h>

#include <sys/utsname.h>

#include <algorithm>
#include <array>
#include <ctime>
#include <fstream>
#include <set>

namespace maniple {
namespace {

std::string cpu_model() {
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line);)
    if (line.starts_with("model name")) return line.substr(std::min(line.find(": ") + 2, line.size()));
  return "unknown";
}

std::string kernel() {
  struct utsname name {};
  return ::uname(&name) == 0 ? fmt::format("{} {} {}", name.sysname, name.release, name.machine) : "unknown";
}

// Quoted where a shell would split it.
std::string command_line() {
  std::string text, word;
  for (const char c : read_optional_file("/proc/self/cmdline").value_or("")) {
    if (c != '\0') {
      word += c;
      continue;
    }
    const bool plain = !word.empty() && word.find_first_of(" \t\n\"'\\$*?[]{}()<>|&;~#!`") == word.npos;
    if (!text.empty()) text += ' ';
    text += plain ? word : fmt::format("'{}'", word);
    word.clear();
  }
  return text;
}

}  // namespace

bool is_recorded(std::string_view variable) {
  constexpr std::array<std::string_view, 9> prefixes = {"SLURM_", "OMPI_", "PMIX_", "UCX_",  "NCCL_",
                                                        "CUDA_",  "FI_",   "OMP_",  "HWLOC_"};
  constexpr std::array<std::string_view, 6> secrets = {"TOKEN", "SECRET", "PASS", "KEY", "JWT", "CRED"};
  return std::ranges::any_of(prefixes, [&](auto prefix) { return variable.starts_with(prefix); }) &&
         std::ranges::none_of(secrets, [&](auto secret) { return variable.find(secret) != variable.npos; });
}

std::string utc_now() { return fmt::format("{:%Y-%m-%dT%H:%M:%SZ}", fmt::gmtime(std::time(nullptr))); }

Texts machine_provenance(const std::vector<std::string>& environment) {
  std::set<std::string> recorded;
  for (const std::string& variable : environment)
    if (is_recorded(variable.substr(0, variable.find('=')))) recorded.insert(variable);
  Texts texts = {{"version", MANIPLE_VERSION},
                 {"cpu_model", cpu_model()},
                 {"kernel", kernel()},
                 {"command_line", command_line()},
                 {"environment", fmt::format("{}", fmt::join(recorded, "\n"))}};
  const std::map<std::string, std::string> names = {
      {"commit", "git_commit"}, {"compiler", "compiler"},  {"MPI", "mpi"}, {"CUDA", "cuda"}, {"NCCL", "nccl"},
      {"HDF5", "hdf5"},         {"CPU paths", "cpu_paths"}};
  for (const auto& [name, value] : build_facts()) texts[names.at(name)] = value;
  return texts;
}

}  // namespace maniple
