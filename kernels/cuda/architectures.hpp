// Which GPUs a build has code for.
#pragma once

#include <algorithm>
#include <charconv>
#include <string_view>

namespace maniple::cuda {

// Whether a build for `built`, words of CMAKE_CUDA_ARCHITECTURES ("80-real 90"), runs on a GPU of this compute capability.
// Machine code (-real) runs within its major version from its minor one on; PTX (-virtual) on that capability and later ones; a
// number alone is both. Code with a letter ("90a") runs on that capability alone. Words without a number ("native") are trusted.
// Source: CUDA C++ Programming Guide, "Compilation with NVCC", binary and PTX compatibility.
inline bool has_code_for(std::string_view built, int major, int minor) {
  const int here = 10 * major + minor;
  while (!built.empty()) {
    const std::string_view word = built.substr(0, built.find(' '));
    built.remove_prefix(std::min(word.size() + 1, built.size()));
    int number = 0;
    const auto [rest, error] = std::from_chars(word.data(), word.data() + word.size(), number);
    if (error != std::errc{}) return true;
    const std::string_view kind(rest, word.data() + word.size());
    const bool exact = kind.starts_with('a') || kind.starts_with('f');
    const bool machine_code = number / 10 == major && number <= here && !kind.ends_with("-virtual");
    const bool ptx = number <= here && !kind.ends_with("-real");
    if (exact ? number == here : machine_code || ptx) return true;
  }
  return false;
}

}  // namespace maniple::cuda
