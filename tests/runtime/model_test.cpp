// Logits of whole models against golden data, teacher-forced, on every backend and instruction path, and on
// the CUDA backend under emulation.
#include <gtest/gtest.h>
#include <emulation/emulated_backend.hpp>
#include <kernels/backend.hpp>
#include <kernels/factory/make_backend.hpp>
#include <parallel/self/self_world.hpp>
#include <runtime/checkpoint/loading/known_tensors.hpp>
#include <runtime/checkpoint/loading/kv_scales.hpp>
#include <runtime/checkpoint/loading/model_config.hpp>
#include <runtime/checkpoint/loading/weight_loader.hpp>
#include <runtime/execution/batch_builder.hpp>
#include <runtime/execution/kv_cache.hpp>
#include <support/cover.hpp>
#include <support/golden.hpp>

#include <cmath>

namespace maniple {
namespace {

using testing::Golden;
using testing::GoldenSequence;

// `part` of a pipeline of as many stages as `ends` has entries: layers up to ends[part].
RankPlan stage(const std::vector<int64_t>& ends, size_t part) {
  RankPlan plan;
  plan.grid.pipeline = static_cast<int>(ends.size());
  plan.position.pipeline = static_cast<int>(part);
  plan.layers = {part == 0 ? 0 : ends[part - 1], ends[part]};
  return plan;
}

// One model on one rank, in parts that run one after the other, fed whole sequences.
class LoadedModel {
 public:
  LoadedModel(const std::string& name, Backend backend, DType dtype,
              const std::vector<RankPlan>& parts = {RankPlan{}})
      : config_(read_model_config(testing::model_directory(name))),
        backend_(std::move(backend)),
        dtype_(dtype),
        cache_dtype_(dtype) {
    const int self[] = {0};
    groups_.tensor = world_.make_group(self, *backend_.ops);
    WeightIndex index = read_index(testing::model_directory(name));
    read_known_tensors(index, config_, *scheme_of(config_));
    check_names(*make_stored_model(config_, {}, index), index, *scheme_of(config_));
    if (scheme_of(config_)->keeps_fp8_kv()) cache_dtype_ = DType::fp8;
    for (const RankPlan& part : parts) {
      Model& model = *parts_.emplace_back(make_stored_model(config_, part, index));
      std::atomic<uint32_t> blocks = 0;
      make_weights(model, *backend_.ops, dtype, *scheme_of(config_), &index);
      const WeightNeeds needs[] = {needs_of(model, index, *scheme_of(config_))};
      const std::vector<int> replicas[] = {{0}};
      load_weights(model, *backend_.ops, index, *scheme_of(config_), plan_reads(needs, index, 1),
                   world_.transport(), replicas, blocks);
      EXPECT_GE(blocks, model.parameters().size());
      model.prepare(*backend_.ops, max_len);
      kv_scales_.push_back(kv_scales_of(index, *scheme_of(config_),
                                        part.layers.value_or(IndexRange{0, config_.num_layers()})));
    }
  }

  // fp32 [rows, vocabulary]: the logits after each of the last `rows` tokens.
  std::vector<float> logits(const std::vector<int32_t>& tokens, size_t rows) {
    const int64_t block_size = 32, blocks = max_len / block_size;
    BatchBuilder builder(*backend_.ops, {max_len, 1, blocks, block_size});
    std::vector<int32_t> table(static_cast<size_t>(blocks));
    for (int32_t i = 0; i < blocks; ++i) table[static_cast<size_t>(i)] = static_cast<int32_t>(blocks) - 1 - i;
    const SamplingParams sampling;
    SequenceView view;
    view.query_length = static_cast<uint32_t>(tokens.size());
    view.known_tokens = tokens;
    view.blocks = table;
    view.sampling = &sampling;
    StepBatch batch = builder.build(std::span(&view, 1));
    std::vector<int32_t> wanted;
    for (size_t i = tokens.size() - rows; i < tokens.size(); ++i) wanted.push_back(static_cast<int32_t>(i));
    Tensor sampled_rows(*backend_.device, DType::int32, {static_cast<int64_t>(rows)});
    const TensorView on_device = sampled_rows.view();
    backend_.device->upload(on_device.data, reinterpret_cast<const std::byte*>(wanted.data()),
                            on_device.bytes());
    batch.sampled_rows = on_device;

    Workspace workspace(*backend_.device, {size_t{192} << 20, size_t{64} << 20});
    std::atomic<uint32_t> layer = 0;
    ForwardContext context{*backend_.ops, workspace, groups_, dtype_, layer};
    TensorView out = builder.token_ids();
    for (size_t i = 0; i < parts_.size(); ++i) {
      const auto& part = parts_[i];
      const HeadLayout heads = part->heads();
      KvCache cache(*backend_.device, {part->num_layers(), KvLayout::of(heads, block_size, cache_dtype_)},
                    blocks, kv_scales_[i]);
      out = part->forward(batch, out, cache.pages(), context);
      backend_.device->synchronize();  // before its cache goes
    }
    const size_t width = static_cast<size_t>(out.shape[1]),
                 vocabulary = static_cast<size_t>(config_.vocab_size);
    std::vector<float> padded(rows * width), logits;
    backend_.device->download(reinterpret_cast<std::byte*>(padded.data()), out.data, out.bytes());
    for (auto row = padded.begin(); row != padded.end(); row += static_cast<std::ptrdiff_t>(width))
      logits.insert(logits.end(), row, row + static_cast<std::ptrdiff_t>(vocabulary));
    return logits;
  }

 private:
  static constexpr int64_t max_len = 2048;
  ModelConfig config_;
  SelfWorld world_;
  Backend backend_;
  DType dtype_, cache_dtype_;
  Groups groups_;
  std::vector<std::unique_ptr<Model>> parts_;
  std::vector<std::vector<KvScales>> kv_scales_;  // of each part
};

struct Errors {
  double max_abs = 0;
  double square_sum = 0;
  size_t count = 0;
  std::vector<double> rows;  // rms of each row of logits
  double rms() const { return std::sqrt(square_sum / static_cast<double>(count)); }
};

double median(std::vector<double> values) {
  std::ranges::nth_element(values, values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2));
  return values[values.size() / 2];
}

Errors errors_of(const std::string& name, Backend backend, DType dtype) {
  const Golden golden = testing::read_golden(name);
  LoadedModel model(name, std::move(backend), dtype);
  Errors errors;
  for (const GoldenSequence& sequence : golden.sequences) {
    const size_t vocabulary =
        static_cast<size_t>(read_model_config(testing::model_directory(name)).vocab_size);
    const size_t rows = sequence.logits.size() / vocabulary;
    std::vector<int32_t> tokens = sequence.prompt;
    tokens.insert(tokens.end(), sequence.tokens.begin(),
                  sequence.tokens.begin() + static_cast<std::ptrdiff_t>(rows) - 1);
    const std::vector<float> logits = model.logits(tokens, rows);
    double of_row = 0;
    for (size_t i = 0; i < logits.size(); ++i) {
      const double error = std::abs(double{logits[i]} - double{sequence.logits[i]});
      errors.max_abs = std::max(errors.max_abs, std::isnan(error) ? INFINITY : error);
      errors.square_sum += error * error;
      of_row += error * error;
      if ((i + 1) % vocabulary == 0)
        errors.rows.push_back(std::sqrt(std::exchange(of_row, 0) / static_cast<double>(vocabulary)));
    }
    errors.count += logits.size();
  }
  return errors;
}

// In CI two a model and type, in turn: with these models each of them has several every day.
std::vector<BackendOptions> backends_for(const std::string& model, DType dtype) {
  std::vector<BackendOptions> backends{{.kind = BackendKind::reference}};
  for (const CpuPath path : available_cpu_paths())
    backends.push_back({.kind = BackendKind::cpu, .cpu_path = path, .threads = 2});
  if (testing::whole() || backends.size() <= 2) return backends;
  std::vector<std::string> models;
  for (const auto& entry : std::filesystem::directory_iterator(test_data() / "models"))
    models.push_back(entry.path().filename());
  std::ranges::sort(models);
  const size_t turn = static_cast<size_t>(std::ranges::find(models, model) - models.begin()) +
                      testing::cover_seed() + (dtype == DType::bf16 ? 1 : 0);
  return {backends[turn % backends.size()], backends[(turn + 2) % backends.size()]};
}

std::string title(const BackendOptions& backend) {
  return backend.kind == BackendKind::reference ? "reference" : std::string(name_of(backend.cpu_path));
}

class GoldenLogits : public ::testing::TestWithParam<std::string> {};

TEST_P(GoldenLogits, AreMetInFp32) {
  const std::optional<double> rms = testing::read_golden(GetParam()).fp32_rms;
  for (const BackendOptions& backend : backends_for(GetParam(), DType::fp32)) {
    const Errors errors = errors_of(GetParam(), make_backend(backend), DType::fp32);
    if (rms)
      EXPECT_LE(errors.rms(), *rms) << title(backend);
    else
      EXPECT_LT(errors.max_abs, 1e-3) << title(backend);  // logits reach 40: fp32 rounding over a few layers
  }
}

// Where one token goes to other experts, or a code flips, a row of logits is far away, and decides the rms and the maximum of
// a tiny model alone: tests/data/models/README.md has the numbers. The row in the middle does not depend on such luck.
void expect_within_yardstick(const Golden& golden, const Errors& errors, const std::string& title) {
  if (!golden.bf16_median_row) {
    EXPECT_LE(errors.rms(), 1.5 * golden.bf16_rms) << title;
    EXPECT_LE(errors.max_abs, 2 * golden.bf16_max_abs) << title;
    return;
  }
  const double usual = *golden.bf16_median_row;
  EXPECT_LE(median(errors.rows), 1.25 * usual) << title;
  const auto far = std::ranges::count_if(errors.rows, [&](double row) { return !(row <= 4 * usual); });
  EXPECT_LE(far, static_cast<int64_t>(errors.rows.size() / 8)) << title;
}

TEST_P(GoldenLogits, AreMetInBf16WithinTheYardstickBesideThem) {
  const Golden golden = testing::read_golden(GetParam());
  for (const BackendOptions& backend : backends_for(GetParam(), DType::bf16))
    expect_within_yardstick(golden, errors_of(GetParam(), make_backend(backend), DType::bf16),
                            title(backend));
}

// The last part of a tied model has a head of its own.
TEST(Parts, OfAModelGiveTheBitsOfTheWhole) {
  for (const char* name : {"shakespeare", "tiny-qwen3", "tiny-llama3"}) {
    const Golden golden = testing::read_golden(name);
    const std::vector<int32_t>& tokens = golden.sequences.front().prompt;
    const int64_t layers = read_model_config(testing::model_directory(name)).num_layers();
    for (const DType dtype : {DType::fp32, DType::bf16}) {
      const auto logits = [&](const std::vector<RankPlan>& parts) {
        return LoadedModel(name, make_backend({.kind = BackendKind::cpu}), dtype, parts)
            .logits(tokens, tokens.size());
      };
      const std::vector<float> whole = logits({RankPlan{}});
      EXPECT_EQ(logits({stage({1, layers}, 0), stage({1, layers}, 1)}), whole) << name;
      if (layers > 2) {
        const std::vector<int64_t> ends{1, layers - 1, layers};
        EXPECT_EQ(logits({stage(ends, 0), stage(ends, 1), stage(ends, 2)}), whole) << name;
      }
    }
  }
}

struct CudaSubject {
  std::string model;
  bool emulated;
  std::vector<DType> types{DType::fp32, DType::bf16};
};

class CudaGoldenLogits : public ::testing::TestWithParam<CudaSubject> {
 protected:
  void SetUp() override {
    if (!GetParam().emulated && visible_gpus() == 0) GTEST_SKIP() << "no GPU: none is visible";
  }
  static Errors errors(DType dtype) {
    return errors_of(
        GetParam().model,
        GetParam().emulated ? emulation::emulated_cuda_backend(1) : make_backend({.kind = BackendKind::cuda}),
        dtype);
  }
};

TEST_P(CudaGoldenLogits, AreMet) {
  const Golden golden = testing::read_golden(GetParam().model);
  for (const DType dtype : GetParam().types) {
    if (dtype == DType::bf16) {
      expect_within_yardstick(golden, errors(dtype), GetParam().model);
      continue;
    }
    const Errors exact = errors(dtype);
    if (golden.fp32_rms)
      EXPECT_LE(exact.rms(), *golden.fp32_rms);
    else
      EXPECT_LT(exact.max_abs, 1e-3);
  }
}

std::string identifier(std::string name) {
  std::replace(name.begin(), name.end(), '-', '_');
  return name;
}

std::vector<CudaSubject> cuda_subjects() {
  const std::vector<std::string> models{"tiny-qwen3",
                                        "tiny-qwen3-kv1",
                                        "tiny-llama3",
                                        "tiny-qwen2",
                                        "tiny-mistral",
                                        "shakespeare",
                                        "tiny-qwen3-moe",
                                        "tiny-mixtral",
                                        "q-gptq-act",
                                        "q-awq",
                                        "q-w4a16",
                                        "q-int8",
                                        "q-int8-1layer",
                                        "q-fp8-channel",
                                        "q-fp8-block-1layer",
                                        "q-fp8-static-kv",
                                        "q-moe-gptq",
                                        "q-moe-int8",
                                        "q-moe-fp8-block",
                                        "q-mxfp4-gpt-oss",
                                        "tiny-glm4-moe",
                                        "tiny-hy3",
                                        "tiny-minimax-m2",
                                        "tiny-qwen2-moe",
                                        "tiny-deepseek-v2-lite",
                                        "tiny-deepseek-v3",
                                        "tiny-glm4-moe-lite",
                                        "tiny-gpt-oss"};
  std::vector<CudaSubject> subjects;
  for (const std::string& model : models) subjects.push_back({model, false});
  // The emulation is slow: each model in one of the types, and the largest on one day of four.
  for (const auto& [model, dtype] : testing::each_value(models, std::vector{DType::fp32, DType::bf16})) {
    if (testing::whole()) {
      if (dtype == DType::fp32) subjects.push_back({model, true});
    } else if (model != "shakespeare" || testing::cover_seed() % 4 == 0) {
      subjects.push_back({model, true, {dtype}});
    }
  }
  return subjects;
}
INSTANTIATE_TEST_SUITE_P(Models, CudaGoldenLogits, ::testing::ValuesIn(cuda_subjects()),
                         [](const auto& param) {
                           return (param.param.emulated ? "emulated_cuda_" : "cuda_") +
                                  identifier(param.param.model);
                         });

// All of the folder, so that models from tests/fuzz/quantised_models.py pass through too.
std::vector<std::string> quantised_models() {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(test_data() / "models"))
    if (std::string name = entry.path().filename(); name.starts_with("q-")) names.push_back(std::move(name));
  return names;
}
INSTANTIATE_TEST_SUITE_P(Quantised, GoldenLogits, ::testing::ValuesIn(quantised_models()),
                         [](const auto& param) { return identifier(param.param); });
// An empty list makes no test, and what makes no test cannot fail.
TEST(QuantisedModels, AreInTheFolder) { EXPECT_FALSE(quantised_models().empty()); }

INSTANTIATE_TEST_SUITE_P(Models, GoldenLogits,
                         ::testing::Values("tiny-qwen3", "tiny-qwen3-kv1", "tiny-llama3", "tiny-qwen2",
                                           "tiny-mistral", "shakespeare", "tiny-qwen3-moe", "tiny-mixtral",
                                           "tiny-glm4-moe", "tiny-hy3", "tiny-minimax-m2", "tiny-qwen2-moe",
                                           "tiny-deepseek-v2-lite", "tiny-deepseek-v3", "tiny-glm4-moe-lite",
                                           "tiny-gpt-oss"),
                         [](const auto& param) { return identifier(param.param); });

}  // namespace
}  // namespace maniple
