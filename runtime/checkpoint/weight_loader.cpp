#include <runtime/checkpoint/weight_loader.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <set>

namespace maniple {
namespace {

class CheckpointWeights final : public WeightSource {
 public:
  explicit CheckpointWeights(const CheckpointReader& checkpoint) : checkpoint_(checkpoint) {}
  DType dtype(const WeightPiece& piece) const override { return *checkpoint_.find(piece.source)->dtype; }
  void read(const WeightPiece& piece, IndexRange rows, std::span<std::byte> out) const override {
    const int64_t begin[] = {rows.begin, piece.columns.begin};
    const int64_t extent[] = {rows.size(), piece.columns.size()};
    const size_t rank = static_cast<size_t>(piece.source_shape.rank());
    checkpoint_.read(piece.source, std::span(begin, rank), std::span(extent, rank), out);
  }

 private:
  const CheckpointReader& checkpoint_;
};

// splitmix64 (Steele, Lea, Flood 2014)
uint64_t mix(uint64_t x) {
  x += 0x9e3779b97f4a7c15u;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
  return x ^ (x >> 31);
}

class RandomWeights final : public WeightSource {
 public:
  explicit RandomWeights(uint64_t seed) : seed_(seed) {}
  DType dtype(const WeightPiece&) const override { return DType::bf16; }
  void read(const WeightPiece& piece, IndexRange rows, std::span<std::byte> out) const override {
    BFloat16* values = reinterpret_cast<BFloat16*>(out.data());
    if (piece.source_shape.rank() == 1) {
      std::fill_n(values, rows.size(), BFloat16(piece.source.ends_with(".bias") ? 0.0F : 1.0F));
      return;
    }
    uint64_t name = seed_;
    for (const char c : piece.source) name = mix(name ^ static_cast<unsigned char>(c));
    const int64_t width = piece.source_shape[1];
    const float spread = std::sqrt(3.0F / static_cast<float>(width));  // uniform, variance 1 / width
    for (int64_t row = rows.begin; row < rows.end; ++row)
      for (int64_t column = piece.columns.begin; column < piece.columns.end; ++column) {
        const uint64_t bits = mix(name + static_cast<uint64_t>(row * width + column));
        *values++ = BFloat16(spread * (static_cast<float>(bits >> 40) * 0x1p-23F - 1.0F));
      }
  }

 private:
  uint64_t seed_;
};

constexpr int64_t staging_bytes = int64_t{8} << 20;

class Loader {
 public:
  Loader(Ops& ops, DType weight_type, const WeightSource* source, Communicator& replicas,
         std::atomic<uint32_t>& blocks)
      : ops_(ops),
        weight_type_(weight_type),
        source_(replicas.rank() == 0 ? source : nullptr),
        replicas_(replicas),
        blocks_(blocks) {}

  size_t load(Parameter& parameter) {
    const WeightSpec& spec = parameter.spec;
    if (spec.role == WeightRole::matrix)
      parameter.matrix = ops_.make_weight(weight_type_, spec.rows, spec.columns, spec.slices);
    else
      parameter.vector = Tensor(ops_.device(), DType::fp32, {spec.rows});
    for (const WeightPiece& piece : spec.pieces) load(parameter, piece);
    return spec.role == WeightRole::matrix ? parameter.matrix.packed.view().bytes()
                                           : parameter.vector.view().bytes();
  }

 private:
  void load(Parameter& parameter, const WeightPiece& piece) {
    const DType dtype = agree(piece);
    const int64_t row_bytes = piece.columns.size() * static_cast<int64_t>(size_of(dtype));
    const int64_t rows_at_once =
        std::max<int64_t>(32, staging_bytes / row_bytes / 32 * 32);  // whole panels pack fastest
    for (int64_t row = piece.rows.begin; row < piece.rows.end; row += rows_at_once) {
      const IndexRange rows{row, std::min(row + rows_at_once, piece.rows.end)};
      staging_.resize(static_cast<size_t>(rows.size() * row_bytes));
      if (source_) source_->read(piece, rows, staging_);
      const ConstTensorView raw = view_of(staging_.data(), dtype, {rows.size(), piece.columns.size()});
      replicas_.broadcast(view_of(staging_.data(), dtype, raw.shape), 0);
      store(parameter, piece.local_row + row - piece.rows.begin, raw);
      ++blocks_;
    }
  }

  DType agree(const WeightPiece& piece) {
    uint8_t dtype = source_ ? static_cast<uint8_t>(source_->dtype(piece)) : 0;
    replicas_.broadcast(view_of(&dtype, DType::uint8, {1}), 0);
    return static_cast<DType>(dtype);
  }

  void store(Parameter& parameter, int64_t local_row, ConstTensorView raw) {
    if (parameter.spec.role == WeightRole::matrix) return ops_.pack(parameter.matrix, local_row, raw);
    std::vector<float> wide(static_cast<size_t>(raw.shape.elements()));
    for (size_t i = 0; i < wide.size(); ++i) wide[i] = element(raw, i);
    const TensorView rows = parameter.vector.view().rows(local_row, raw.shape[0]);
    ops_.device().upload(rows.data, reinterpret_cast<const std::byte*>(wide.data()), rows.bytes());
  }

  static float element(ConstTensorView raw, size_t i) {
    switch (raw.dtype) {
      case DType::bf16:
        return static_cast<float>(raw.as<BFloat16>()[i]);
      case DType::fp16:
        return static_cast<float>(raw.as<Float16>()[i]);
      default:
        return raw.as<float>()[i];
    }
  }

  Ops& ops_;
  DType weight_type_;
  const WeightSource* source_;
  Communicator& replicas_;
  std::atomic<uint32_t>& blocks_;
  std::vector<std::byte> staging_;
};

// "a, b, c and 12 more"
std::string some_of(const std::set<std::string>& names) {
  std::string text;
  size_t shown = 0;
  for (const std::string& name : names) {
    if (++shown > 5) return text + fmt::format(" and {} more", names.size() - 5);
    text += (shown > 1 ? ", " : "") + name;
  }
  return text;
}

}  // namespace

std::unique_ptr<WeightSource> weights_of(const CheckpointReader& checkpoint) {
  return std::make_unique<CheckpointWeights>(checkpoint);
}
std::unique_ptr<WeightSource> random_weights(uint64_t seed) { return std::make_unique<RandomWeights>(seed); }

void check_names(Model& model, const CheckpointReader& checkpoint) {
  std::map<std::string, Shape> wanted;
  for (const Parameter* parameter : model.parameters())
    for (const WeightPiece& piece : parameter->spec.pieces) wanted.emplace(piece.source, piece.source_shape);

  std::set<std::string> missing, extra;
  for (const auto& [name, shape] : wanted) {
    const TensorInfo* tensor = checkpoint.find(name);
    if (!tensor) {
      missing.insert(name);
      continue;
    }
    Shape found = shape;
    bool fits = static_cast<int>(tensor->shape.size()) == shape.rank();
    for (int d = 0; fits && d < shape.rank(); ++d) found[d] = tensor->shape[static_cast<size_t>(d)];
    if (!fits || !(found == shape))
      fail(ExitCode::input, "tensor {} has the shape [{}] in the checkpoint, but config.json asks for {}",
           name, fmt::join(tensor->shape, ", "), to_string(shape));
    if (!tensor->dtype)
      fail(ExitCode::input, "tensor {} is stored as {}, which is not supported; BF16, F16 and F32 are", name,
           tensor->stored_type);
  }
  for (const std::string& name : checkpoint.names())
    if (!wanted.contains(name) && !model.ignores(name)) extra.insert(name);
  if (!missing.empty())
    fail(ExitCode::input, "the checkpoint lacks {} of the model's tensors: {}", missing.size(),
         some_of(missing));
  if (!extra.empty())
    fail(ExitCode::input, "the checkpoint holds {} tensors that the model has no place for: {}", extra.size(),
         some_of(extra));
}

size_t weight_bytes(Model& model, DType weight_type) {
  size_t bytes = 0;
  for (const Parameter* parameter : model.parameters()) {
    const WeightSpec& spec = parameter->spec;
    const DType type = spec.role == WeightRole::matrix ? weight_type : DType::fp32;
    bytes += static_cast<size_t>(spec.rows * spec.columns) * size_of(type);
  }
  return bytes;
}

size_t load_weights(Model& model, Ops& ops, DType weight_type, const WeightSource* source,
                    Communicator& replicas, std::atomic<uint32_t>& blocks) {
  Loader loader(ops, weight_type, source, replicas, blocks);
  size_t bytes = 0;
  for (Parameter* parameter : model.parameters()) bytes += loader.load(*parameter);
  return bytes;
}

}  // namespace maniple
