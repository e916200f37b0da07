// Which program this is: what a report of a fault needs to say.
#pragma once

#include <string>

namespace maniple {

// "maniple 0.1.0", and below it commit, compiler, MPI, CUDA, NCCL and CPU paths, a line each.
std::string version_text();

}  // namespace maniple
