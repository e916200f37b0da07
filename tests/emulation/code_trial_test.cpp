// A library that computes what cuBLASLt's documentation says, one that has scales elsewhere, and one that refuses.
#include <kernels/cuda/code_trial.hpp>
#include <kernels/subjects.hpp>
#include <support/code_products.hpp>

namespace maniple {
namespace {

using namespace testing;
using cuda::TrialResult;

struct Library : cuda::Gemm {
  int64_t moved = 0;  // places by which scales of inputs are moved
  int32_t added = 0;  // to each integer sum
  bool refuses = false;
  void multiply(device::Stream, ConstTensorView x, ConstTensorView weight, ConstTensorView, TensorView out,
                cuda::BlockScales scales) override {
    if (refuses) fail(ExitCode::fault, "no algorithm");
    multiply_codes(x, weight, scales.x ? scales.x + moved : nullptr, scales.weight, out);
    if (out.dtype == DType::int32)
      for (int64_t i = 0; i < out.shape.elements(); ++i) out.as<int32_t>()[i] += added;
  }
};

TEST(CodeTrial, TellsARightLibraryFromAWrongOneAndFromOneThatRefuses) {
  const Backend host = backend_of(BackendKind::reference);
  const auto result = [&](Library& library, DType codes, bool blocks) {
    return cuda::try_codes(*host.device, {}, library, codes, blocks);
  };
  Library right, moved, added, refusing;
  moved.moved = 1;
  added.added = 1;
  refusing.refuses = true;
  for (const auto& [codes, blocks] :
       {std::pair(DType::uint8, false), {DType::fp8, false}, {DType::fp8, true}}) {
    EXPECT_EQ(result(right, codes, blocks), TrialResult::right);
    EXPECT_EQ(result(refusing, codes, blocks), TrialResult::refused);
  }
  EXPECT_EQ(result(moved, DType::fp8, true), TrialResult::wrong);
  EXPECT_EQ(result(added, DType::uint8, false), TrialResult::wrong);
}

}  // namespace
}  // namespace maniple
