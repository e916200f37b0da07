#include <kernels/support/shared_library.hpp>
#include <support/temp_directory.hpp>

#include <dlfcn.h>
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>

namespace maniple {
namespace {

using Cosine = double (*)(double);

std::filesystem::path file_of(Cosine function) {
  Dl_info info{};
  dladdr(reinterpret_cast<void*>(function), &info);
  return info.dli_fname;
}

TEST(SharedLibrary, IsOpenedByItsNameWhereItsPathDoesNotExist) {
  const SharedLibrary math("/nowhere/libm.so.6", "", "");
  const Cosine cosine = math.function("cos");
  EXPECT_EQ(cosine(0), 1);
}

TEST(SharedLibrary, IsTakenFromItsPathFirst) {
  const TempDirectory directory;
  const SharedLibrary loaded("libm.so.6", "", "");
  std::filesystem::copy(file_of(loaded.function("cos")), directory / "libm.so.6");
  const SharedLibrary copy(directory / "libm.so.6", "", "");
  EXPECT_EQ(file_of(copy.function("cos")), directory / "libm.so.6");
}

Error refusal_of(const std::string& path, const char* function) {
  try {
    SharedLibrary(path, "why", "remedy").function(function);
  } catch (const Error& error) {
    return error;
  }
  return {ExitCode::complete, "nothing was thrown"};
}

TEST(SharedLibrary, OneThatIsMissingIsNamedWithWhatTheLoaderSaysAndWhatToDo) {
  const Error error = refusal_of("/nowhere/libmissing.so.7", "any");
  EXPECT_EQ(error.code(), ExitCode::preflight);
  EXPECT_STREQ(error.what(),
               "libmissing.so.7 cannot be opened (libmissing.so.7: cannot open shared object "
               "file: No such file or directory)");
  EXPECT_EQ(error.why(), "why");
  EXPECT_EQ(error.remedy(), "remedy");
}

TEST(SharedLibrary, OneThatLacksAFunctionIsRefusedByItsName) {
  const Error error = refusal_of("libm.so.6", "no_such_function");
  EXPECT_EQ(error.code(), ExitCode::preflight);
  EXPECT_NE(std::string(error.what()).find("undefined symbol: no_such_function"), std::string::npos);
}

}  // namespace
}  // namespace maniple
