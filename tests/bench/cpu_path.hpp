#pragma once

#include <kernels/backend.hpp>
#include <kernels/support/check.hpp>

namespace maniple {

inline CpuPath cpu_path_named(std::string_view name) {
  for (const CpuPath path : available_cpu_paths())
    if (name_of(path) == name) return path;
  fail(ExitCode::usage, "this processor has no path {}", name);
}

}  // namespace maniple
