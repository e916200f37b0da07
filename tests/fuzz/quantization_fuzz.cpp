// A tiny checkpoint, quantised as any quantization_config says, with changed tensors: refused with one Error, or loaded, whole
// and as one of two ranks. Input: a byte (its lower bits: how many changes, experts or none), 4 bytes a change,
// quantization_config.
#include <kernels/factory/make_backend.hpp>
#include <parallel/self/self_world.hpp>
#include <runtime/checkpoint/loading/known_tensors.hpp>
#include <runtime/checkpoint/loading/kv_scales.hpp>
#include <runtime/checkpoint/loading/model_config.hpp>
#include <runtime/checkpoint/loading/weight_loader.hpp>
#include <support/rank_plans.hpp>
#include <support/safetensors_writer.hpp>
#include <support/temp_directory.hpp>

#include <cstring>
#include <map>

namespace maniple {
namespace {

using Bytes = std::span<const uint8_t>;
using Tensors = std::vector<TensorToWrite>;

struct TypeOfTensor {
  const char* name;
  size_t bytes;
};
constexpr TypeOfTensor types[] = {{"I32", 4}, {"F16", 2}, {"BF16", 2}, {"F32", 4},     {"I8", 1},
                                  {"U8", 1},  {"I64", 8}, {"F64", 8},  {"F8_E4M3", 1}, {"F8_E5M2", 1}};
constexpr const char* parts[] = {
    "weight",       "weight_scale", "weight_scale_inv", "input_scale", "weight_packed", "weight_zero_point",
    "weight_shape", "weight_g_idx", "qweight",          "qzeros",      "scales",        "g_idx",
    "bias",         "k_scale",      "v_scale",          "output_scale"};

const TypeOfTensor& type_of(std::string_view name) {
  for (const TypeOfTensor& type : types)
    if (name == type.name) return type;
  return types[0];
}

std::string config_of(const std::string& quantization, bool experts) {
  const std::string sizes =
      R"("vocab_size": 40, "hidden_size": 64, "intermediate_size": 160, "num_hidden_layers": 1, "num_attention_heads": 2,
"num_key_value_heads": 1, "head_dim": 32, "max_position_embeddings": 64, "rms_norm_eps": 1e-6, "tie_word_embeddings": false)";
  const std::string of_experts =
      R"(, "num_experts": 2, "num_experts_per_tok": 1, "moe_intermediate_size": 160, "norm_topk_prob": true)";
  return fmt::format(R"({{"architectures": ["{}"], {}{}, "quantization_config": {}}})",
                     experts ? "Qwen3MoeForCausalLM" : "Qwen3ForCausalLM", sizes, experts ? of_experts : "",
                     quantization);
}

void resize(TensorToWrite& tensor) {
  constexpr size_t most = 1 << 20;
  size_t bytes = type_of(tensor.dtype).bytes;
  for (const int64_t size : tensor.shape) bytes = std::min(most, bytes * static_cast<size_t>(size));
  tensor.bytes.resize(bytes, std::byte{0x3c});
}

// Codes of some kind, scales near 1.
TensorToWrite tensor_of(const ExpectedTensor& expected, const Shape& module) {
  TensorToWrite tensor{expected.name, std::string(expected.types[0]), expected.shapes[0], {}};
  resize(tensor);
  if (tensor.dtype == "I32")
    for (size_t i = 0; i < tensor.bytes.size(); ++i) tensor.bytes[i] = static_cast<std::byte>(i * 37 % 251);
  if (tensor.name.ends_with(".qzeros")) std::ranges::fill(tensor.bytes, std::byte{0x77});
  if (tensor.dtype == "I64" && tensor.bytes.size() == 16) {
    const int64_t sizes[] = {module[0], module[1]};
    std::memcpy(tensor.bytes.data(), sizes, sizeof sizes);
  }
  return tensor;
}

Tensors checkpoint_of(const ModelConfig& config, const QuantScheme& scheme) {
  const std::unique_ptr<Model> model = make_model(config, {});
  std::map<std::string, TensorToWrite> by_name;  // parameters may share one
  for (const Parameter* parameter : model->parameters())
    for (const WeightPiece& piece : parameter->spec.pieces)
      for (const ExpectedTensor& expected : stored_weight(scheme, parameter->spec, piece, nullptr)->tensors())
        by_name.emplace(expected.name, tensor_of(expected, piece.source_shape));
  Tensors tensors;
  for (auto& [name, tensor] : by_name) tensors.push_back(std::move(tensor));
  return tensors;
}

void set_words(TensorToWrite& tensor, int divisor, int offset) {
  for (size_t i = 0; i < tensor.bytes.size() / 4; ++i) {
    const int32_t word = static_cast<int32_t>(i) / divisor - offset;
    std::memcpy(&tensor.bytes[4 * i], &word, sizeof word);
  }
}

void change(Tensors& tensors, Bytes bytes) {
  const size_t at = bytes[0] % tensors.size(), a = bytes[2], b = bytes[3];
  TensorToWrite& tensor = tensors[at];
  const std::string module = tensor.name.substr(0, tensor.name.rfind('.') + 1);
  switch (bytes[1] % 9) {
    case 0:
      tensors.erase(tensors.begin() + static_cast<std::ptrdiff_t>(at));
      break;
    case 1:
      tensor.dtype = types[a % std::size(types)].name;
      resize(tensor);
      break;
    case 2:
      if (!tensor.shape.empty()) tensor.shape[b % tensor.shape.size()] = static_cast<int64_t>(a);
      resize(tensor);
      break;
    case 3:
      tensor.shape.resize(a % 4, static_cast<int64_t>(b % 4));
      resize(tensor);
      break;
    case 4:
      std::ranges::fill(tensor.bytes, static_cast<std::byte>(a));
      break;
    case 5:
      if (!tensor.bytes.empty()) tensor.bytes[b * 61 % tensor.bytes.size()] = static_cast<std::byte>(a);
      break;
    case 6: {
      TensorToWrite added{
          module + parts[a % std::size(parts)], types[b % std::size(types)].name, tensor.shape, {}};
      resize(added);
      tensors.push_back(std::move(added));
      break;
    }
    case 7:
      tensor.name = module + parts[a % std::size(parts)];
      break;
    default:
      set_words(tensor, static_cast<int>(a) + 1, static_cast<int>(b % 4));
  }
}

void load(const ModelConfig& config, const QuantScheme& scheme, const WeightIndex& index,
          const RankPlan& plan) {
  const Backend backend = make_backend({.kind = BackendKind::reference});
  SelfWorld world;
  const std::unique_ptr<Model> model = make_stored_model(config, plan, index);
  make_weights(*model, *backend.ops, DType::bf16, scheme, &index);
  const WeightNeeds needs[] = {needs_of(*model, index, scheme)};
  const std::vector<int> replicas[] = {{0}};
  std::atomic<uint32_t> blocks = 0;
  load_weights(*model, *backend.ops, index, scheme, plan_reads(needs, index, 1), world.transport(), replicas,
               blocks);
}

void check(Bytes input) {
  static const TempDirectory directory;
  const size_t changes = input[0] % 8;
  const bool experts = input[0] & 8;
  if (input.size() < 1 + 4 * changes) return;
  const std::string text = config_of(
      std::string(input.begin() + 1 + 4 * static_cast<std::ptrdiff_t>(changes), input.end()), experts);
  const ModelConfig config = parse_model_config(text, "config.json");
  const std::unique_ptr<const QuantScheme> scheme = scheme_of(config);
  Tensors tensors = checkpoint_of(config, *scheme);
  for (size_t i = 0; i < changes && !tensors.empty(); ++i) change(tensors, input.subspan(1 + 4 * i, 4));
  directory.write("config.json", text);
  write_safetensors(directory / "model.safetensors", tensors);
  WeightIndex index = read_index(ModelFiles(directory.path()));
  read_known_tensors(index, config, *scheme_of(config));
  check_names(*make_stored_model(config, {}, index), index, *scheme);
  kv_scales_of(index, *scheme, {0, config.num_layers()});
  scheme->warning(index);
  load(config, *scheme, index_from(to_bytes(index)), {});
  load(config, *scheme, index, testing::plan_of({1, 2}, experts ? 2 : 1));
}

}  // namespace
}  // namespace maniple

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* bytes, size_t size) {
  if (size == 0) return 0;
  try {
    maniple::check({bytes, size});
  } catch (const maniple::Error& error) {
    if (error.code() != maniple::ExitCode::input || std::string_view(error.what()).empty()) throw;
  }
  return 0;
}
