#include <kernels/subjects.hpp>

namespace maniple {
namespace {

using namespace testing;

// The devices themselves, without a mirror.
class DeviceMemory : public ::testing::TestWithParam<Subject> {
 protected:
  void SetUp() override {
    if (const std::string lack = lack_of_hardware(GetParam()); !lack.empty())
      GTEST_SKIP() << lack;  // CPU or GPU
    backend_ = GetParam().emulated ? emulation::emulated_cuda_backend(1) : backend_of(GetParam().kind);
  }
  Device& device() { return *backend_.device; }

 private:
  Backend backend_;
};
INSTANTIATE_TEST_SUITE_P(Every, DeviceMemory,
                         ::testing::Values(Subject{BackendKind::reference},
                                           Subject{BackendKind::cuda, CpuPath::automatic, true},
                                           Subject{BackendKind::cuda}),
                         name_of_subject);

TEST_P(DeviceMemory, BeginsAsZerosAndGivesBackWhatWasUploaded) {
  for (const size_t bytes : {size_t{1}, size_t{63}, size_t{4096}, (size_t{9} << 20) + 7}) {
    Tensor memory(device(), DType::uint8, {static_cast<int64_t>(bytes)});
    std::byte* const start = memory.view().data;
    EXPECT_EQ(reinterpret_cast<uintptr_t>(start) % 64, 0u);
    std::vector<std::byte> host(bytes, std::byte{1});
    device().download(host.data(), start, bytes);
    EXPECT_EQ(host, std::vector<std::byte>(bytes));

    for (size_t i = 0; i < bytes; ++i) host[i] = static_cast<std::byte>(hashed(i));
    std::vector<std::byte> sent = host;
    device().upload(start, sent.data(), bytes);
    std::fill(sent.begin(), sent.end(), std::byte{0});  // upload has read it
    device().download(sent.data(), start, bytes);
    EXPECT_EQ(sent, host);
    device().download(sent.data(), start + bytes / 2, bytes - bytes / 2);
    EXPECT_TRUE(std::equal(host.begin() + static_cast<std::ptrdiff_t>(bytes / 2), host.end(), sent.begin()));
  }
  device().synchronize();
}

TEST_P(DeviceMemory, NamesItselfAndWhatIsFree) {
  EXPECT_FALSE(device().description().empty());
  EXPECT_GT(device().free_memory(), size_t{1} << 20);
}

}  // namespace
}  // namespace maniple
