// Error handling. A wrong request is a value (see scheduling). A failure
// that ends the program throws an Error: what happened, why it matters, what
// to type, and the exit code. A broken invariant goes through require().
#pragma once

#include <kernels/support/error.hpp>

#include <fmt/core.h>

#include <utility>

namespace maniple {

// fail(ExitCode::input, "kv heads ({}) do not divide by tensor ranks ({}); use 1, 2, 4 or 8 of them", 8, 3)
template <typename... Args>
[[noreturn]] void fail(ExitCode code, fmt::format_string<Args...> format, Args&&... args) {
  throw Error(code, fmt::format(format, std::forward<Args>(args)...));
}

[[noreturn]] void broken_invariant(const char* what, const char* file, int line);

// Checks a condition that no input can break. Throws an Error with ExitCode::internal that names the place.
inline void require(bool holds, const char* what, const char* file = __builtin_FILE(),
                    int line = __builtin_LINE()) {
  if (!holds) [[unlikely]]
    broken_invariant(what, file, line);
}

}  // namespace maniple
