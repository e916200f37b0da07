#include <kernels/subjects.hpp>

#include <array>
#include <functional>

namespace maniple {
namespace {

using namespace testing;

class Contracts : public Conformance {};
INSTANTIATE_TEST_SUITE_P(Every, Contracts, ::testing::ValuesIn(all_subjects()), name_of_subject);

// Calls with one shape or type that is wrong, of the operations that need no cache and no routing: each ends with its operation's contract
// and writes nothing.
TEST_P(Contracts, AreCheckedBeforeAnythingIsWritten) {
  constexpr DType bf16 = DType::bf16, fp32 = DType::fp32;
  const auto some = [&](DType dtype, const Shape& shape) { return random_tensor(device(), dtype, shape, 1); };
  const Weight weight = ops().make_weight({.dtype = bf16, .rows = 6, .columns = 16});
  const Tensor x = some(bf16, {2, 16}), wide = some(fp32, {2, 16}), narrow = some(bf16, {2, 15}),
               bias = some(bf16, {16}), norm = some(fp32, {15}), logits = some(fp32, {2, 8});
  const std::array<SamplingRow, 3> draws{};
  std::vector<Candidate> drawn(3);
  std::vector<float> maxima(3);
  std::vector<CandidateList> lists(1);
  GuardedTensor out(device(), bf16, {2, 6}), same(device(), bf16, {2, 16}), sums(device(), fp32, {2, 16});
  fill(out.view(), 7);
  fill(same.view(), 7);
  fill(sums.view(), 7);
  const Tensor both = int_tensor(device(), {0, 1});
  const IndexRange shard{0, 8};
  const ConstTensorView parts = x.view().reshaped({1, 2, 16});
  const std::vector<std::pair<std::string, std::function<void()>>> calls{
      {"matmul: ", [&] { ops().matmul(narrow, weight, {}, out.view()); }},
      {"matmul: ", [&] { ops().matmul(wide, weight, {}, out.view()); }},
      {"matmul: ", [&] { ops().matmul(x, weight, bias, out.view()); }},
      {"rms_norm: ", [&] { ops().rms_norm(x, norm, 1e-6f, same.view()); }},
      {"rms_norm: ", [&] { ops().rms_norm(x, bias, 1e-6f, same.view()); }},
      {"add_residual: ", [&] { ops().add_residual(narrow, same.view()); }},
      {"gate_mul: ", [&] { ops().gate_mul(GateActivation::silu, x, same.view()); }},
      {"add: ", [&] { ops().add(x, wide, same.view()); }},
      {"add_bias: ", [&] { ops().add_bias(same.view(), bias); }},
      {"add_gated: ", [&] { ops().add_gated(wide, wide, sums.view()); }},
      {"gather_rows: ", [&] { ops().gather_rows(narrow, both, same.view()); }},
      {"row_abs_maxima: ", [&] { ops().row_abs_maxima(x, sums.view()); }},
      {"gather_columns: ", [&] { ops().gather_columns(parts, both, same.view()); }},
      {"widen: ", [&] { ops().widen(narrow, sums.view()); }},
      {"embed: ", [&] { ops().embed(both, weight, shard, same.view()); }},
      {"fp32 logits of a shard", [&] { ops().row_maxima(logits, shard, maxima); }},
      {"fp32 logits of a shard", [&] { ops().best_candidates(logits, shard, draws, {}, drawn); }},
      {"candidates: ", [&] { ops().candidates(logits, shard, both, lists); }}};
  for (const auto& [name, call] : calls) {
    SCOPED_TRACE(name);
    try {
      call();
      ADD_FAILURE() << "accepted";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ExitCode::internal);
      EXPECT_EQ(std::string(error.what()).rfind(name, 0), 0U) << error.what();
    }
  }
  for (const TensorView view : {out.view(), same.view(), sums.view()})
    for (int64_t i = 0; i < view.shape.elements(); ++i) ASSERT_EQ(get(view, i), 7);
  EXPECT_TRUE(out.intact() && same.intact() && sums.intact());
}

}  // namespace
}  // namespace maniple
