// The version of this program, as a bug report needs it.
#pragma once

#include <string>

namespace maniple {

// "maniple 0.1.0", and below it commit, compiler, MPI, CUDA, NCCL and CPU paths, a line each.
std::string version_text();

}  // namespace maniple
