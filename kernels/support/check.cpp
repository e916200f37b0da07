#include <kernels/support/check.hpp>

namespace maniple {

void broken_invariant(const char* what, const char* file, int line) {
  throw Error(ExitCode::internal, fmt::format("{} ({}:{})", what, file, line),
              "this is a bug in maniple, not a mistake of yours",
              "please report it with the command line and this message");
}

}  // namespace maniple
