// Quantised checkpoints on every grid: the weights of each rank multiply as the whole matrices do.
#include "checkpoint_testing.hpp"

#include <kernels/factory/make_backend.hpp>
#include <kernels/reference/rows.hpp>
#include <runtime/checkpoint/extents.hpp>
#include <runtime/checkpoint/loading/known_tensors.hpp>
#include <runtime/checkpoint/loading/model_config.hpp>
#include <runtime/checkpoint/loading/random_weights.hpp>
#include <runtime/checkpoint/loading/weight_loader.hpp>
#include <support/cover.hpp>
#include <support/rank_plans.hpp>
#include <support/safetensors_writer.hpp>
#include <support/thread_world.hpp>

#include <cmath>
#include <cstring>
#include <set>

namespace maniple {
namespace {

constexpr const char* quantised_models[] = {
    "q-gptq",        "q-gptq-act",    "q-awq",           "q-w4a16",     "q-w8a16",           "q-int8",
    "q-int8-1layer", "q-fp8-channel", "q-fp8-static-kv", "q-fp8-block", "q-fp8-block-1layer"};
constexpr const char* quantised_mixtures[] = {"q-moe-gptq",     "q-moe-awq",         "q-moe-w4a16",
                                              "q-moe-int8",     "q-moe-fp8-channel", "q-moe-fp8-block",
                                              "q-mxfp4-gpt-oss"};

WeightIndex index_of(const std::filesystem::path& directory, const ModelConfig& config) {
  WeightIndex index = read_index(directory);
  read_known_tensors(index, config, *scheme_of(config));
  return index;
}

std::vector<std::byte> bytes_of(const WeightIndex& index, const StoredBox& box) {
  const IndexedTensor& tensor = index.tensors.at(box.tensor);
  const auto item = static_cast<int64_t>(tensor.info.item_bytes());
  const Extent& extent = tensor.extents.at(0);
  const InputFile file = open_same(index.files[extent.file]);
  std::vector<std::byte> bytes(static_cast<size_t>(box.rows.size() * box.columns.size() * item));
  for (int64_t row = 0; row < box.rows.size(); ++row)
    file.read(extent.offset +
                  static_cast<uint64_t>((box.rows.begin + row) * extent.row_bytes + box.columns.begin * item),
              std::span(bytes).subspan(static_cast<size_t>(row * box.columns.size() * item),
                                       static_cast<size_t>(box.columns.size() * item)));
  return bytes;
}

int64_t columns_of(const WeightPiece& piece) {
  const int rank = piece.source_shape.rank();
  return rank > 1 ? piece.source_shape[rank - 1] : 1;
}

// W of a whole matrix or vector, its columns in the order of the inputs.
std::vector<float> whole_matrix(const QuantScheme& scheme, const WeightIndex& index, const WeightSpec& spec,
                                const WeightPiece& piece) {
  const std::unique_ptr<const StoredWeight> stored = stored_weight(scheme, spec, piece, &index);
  const ModuleQuantization& q = stored->quantization();
  const int64_t columns = columns_of(piece), rows = piece.source_shape.elements() / columns;
  const Box all{{0, rows}, {0, columns}};
  const std::vector<StoredBox> needs = stored->needs(all);
  std::vector<std::vector<std::byte>> bytes;
  std::vector<StoredPart> parts;
  for (const StoredBox& need : needs) bytes.push_back(bytes_of(index, need));
  for (size_t i = 0; i < needs.size(); ++i)
    parts.push_back({&index.tensors.at(needs[i].tensor).info, {needs[i].rows, needs[i].columns}, bytes[i]});
  DecodedRows memory;
  const RawRows raw = stored->decode(all, parts, memory);
  if (q.format == WeightFormat::dense) return reference::read(raw.values, 0, rows * columns);
  const std::vector<float> scales = reference::read(raw.scales, 0, raw.scales.shape.elements());
  const int64_t group = q.group < 0 ? columns : q.group, groups = raw.scales.shape[1];
  std::vector<float> values(static_cast<size_t>(rows * columns));
  for (int64_t row = 0; row < rows; ++row)
    for (int64_t column = 0; column < columns; ++column) {
      const int64_t at = row * groups + column / group,
                    input = q.order.empty() ? column : q.order[static_cast<size_t>(column)];
      const uint8_t code = raw.values.as<uint8_t>()[row * columns + column];
      Float8 number;
      number.bits = code;
      constexpr float e2m1[] = {0, 0.5F, 1, 1.5F, 2, 3, 4, 6, 0, -0.5F, -1, -1.5F, -2, -3, -4, -6};
      const int zero = q.zeros ? raw.zeros.as<uint8_t>()[at] : q.format == WeightFormat::int4 ? 8 : 128;
      values[static_cast<size_t>(row * columns + input)] =
          (q.format == WeightFormat::fp8     ? static_cast<float>(number)
           : q.format == WeightFormat::mxfp4 ? e2m1[code & 15]
                                             : static_cast<float>(code - zero)) *
          scales[static_cast<size_t>(at)];
    }
  return values;
}

// The rows of W, by products with single inputs: of 1, or of what a fixed rule rounds to 1.
std::vector<float> columns_of(Ops& ops, const Weight& weight) {
  const int64_t k = weight.columns;
  const float one = weight.activation == ActivationRule::fixed ? weight.input_scale : 1;
  std::vector<float> inputs(static_cast<size_t>(k * k)), out(static_cast<size_t>(k * weight.rows));
  for (int64_t i = 0; i < k; ++i) inputs[static_cast<size_t>(i * k + i)] = one;
  ops.matmul(view_of(inputs.data(), DType::fp32, {k, k}), weight, {},
             view_of(out.data(), DType::fp32, {k, weight.rows}));
  for (float& value : out) value /= one;
  return out;
}

void expect_weights(Model& model, Ops& ops, const QuantScheme& scheme, const WeightIndex& index) {
  for (const Parameter* parameter : model.parameters()) {
    const WeightSpec& spec = parameter->spec;
    const std::vector<float> got =
        spec.role == WeightRole::matrix ? columns_of(ops, parameter->matrix) : std::vector<float>{};
    std::set<int64_t> covered;
    for (const WeightPiece& piece : spec.pieces) {
      const std::vector<float> want = whole_matrix(scheme, index, spec, piece);
      const std::vector<int32_t> order = stored_weight(scheme, spec, piece, &index)->quantization().order;
      size_t wrong = 0;
      for (int64_t row = piece.rows.begin; row < piece.rows.end; ++row)
        for (int64_t column = piece.columns.begin; column < piece.columns.end; ++column) {
          int64_t local = row - piece.rows.begin, local_column = column - piece.columns.begin;
          if (piece.transposed) std::swap(local, local_column);
          if (local % piece.row_step != piece.row_offset) continue;
          local = local / piece.row_step + piece.local_row;
          const int64_t input = order.empty() ? column : order[static_cast<size_t>(column)];
          const float value = want[static_cast<size_t>(row * columns_of(piece) + input)];
          if (spec.role == WeightRole::vector) {
            wrong += parameter->vector.view().as<float>()[local] != value;
            continue;
          }
          const float found = got[static_cast<size_t>(local_column * spec.rows + local)];
          wrong += !(std::abs(found - value) <=
                     1e-6F * std::abs(value));  // an input of 1 may be rounded to a code
          covered.insert(local);
        }
      EXPECT_EQ(wrong, 0U) << piece.source.tensor() << " of " << want.size();
    }
    for (int64_t row = 0; row < spec.rows && spec.role == WeightRole::matrix; ++row)
      EXPECT_TRUE(covered.contains(row) || got[static_cast<size_t>(row)] == 0)
          << "a row that no piece covers";
  }
}

// Loads as a job does, with rounds so small that the tensors of a module arrive apart.
void load_on(
    int data, int tensor, const std::filesystem::path& directory, const ModelConfig& config,
    const QuantScheme& scheme, int expert = 1, void (*change)(Model&) = [](Model&) {}) {
  const WeightIndex index = index_of(directory, config);
  const auto model_of = [&](const RankPlan& plan) {
    std::unique_ptr<Model> model = make_stored_model(config, plan, index);
    change(*model);
    return model;
  };
  check_names(*model_of({}), index, scheme);
  std::vector<WeightNeeds> needs;
  for (int member = 0; member < tensor; ++member)
    needs.push_back(needs_of(*model_of(testing::plan_of({member, tensor}, expert)), index, scheme));
  std::vector<std::vector<int>> replicas(static_cast<size_t>(data));
  for (int rank = 0; rank < data * tensor; ++rank)
    replicas[static_cast<size_t>(rank / tensor)].push_back(rank);
  std::atomic<uint64_t> read = 0;
  run_transports(data * tensor, [&](Transport& transport) {
    const WeightIndex own = index_from(to_bytes(index));
    const Backend backend = make_backend({.kind = BackendKind::reference});
    const std::unique_ptr<Model> model =
        model_of(testing::plan_of({transport.rank() % tensor, tensor}, expert));
    make_weights(*model, *backend.ops, DType::fp32, scheme, &own);
    std::atomic<uint32_t> blocks = 0;
    read += load_weights(*model, *backend.ops, own, scheme, plan_reads(needs, own, data, 5'000), transport,
                         replicas, blocks)
                .count;
    expect_weights(*model, *backend.ops, scheme, own);
  });
  uint64_t stored = 0;
  for (const auto& [name, info] : index.tensors)
    if (info.value.empty() && !scheme.decides(name, index) && !name.ends_with(".weight_shape"))
      stored += info.info.byte_size;
  EXPECT_EQ(read, stored) << "a byte is read once a job";
}

TEST(QuantisedLoading, GivesEveryRankItsPartOnEveryGrid) {
  const std::vector<std::pair<int, int>> grids{{1, 1}, {1, 2}, {1, 3}, {1, 4}, {2, 2}, {1, 8}};
  for (const char* name : quantised_models) {
    const ModelConfig config = read_model_config(model_directory(name));
    const std::unique_ptr<const QuantScheme> scheme = scheme_of(config);
    for (const auto& [data, tensor] : testing::sampled(grids, 3)) {
      if (config.num_heads % tensor != 0) continue;
      SCOPED_TRACE(fmt::format("{} dp {} tp {}", name, data, tensor));
      load_on(data, tensor, model_directory(name), config, *scheme);
    }
  }
}

TEST(QuantisedLoading, GivesEveryRankItsExpertsAndItsPartOfThem) {
  const std::vector<std::tuple<int, int, int>> grids{{1, 1, 1}, {1, 2, 1}, {2, 2, 2}, {1, 4, 2}};
  for (const char* name : quantised_mixtures) {
    const ModelConfig config = read_model_config(model_directory(name));
    const std::unique_ptr<const QuantScheme> scheme = scheme_of(config);
    for (const auto& [data, tensor, expert] : testing::sampled(grids, 2)) {
      SCOPED_TRACE(fmt::format("{} dp {} tp {} ep {}", name, data, tensor, expert));
      load_on(data, tensor, model_directory(name), config, *scheme, expert);
    }
  }
}

// Rows of merged products with the even ones first, as rotation in pairs wants them; other products turned around, in numbers.
void rearrange(Model& model) {
  for (Parameter* parameter : model.parameters()) {
    WeightSpec& spec = parameter->spec;
    if (spec.role == WeightRole::vector || spec.fp32 || !spec.grouped.empty() || parameter == model.head() ||
        parameter == model.embedding())
      continue;
    std::vector<WeightPiece> pieces;
    for (WeightPiece piece : spec.pieces) {
      piece.row_step = 2;
      pieces.push_back(piece);
      piece.local_row += (piece.rows.size() + 1) / 2;
      piece.row_offset = 1;
      pieces.push_back(piece);
    }
    if (spec.pieces.size() > 1) {
      spec.pieces = pieces;
      continue;
    }
    spec.decoded = spec.pieces[0].transposed = true;
    spec.slices = 1;
    std::swap(spec.rows, spec.columns);
  }
}

TEST(QuantisedLoading, RearrangesRowsAndDecodesWhatAMatrixOfNumbersNeeds) {
  for (const char* name :
       {"tiny-qwen3-kv1", "q-gptq", "q-awq", "q-w4a16", "q-int8", "q-fp8-channel", "q-fp8-block"}) {
    const ModelConfig config = read_model_config(model_directory(name));
    for (const int tensor : {1, 2}) {
      SCOPED_TRACE(fmt::format("{} tp {}", name, tensor));
      load_on(1, tensor, model_directory(name), config, *scheme_of(config), 1, rearrange);
    }
  }
}

// A checkpoint of one layer whose experts are stored inputs x outputs in one tensor, gate and up interleaved.
void write_stacked_experts(int64_t experts, int64_t hidden, int64_t inner, const std::filesystem::path& to) {
  const auto config = nlohmann::json::parse(fmt::format(
      R"({{"architectures": ["GptOssForCausalLM"], "num_hidden_layers": 1, "hidden_size": {}, "head_dim": 16,
"num_attention_heads": 4, "num_key_value_heads": 4, "vocab_size": 64, "intermediate_size": {}, "num_local_experts": {},
"num_experts_per_tok": 2}})",
      hidden, inner, experts));
  std::ofstream(to / "config.json") << config;
  const std::unique_ptr<Model> model = make_model(read_model_config(to), {});
  std::set<std::string> written;
  std::vector<TensorToWrite> tensors;
  for (const Parameter* parameter : model->parameters())
    for (const WeightPiece& piece : parameter->spec.pieces) {
      const std::string name = piece.source.tensor();
      if (!written.insert(name).second) continue;
      std::vector<int64_t> shape;
      for (int d = 0; d < piece.source_shape.rank(); ++d) shape.push_back(piece.source_shape[d]);
      std::vector<std::byte> bytes;
      for (int64_t i = 0; i < piece.source_shape.elements(); ++i) {
        const BFloat16 value(testing::uniform(tensors.size(), static_cast<uint64_t>(i)));
        bytes.push_back(static_cast<std::byte>(value.bits & 255));
        bytes.push_back(static_cast<std::byte>(value.bits >> 8));
      }
      tensors.push_back({name, "BF16", shape, std::move(bytes)});
    }
  write_safetensors(to / "model.safetensors", tensors);
}

TEST(QuantisedLoading, TakesExpertsApartThatLieInOneTensorTurnedAround) {
  const std::vector<std::tuple<int, int, int>> grids{{1, 1, 1}, {1, 2, 1}, {1, 4, 1},
                                                     {1, 2, 2}, {2, 2, 2}, {1, 4, 2}};
  for (const auto& [experts, hidden, inner] : {std::tuple{8, 40, 24}, {4, 24, 72}, {12, 56, 13}}) {
    const TempDirectory directory;
    write_stacked_experts(experts, hidden, inner, directory.path());
    const ModelConfig config = read_model_config(directory.path());
    for (const auto& [data, tensor, expert] : testing::sampled(grids, 3)) {
      SCOPED_TRACE(
          fmt::format("{} x {} x {}: dp {} tp {} ep {}", experts, hidden, inner, data, tensor, expert));
      load_on(data, tensor, directory.path(), config, *scheme_of(config), expert);
    }
  }
}

TEST(QuantisedLoading, DecodesNoMatrixWithAnOrderOfItsInputs) {
  const ModelConfig config = read_model_config(model_directory("q-gptq-act"));
  const auto load = [&] {
    load_on(1, 1, model_directory("q-gptq-act"), config, *scheme_of(config), 1, rearrange);
  };
  expect_contains(refusal_of(load), "desc_act");
}

// A scheme of nobody: digits of 4 bits, one a byte, and a step for each row. Only this file knows it.
class Digits final : public QuantScheme {
 public:
  std::string description() const override { return "digits"; }

 private:
  class Matrix final : public StoredWeight {
   public:
    Matrix(std::string module, const Shape& shape) : module_(std::move(module)), shape_(shape) {}
    const ModuleQuantization& quantization() const override { return quantization_; }
    std::vector<ExpectedTensor> tensors() const override {
      return {{module_ + ".digits", {"U8"}, {{shape_[0], shape_[1]}}},
              {module_ + ".step", {"F32"}, {{shape_[0]}}}};
    }
    std::vector<StoredBox> needs(const Box& wanted) const override {
      return {{module_ + ".digits", wanted.rows, wanted.columns}, {module_ + ".step", wanted.rows, {0, 1}}};
    }
    RawRows decode(const Box& wanted, std::span<const StoredPart> stored, DecodedRows&) const override {
      const int64_t rows = wanted.rows.size(), width = wanted.columns.size(),
                    first = wanted.rows.begin - stored[0].box.rows.begin;
      return {view_of(&stored[0].bytes[static_cast<size_t>(first * width)], DType::uint8, {rows, width}),
              view_of(&stored[1].bytes[static_cast<size_t>(first) * sizeof(float)], DType::fp32, {rows, 1})};
    }

   private:
    std::string module_;
    Shape shape_;
    ModuleQuantization quantization_{.format = WeightFormat::int4, .scale = DType::fp32};
  };

  std::optional<std::string> left_out(std::string_view) const override { return std::nullopt; }
  std::unique_ptr<const StoredWeight> coded(const std::string& module, const Shape& shape,
                                            const WeightIndex*) const override {
    return std::make_unique<Matrix>(module, shape);
  }
};

TEST(QuantisedLoading, TakesASchemeThatNoOtherFileKnows) {
  const std::filesystem::path plain = model_directory("tiny-qwen3");
  const ModelConfig config = read_model_config(plain);
  const WeightIndex index = read_index(plain);
  std::vector<TensorToWrite> tensors;
  for (const auto& [name, tensor] : index.tensors) {
    const int64_t columns = tensor.info.shape.size() > 1 ? tensor.info.shape[1] : 1;
    std::vector<std::byte> bytes = bytes_of(index, {name, {0, tensor.info.shape[0]}, {0, columns}});
    if (!name.ends_with("_proj.weight")) {
      tensors.push_back({name, tensor.info.stored_type, tensor.info.shape, std::move(bytes)});
      continue;
    }
    const std::string module = name.substr(0, name.rfind('.'));
    std::vector<std::byte> digits(bytes.size() / 2),
        steps(static_cast<size_t>(tensor.info.shape[0]) * sizeof(float));
    for (size_t i = 0; i < digits.size(); ++i) digits[i] = bytes[2 * i] & std::byte{15};
    for (size_t row = 0; row * sizeof(float) < steps.size(); ++row) {
      const float step = 0.25F + static_cast<float>(row % 7);
      std::memcpy(&steps[row * sizeof step], &step, sizeof step);
    }
    tensors.push_back({module + ".digits", "U8", tensor.info.shape, std::move(digits)});
    tensors.push_back({module + ".step", "F32", {tensor.info.shape[0]}, std::move(steps)});
  }
  const TempDirectory directory;
  write_safetensors(directory / "model.safetensors", tensors);
  for (const int tensor : {1, 2, 4}) load_on(1, tensor, directory.path(), config, Digits());
}

}  // namespace
}  // namespace maniple
