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
  Ops& ops() { return *backend_.ops; }
  // CPU backends rely on zeros, the emulation spoils its memory, and a GPU's holds what was there.
  bool begins_as_it_should(const Tensor& tensor) {
    const bool spoilt = GetParam().kind == BackendKind::cuda;
    return (spoilt && !GetParam().emulated) || holds(tensor, spoilt ? 0xff : 0);
  }
  bool holds(const Tensor& tensor, uint8_t value) {
    std::vector<std::byte> host(tensor.view().bytes());
    device().download(host.data(), tensor.view().data, host.size());
    return static_cast<size_t>(std::ranges::count(host, std::byte{value})) == host.size();
  }

 private:
  Backend backend_;
};
INSTANTIATE_TEST_SUITE_P(Every, DeviceMemory,
                         ::testing::Values(Subject{BackendKind::reference},
                                           Subject{BackendKind::cuda, CpuPath::automatic, true},
                                           Subject{BackendKind::cuda}),
                         name_of_subject);

TEST_P(DeviceMemory, GivesBackWhatWasUploaded) {
  for (const size_t bytes : {size_t{1}, size_t{63}, size_t{4096}, size_t{300'001}, (size_t{9} << 20) + 7}) {
    Tensor memory(device(), DType::uint8, {static_cast<int64_t>(bytes)});
    std::byte* const start = memory.view().data;
    EXPECT_EQ(reinterpret_cast<uintptr_t>(start) % 64, 0u);
    EXPECT_TRUE(begins_as_it_should(memory));

    std::vector<std::byte> host(bytes);
    for (size_t i = 0; i < bytes; ++i) host[i] = static_cast<std::byte>(hashed(i));
    std::vector<std::byte> sent = host;
    device().upload(start, sent.data(), bytes);
    std::fill(sent.begin(), sent.end(), std::byte{0});  // upload has read it
    device().download(sent.data(), start, bytes);
    EXPECT_EQ(sent, host);
    device().download(sent.data(), start + bytes / 2, bytes - bytes / 2);
    EXPECT_TRUE(std::equal(host.begin() + static_cast<std::ptrdiff_t>(bytes / 2), host.end(), sent.begin()));

    device().clear(start + bytes / 3, bytes / 2);
    std::fill_n(host.begin() + static_cast<std::ptrdiff_t>(bytes / 3), bytes / 2, std::byte{0});
    device().download(sent.data(), start, bytes);
    EXPECT_EQ(sent, host);
  }
  EXPECT_TRUE(holds(zeroed(device(), DType::uint8, {300'001}), 0));
  device().synchronize();
}

// More than a few huge pages of tensors that are smaller than one; what is freed is used again, as new.
TEST_P(DeviceMemory, TensorsOfAMegabyteKeepTheirBytesWhileOthersComeAndGo) {
  constexpr int64_t bytes = (1 << 20) + 3;
  std::vector<Tensor> tensors(40);
  for (int round = 0; round < 3; ++round) {
    for (size_t i = 0; i < tensors.size(); i += round == 0 ? 1 : 2) {
      tensors[i] = Tensor();
      tensors[i] = Tensor(device(), DType::uint8, {bytes});
      EXPECT_TRUE(begins_as_it_should(tensors[i]));
      const std::vector<std::byte> host(bytes, static_cast<std::byte>(i + 1));
      device().upload(tensors[i].view().data, host.data(), host.size());
    }
    for (size_t i = 0; i < tensors.size(); ++i)
      EXPECT_TRUE(holds(tensors[i], static_cast<uint8_t>(i + 1))) << i;
  }
  tensors.clear();
  EXPECT_TRUE(begins_as_it_should(Tensor(device(), DType::uint8, {bytes})));
}

TEST_P(DeviceMemory, AWeightIsZeroUntilItIsPacked) {
  for (const WeightFormat format : {WeightFormat::dense, WeightFormat::int8, WeightFormat::fp8,
                                    WeightFormat::int4, WeightFormat::mxfp4}) {
    WeightShape shape{.dtype = DType::bf16, .rows = 96, .columns = 328};
    shape.format = format;
    if (format != WeightFormat::dense) shape.group = 64;
    shape.zeros = format == WeightFormat::int8 || format == WeightFormat::int4;
    if (format == WeightFormat::mxfp4) shape.scale = DType::e8m0;
    const Weight weight = ops().make_weight(shape);
    EXPECT_TRUE(weight.packed && holds(weight.packed, 0) && holds(weight.scales, 0) &&
                holds(weight.zero_points, 0))
        << name_of(format);
    EXPECT_EQ(static_cast<bool>(weight.zero_points), shape.zeros);
  }
}

TEST_P(DeviceMemory, NamesItselfAndWhatIsFree) {
  EXPECT_FALSE(device().description().empty());
  EXPECT_GT(device().free_memory(), size_t{1} << 20);
}

}  // namespace
}  // namespace maniple
