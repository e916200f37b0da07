#include <kernels/contracts.hpp>
#include <kernels/cuda/cuda_ops.hpp>
#include <kernels/cuda/elementwise.hpp>
#include <kernels/cuda/experts.hpp>
#include <kernels/cuda/skinny_gemm.hpp>
#include <kernels/reference/codes.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <utility>
#include <vector>

namespace maniple::cuda {

namespace {

constexpr int64_t mib = int64_t{1} << 20;
// Of scratch_, where codes are multiplied.
constexpr IndexRange inputs_part{0, 48 * mib}, panel_part{48 * mib, 80 * mib}, sums_part{80 * mib, 127 * mib},
    scales_part{127 * mib, scratch_bytes};

std::vector<std::byte> converted(ConstTensorView raw, DType dtype) {
  std::vector<std::byte> bytes(static_cast<size_t>(raw.shape.elements()) * size_of(dtype));
  reference::write({bytes.data(), dtype, raw.shape}, 0, reference::read(raw, 0, raw.shape.elements()));
  return bytes;
}

int64_t row_bytes_of(const WeightShape& shape) {
  return (shape.columns * bits_of(shape.format) + 127) / 128 * 16;
}

CodeMatrix matrix_of(const Weight& weight) {
  const bool e2m1 = weight.format == WeightFormat::mxfp4;
  const int64_t groups = weight.groups(), group = groups == 1 ? int64_t{1} << 30 : weight.group;
  return {weight.packed.view().as<uint8_t>(),
          weight.scales.view().data,
          weight.zeros ? weight.zero_points.view().as<uint8_t>() : nullptr,
          bits_of(weight.format),
          e2m1 || weight.format == WeightFormat::fp8,
          e2m1 || groups > 1,
          weight.scale,
          static_cast<uint8_t>(weight.common_zero()),
          narrow(row_bytes_of(weight)),
          narrow(weight.columns),
          narrow(group),
          narrow(groups),
          narrow(groups == 1 ? 0 : weight.first_column % group),
          weight.input_scale};
}

// Rows of inputs begin at sixteen bytes, so kernels copy them as vectors.
int64_t padded(int64_t columns) { return (columns + 7) / 8 * 8; }
bool takes_as_they_are(const Weight& weight, ConstTensorView x, int64_t stride) {
  return weight.activation == ActivationRule::none && stride == weight.columns && is_aligned(x);
}
bool scales_rows(const Weight& weight) {
  return weight.activation == ActivationRule::per_token || weight.activation == ActivationRule::fixed;
}

// Whether x and the weight are codes that a library could multiply: integers or e4m3, with a scale a row or of blocks.
bool both_are_codes(ConstTensorView x, const Weight& weight) {
  if (x.dtype == DType::fp32 || weight.zeros || weight.rows % 16 != 0) return false;
  if (weight.activation == ActivationRule::per_group)
    return weight.format == WeightFormat::fp8 && weight.group == 128 && weight.columns % 128 == 0 &&
           weight.first_column % 128 == 0;
  return scales_rows(weight) && weight.groups() == 1;
}

// The scales of a weight by blocks of 128 rows; empty where rows of a block differ, as between heads of 64.
std::vector<float> block_scales_of(Device& device, const Weight& weight) {
  const ConstTensorView scales = weight.scales.view();
  std::vector<std::byte> bytes(scales.bytes());
  device.download(bytes.data(), scales.data, bytes.size());
  const reference::Floats by_row =
      reference::read({bytes.data(), scales.dtype, scales.shape}, 0, scales.shape.elements());
  const int64_t groups = weight.groups(), stride = block_scale_columns(weight.columns);
  std::vector<float> blocks(static_cast<size_t>((weight.rows + 127) / 128 * stride));
  for (int64_t row = 0; row < weight.rows; ++row)
    for (int64_t group = 0; group < groups; ++group) {
      float& scale = blocks[static_cast<size_t>(row / 128 * stride + group)];
      const float own = by_row[static_cast<size_t>(row * groups + group)];
      if (row % 128 == 0) scale = own;
      if (scale != own) return {};
    }
  return blocks;
}

// What a library multiplies at a time: as many rows of x, and columns of out in panels of about the same size, as fit the scratch memory.
// as_codes: it multiplies codes, with all of the weight; else the panels are elements.
struct CodePanels {
  DType dtype, sum_type;
  int64_t stride, columns, rows;  // stride: of rows of inputs

  CodePanels(ConstTensorView x, const Weight& weight, bool as_codes)
      : dtype(!as_codes                             ? x.dtype
              : weight.format == WeightFormat::int8 ? DType::uint8
                                                    : DType::fp8),
        sum_type(dtype == DType::uint8 ? DType::int32 : DType::fp32),
        stride(as_codes ? row_bytes_of(weight) : weight.columns),
        columns(weight.rows) {
    const int64_t row = stride * static_cast<int64_t>(size_of(dtype));
    const auto parts = [](int64_t whole, int64_t part) { return (whole + part - 1) / part; };
    if (!as_codes) {
      const int64_t most = std::min(panel_part.size() / row, int64_t{2048}),
                    tile = std::min(most, int64_t{128});  // of the library
      require(tile > 0, "a row of a weight fits the scratch memory");
      const int64_t tiles = parts(weight.rows, tile), panels = parts(tiles, most / tile);
      columns = std::min(weight.rows, parts(tiles, panels) * tile);
    }
    rows = std::min({std::max<int64_t>(x.shape[0], 1), sums_part.size() / (4 * columns),
                     scales_part.size() / (4 * (as_codes ? weight.groups() : 1))});
    if (weight.activation != ActivationRule::none) rows = std::min(rows, inputs_part.size() / row);
    require(rows > 0, "rows of inputs fit the scratch memory");
  }
};

}  // namespace

Weight CudaOps::make_weight(const WeightShape& shape) {
  require_computable(shape);
  if (shape.format == WeightFormat::dense)
    return {shape, zeroed(device_, shape.dtype, {shape.rows, shape.columns}), {}, {}, {}};
  const Shape groups{shape.rows, shape.groups()};
  Weight weight{shape,
                zeroed(device_, DType::uint8, {shape.rows, row_bytes_of(shape)}),
                zeroed(device_, shape.scale, groups),
                {},
                {}};
  library_products_.erase(weight.packed.view().data);
  if (shape.zeros) weight.zero_points = zeroed(device_, DType::uint8, groups);
  if (shape.ordered) weight.order = Tensor(device_, DType::int32, {shape.columns});
  return weight;
}

void CudaOps::pack(Weight& weight, int64_t first_row, const RawRows& raw) {
  reference::require_rows_of(weight, first_row, raw);
  const int64_t count = raw.values.shape[0];
  const auto upload = [&](Tensor& to, ConstTensorView from) {
    const TensorView rows = to.view().rows(first_row, count);
    if (from.dtype == rows.dtype)
      device_.upload(rows.data, from.data, rows.bytes());
    else
      device_.upload(rows.data, converted(from, rows.dtype).data(), rows.bytes());
  };
  if (weight.format == WeightFormat::dense) return upload(weight.packed, raw.values);
  const int64_t row_bytes = row_bytes_of(weight), in_byte = 8 / bits_of(weight.format);
  std::vector<uint8_t> packed(static_cast<size_t>(count * row_bytes));
  for (int64_t row = 0; row < count; ++row)
    for (int64_t c = 0; c < weight.columns; ++c)
      packed[static_cast<size_t>(row * row_bytes + c / in_byte)] |= static_cast<uint8_t>(
          raw.values.as<uint8_t>()[row * weight.columns + c] << c % in_byte * bits_of(weight.format));
  if (weight.format == WeightFormat::int8)
    for (uint8_t& code : packed) code ^= 128;
  upload(weight.packed, view_of(packed.data(), DType::uint8, {count, row_bytes}));
  upload(weight.scales, raw.scales);
  if (weight.zeros) upload(weight.zero_points, raw.zeros);
}

TensorView CudaOps::scratch(IndexRange bytes, DType dtype, const Shape& shape) {
  const TensorView view{scratch_.view().data + bytes.begin, dtype, shape};
  require(static_cast<int64_t>(view.bytes()) <= bytes.size(), "scratch memory of a product with codes");
  return view;
}

// Some rows of x as codes into out, [rows, stride], bytes or of x's type; their scales into the scratch memory.
RoundArguments CudaOps::rounding_of(ConstTensorView x, const Weight& weight, ConstTensorView row_maxima,
                                    IndexRange rows, TensorView out) {
  const bool given = weight.activation == ActivationRule::per_token && !row_maxima.empty();
  return {x.dtype,
          x.data,
          static_cast<InputRounding>(weight.activation),
          weight.format == WeightFormat::fp8,
          narrow(std::max<int64_t>(weight.group, 1)),
          weight.power_scales,
          weight.input_scale,
          given ? row_maxima.as<float>() : nullptr,
          given ? narrow(row_maxima.shape[0]) : 0,
          given ? row_maxima.shape[1] : 0,
          out.data,
          narrow(out.shape[1]),
          out.dtype != x.dtype,
          scratch(scales_part, DType::fp32, {rows.size()}).as<float>(),
          narrow(rows.size()),
          narrow(weight.columns),
          rows.begin};
}

// Some rows of x as the weight takes them, [rows, stride]: x itself, or what is made of it in a part of the scratch memory.
ConstTensorView CudaOps::rounded_inputs(ConstTensorView x, const Weight& weight, ConstTensorView row_maxima,
                                        IndexRange rows, DType dtype, int64_t stride, IndexRange memory) {
  const ConstTensorView part = x.rows(rows.begin, rows.size());
  if (takes_as_they_are(weight, part, stride)) return part;
  const TensorView out = scratch(memory, dtype, {rows.size(), stride});
  round_inputs(stream_, rounding_of(x, weight, row_maxima, rows, out));
  return out;
}

FinishArguments CudaOps::finish_of(const Weight& weight, ConstTensorView bias) {
  return {matrix_of(weight),
          scales_rows(weight) ? scratch(scales_part, DType::fp32, {1}).as<float>() : nullptr,
          floats_of(bias)};
}

bool CudaOps::multiply_few_rows(ConstTensorView x, const Weight& weight, ConstTensorView bias, TensorView out,
                                ConstTensorView row_maxima, std::optional<GateActivation> gate) {
  const bool dense = weight.format == WeightFormat::dense;
  if (!dense && (x.shape[0] > max_code_rows || x.dtype == DType::fp32)) return false;
  const int64_t k = dense ? weight.columns : padded(weight.columns);
  return skinny_gemm(
      stream_,
      {x.dtype, out.dtype,
       dense ? x.data : rounded_inputs(x, weight, row_maxima, {0, x.shape[0]}, x.dtype, k, inputs_part).data,
       dense ? weight.packed.view().data : nullptr,
       dense ? FinishArguments{.bias = floats_of(bias)} : finish_of(weight, bias), out.data,
       narrow(x.shape[0]), narrow(weight.rows), narrow(k), gate.has_value(),
       gate.value_or(GateActivation::silu)},
      {skinny_partials_.view().as<float>(), skinny_arrivals_.view().as<int32_t>()});
}

// Columns of the weight as a library multiplies them.
ConstTensorView CudaOps::panel_of(const Weight& weight, DType dtype, int64_t columns) {
  if (dtype == DType::uint8 || dtype == DType::fp8)
    return {weight.packed.view().data, dtype, weight.packed.view().shape};
  return scratch(panel_part, dtype, {columns, weight.columns});
}

void CudaOps::prepare_panels(ConstTensorView x, const Weight& weight, bool as_codes) {
  const CodePanels panels(x, weight, as_codes);
  const std::byte* const inputs = weight.activation == ActivationRule::none ? x.data : scratch_.view().data;
  for (const int64_t columns : {panels.columns, weight.rows % panels.columns})
    if (columns > 0)
      gemm_->prepare({inputs, panels.dtype, {panels.rows, panels.stride}},
                     panel_of(weight, panels.dtype, columns), {},
                     scratch(sums_part, panels.sum_type, {panels.rows, columns}),
                     as_codes && weight.activation == ActivationRule::per_group);
}

bool CudaOps::prepare_by_library(ConstTensorView x, const Weight& weight) {
  if (!both_are_codes(x, weight)) return false;
  const auto [trial, first] = trials_.try_emplace({weight.format, weight.activation});
  if (first) trial->second = try_library(weight.format, weight.activation);
  if (trial->second != Trial::right || !take_by_library(weight)) return false;
  try {
    prepare_panels(x, weight, true);
  } catch (const Error&) {  // the library does not compute this shape
    return library_products_.erase(weight.packed.view().data), false;
  }
  return true;
}

bool CudaOps::take_by_library(const Weight& weight) {
  const auto [product, is_new] = library_products_.try_emplace(weight.packed.view().data);
  if (!is_new || weight.activation != ActivationRule::per_group) return true;
  const std::vector<float> scales = block_scales_of(device_, weight);
  if (scales.empty()) return library_products_.erase(product), false;
  product->second = Tensor(device_, DType::fp32, {static_cast<int64_t>(scales.size())});
  device_.upload(product->second.view().data, reinterpret_cast<const std::byte*>(scales.data()),
                 scales.size() * sizeof(float));
  return true;
}

// Compares a product of small codes and scales that are powers of two, which is exact, by the library and by our kernel for few rows.
CudaOps::Trial CudaOps::try_library(WeightFormat format, ActivationRule rule) {
  constexpr int64_t m = max_code_rows, n = 272, block = 128;
  constexpr int64_t k = 5 * block;  // rows of block scales have padding
  const bool blocks = rule == ActivationRule::per_group, e4m3 = format == WeightFormat::fp8;
  const auto small = [](int64_t i, int64_t j) {
    return static_cast<float>((13 * i + (7 + i % 5) * j) % 15 - 7);
  };
  const auto power = [&](int64_t i, int64_t j) {
    return blocks ? std::exp2f(static_cast<float>((3 * i + j) % 5 - 2)) : 1.0f;
  };
  std::vector<uint8_t> codes;
  std::vector<BFloat16> inputs;
  std::vector<float> scales;
  for (int64_t i = 0; i < n * k; ++i) {
    const float value = small(i / k, i % k);
    codes.push_back(e4m3 ? Float8(value).bits : static_cast<uint8_t>(value + 128));
    if (i % (blocks ? block : k) == 0) scales.push_back(power(i / k / block, i % k / block));
  }
  const float largest = e4m3 ? Float8::largest : 127;  // of a row and block: its scale is a power of two
  for (int64_t i = 0; i < m * k; ++i)
    inputs.emplace_back(power(i % k / block, i / k) * (i % block == i / k ? largest : small(i % k, i / k)));
  Weight weight = make_weight(
      {.rows = n, .columns = k, .format = format, .group = blocks ? block : -1, .activation = rule});
  pack(weight, 0,
       {view_of(codes.data(), DType::uint8, {n, k}),
        view_of(scales.data(), DType::fp32, {n, weight.groups()})});
  Tensor x(device_, DType::bf16, {m, k}), out(device_, DType::fp32, {m, n});
  device_.upload(x.view().data, reinterpret_cast<const std::byte*>(inputs.data()), x.view().bytes());
  const auto downloaded = [&] {
    std::vector<float> sums(m * n);
    device_.download(reinterpret_cast<std::byte*>(sums.data()), out.view().data, out.view().bytes());
    return sums;
  };
  require(multiply_few_rows(x, weight, {}, out, {}, {}), "our kernel multiplies the codes of the trial");
  const std::vector<float> ours = downloaded();
  require(take_by_library(weight), "blocks of the trial have one scale");
  Trial result = Trial::refused;
  try {
    multiply_codes(x, weight, {}, out, {});
    const std::vector<float> theirs = downloaded();
    // Tensor cores add e4m3 products with fewer bits than fp32 has. A scale in a wrong place is far outside of this.
    const float bound = e4m3 ? std::ranges::max(ours) / 256 : 0;
    const auto agree = [&](float a, float b) { return std::abs(a - b) <= bound; };
    result = std::ranges::equal(theirs, ours, agree) ? Trial::right : Trial::wrong;
  } catch (const Error&) {  // the library does not compute this here
  }
  library_products_.erase(weight.packed.view().data);
  return result;
}

std::string CudaOps::warning() const {
  for (const auto& [kind, result] : trials_)
    if (result == Trial::wrong)
      return fmt::format(
          "cuBLASLt multiplies {} codes{} otherwise than documented: they are widened first, which is slower",
          name_of(kind.first), kind.second == ActivationRule::per_group ? " with scales of blocks" : "");
  return "";
}

void CudaOps::multiply_codes(ConstTensorView x, const Weight& weight, ConstTensorView bias, TensorView out,
                             ConstTensorView row_maxima) {
  const auto product = library_products_.find(weight.packed.view().data);
  const bool as_codes = product != library_products_.end();
  const float* const block_scales = as_codes ? floats_of(product->second) : nullptr;
  const CodePanels panels(x, weight, as_codes);
  const FinishArguments finish = finish_of(weight, bias);
  for (int64_t row = 0; row < x.shape[0]; row += panels.rows) {
    const int64_t rows = std::min(panels.rows, x.shape[0] - row);
    const ConstTensorView inputs =
        rounded_inputs(x, weight, row_maxima, {row, row + rows}, panels.dtype, panels.stride, inputs_part);
    for (int64_t column = 0; column < weight.rows; column += panels.columns) {
      const int64_t columns = std::min(panels.columns, weight.rows - column);
      const ConstTensorView panel = panel_of(weight, panels.dtype, columns);
      const TensorView sums = scratch(sums_part, panels.sum_type, {rows, columns});
      if (!as_codes)
        expand_rows(stream_, finish.codes, nullptr, column, narrow(weight.rows), panel.dtype,
                    scratch_.view().data + panel_part.begin, narrow(columns));
      gemm_->multiply(stream_, inputs, panel, {}, sums,
                      block_scales
                          ? BlockScales{scratch(scales_part, DType::fp32, {1}).as<float>(), block_scales}
                          : BlockScales{});
      finish_sums(stream_, finish, sums.data, sums.dtype, narrow(rows), narrow(columns), out.dtype,
                  out.rows(row, rows).data, column, weight.rows);
    }
  }
}

const CodeMatrix* CudaOps::codes_of(std::span<const Weight* const> weights) {
  std::vector<CodeMatrix> codes;
  for (const Weight* weight : weights) codes.push_back(matrix_of(*weight));
  return reinterpret_cast<const CodeMatrix*>(table_of(std::as_bytes(std::span(codes))));
}

// Inputs that are rounded: each token once, where all experts round alike; else a row for each of out, as many at a time as fit the
// scratch memory.
void CudaOps::multiply_grouped_codes(GroupedArguments product, ConstTensorView x,
                                     std::span<const Weight* const> weights, ConstTensorView row_maxima) {
  const Weight& first = *weights[0];
  const int64_t all = product.most_rows, stride = padded(first.columns);
  product.k = narrow(stride);
  product.aligned = true;
  product.bits = bits_of(first.format);
  product.codes = codes_of(weights);
  if (scales_rows(first)) product.input_scales = scratch(scales_part, DType::fp32, {1}).as<float>();
  constexpr IndexRange inputs{0, scales_part.begin};
  const int64_t fitting =
      std::min(inputs.size() / (stride * static_cast<int64_t>(size_of(x.dtype))), scales_part.size() / 4);
  bool ready = takes_as_they_are(first, x, stride);
  if (!ready && product.x_rows && first.activation != ActivationRule::fixed && x.shape[0] <= fitting) {
    product.x = rounded_inputs(x, first, row_maxima, {0, x.shape[0]}, x.dtype, stride, inputs).data;
    ready = true;
  }
  if (ready) return grouped_product(stream_, product);
  const int32_t* const x_rows = std::exchange(product.x_rows, nullptr);
  for (int64_t row = 0; row < all; row += fitting) {
    const IndexRange rows{row, std::min(all, row + fitting)};
    const TensorView rounded = scratch(inputs, x.dtype, {rows.size(), stride});
    RoundArguments rounding = rounding_of(x, first, row_maxima, rows, rounded);
    rounding.offsets = product.offsets;
    rounding.x_rows = x_rows;
    rounding.experts = product.codes;
    rounding.expert_count = product.experts;
    round_inputs(stream_, rounding);
    product.x = rounded.data;
    product.first_row = row;
    product.most_rows = rows.size();
    grouped_product(stream_, product);
  }
}

void CudaOps::prepare_matmul(ConstTensorView x, const Weight& weight, ConstTensorView bias, TensorView out) {
  if (weight.format == WeightFormat::dense) return gemm_->prepare(x, weight.packed, bias, out);
  if (!prepare_by_library(x, weight)) prepare_panels(x, weight, false);
}

void CudaOps::embed(ConstTensorView ids, const Weight& table, IndexRange vocabulary, TensorView out) {
  contract::embed(ids, table, vocabulary, out);
  if (table.format == WeightFormat::dense)
    return cuda::gather_rows(stream_, ids.as<int32_t>(), vocabulary.begin, vocabulary.size(),
                             table.packed.view().data, out.data, narrow(ids.shape[0]),
                             table.columns * static_cast<int64_t>(size_of(table.dtype)));
  CodeMatrix matrix = matrix_of(table);
  matrix.scaled = true;
  expand_rows(stream_, matrix, ids.as<int32_t>(), vocabulary.begin, narrow(vocabulary.size()), out.dtype,
              out.data, narrow(ids.shape[0]));
}

void CudaOps::row_abs_maxima(ConstTensorView x, TensorView out) {
  contract::row_abs_maxima(x, out);
  cuda::row_abs_maxima(stream_, x.dtype, x.data, out.as<float>(), narrow(x.shape[0]), narrow(x.shape[1]));
}

void CudaOps::gather_columns(ConstTensorView x, ConstTensorView order, TensorView out) {
  contract::gather_columns(x, order, out);
  cuda::gather_columns(stream_, x.dtype, x.data, order.as<int32_t>(), out.data, narrow(out.shape[0]),
                       narrow(x.shape[2]), narrow(out.shape[1]));
}

}  // namespace maniple::cuda
