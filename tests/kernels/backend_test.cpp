#include <kernels/subjects.hpp>

namespace maniple {
namespace {

using testing::backend_of;

template <typename F>
Error error_of(F f) {
  try {
    f();
  } catch (const Error& error) {
    return error;
  }
  return Error(ExitCode::complete, "no error");
}

TEST(Backend, TakesTheFirstAvailablePathAndSaysSo) {
  const std::vector<CpuPath> paths = available_cpu_paths();
  ASSERT_FALSE(paths.empty());
  EXPECT_EQ(paths.back(), CpuPath::portable);
  const Backend two = backend_of(BackendKind::cpu, CpuPath::automatic, 2);
  EXPECT_EQ(two.device->description(), "cpu, 2 threads, " + std::string(name_of(paths.front())));
  EXPECT_EQ(backend_of(BackendKind::cpu, CpuPath::portable).device->description(), "cpu, 1 thread, portable");
}

TEST(Backend, RefusesWhatTheMachineLacks) {
  const std::vector<CpuPath> paths = available_cpu_paths();
  for (const CpuPath path : {CpuPath::amx, CpuPath::avx512_bf16, CpuPath::avx512, CpuPath::avx2})
    if (std::find(paths.begin(), paths.end(), path) == paths.end()) {
      EXPECT_EQ(error_of([&] { backend_of(BackendKind::cpu, path); }).code(), ExitCode::preflight);
    }
}

TEST(Backend, TakesTheGpuWhereThereIsOneAndElseSaysWhatIsMissing) {
  const std::string chosen = backend_of(BackendKind::automatic).device->description();
  const std::string lack = testing::lack_of_hardware({BackendKind::cuda});
  if (lack.empty()) {
    EXPECT_EQ(chosen.find("cuda, "), 0u) << chosen;
    return;
  }
  EXPECT_EQ(chosen.find("cpu, "), 0u) << chosen;
  const Error error = error_of([] { backend_of(BackendKind::cuda); });
  EXPECT_EQ(error.code(), ExitCode::preflight);
  EXPECT_FALSE(error.why().empty());
  EXPECT_NE(error.remedy().find("use `backend` cpu"), std::string::npos);
}

TEST(CpuMemory, IsAlignedZeroedAndWritableAtEverySize) {
  const Backend backend = backend_of(BackendKind::reference);
  for (const size_t bytes :
       {size_t{1}, size_t{63}, size_t{4096}, (size_t{2} << 20) - 1, size_t{2} << 20, (size_t{5} << 20) + 7}) {
    for (int again = 0; again < 2; ++again) {
      std::byte* const memory = backend.device->allocate(bytes);
      EXPECT_EQ(reinterpret_cast<uintptr_t>(memory) % 64, 0u);
      EXPECT_TRUE(std::all_of(memory, memory + bytes, [](std::byte b) { return b == std::byte{0}; }));
      std::memset(memory, 0xff, bytes);
      backend.device->release(memory, bytes);
    }
  }
}

TEST(CpuMemory, RefusesMoreThanThereIsNamingTheSizes) {
  const Backend backend = backend_of(BackendKind::reference);
  const size_t free = backend.device->free_memory();
  EXPECT_GT(free, size_t{1} << 20);
  EXPECT_LT(free, size_t{1} << 50);
  const Error error = error_of([&] { backend.device->allocate(size_t{1} << 50); });
  EXPECT_EQ(error.code(), ExitCode::preflight);
  EXPECT_NE(std::string(error.what()).find("cannot allocate 1024 TiB"), std::string::npos) << error.what();
}

}  // namespace
}  // namespace maniple
