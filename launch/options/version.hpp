// The version of this program, as a bug report needs it.
#pragma once

#include <string>
#include <utility>
#include <vector>

namespace maniple {

// "maniple 0.1.0", and below it commit, compiler, MPI, CUDA, NCCL and CPU paths, a line each.
std::string version_text();
// The same as names and values: "commit", "compiler", "MPI", ...
std::vector<std::pair<std::string, std::string>> build_facts();
// The commit of this build; "unknown" without a repository.
std::string commit();

}  // namespace maniple
