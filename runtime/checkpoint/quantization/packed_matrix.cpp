#include <runtime/checkpoint/quantization/packed_matrix.hpp>
#include <runtime/checkpoint/quantization/stored_values.hpp>

#include <cstring>
#include <utility>

namespace maniple {
namespace {

Box transposed(const Box& box, bool does) { return does ? Box{box.columns, box.rows} : box; }

// Elements `wanted` of a matrix that is stored as it is, or transposed, row by row.
void unpack_matrix(const WordPacking& packing, const StoredPart& stored, const Box& wanted,
                   bool stored_transposed, uint8_t* out) {
  const int64_t width = wanted.columns.size();
  unpack(packing, stored.bytes, stored.box, transposed(wanted, stored_transposed), out,
         stored_transposed ? 1 : width, stored_transposed ? width : 1);
}

}  // namespace

PackedMatrix::PackedMatrix(std::string module, const Shape& shape, const WeightIndex* index,
                           PackedLayout layout, ModuleQuantization quantization,
                           std::vector<ExpectedTensor> others)
    : module_(std::move(module)),
      outputs_(shape[0]),
      inputs_(shape[1]),
      layout_(std::move(layout)),
      quantization_(std::move(quantization)),
      others_(std::move(others)) {
  const IndexedTensor* scales = stored_part(index, module_, layout_.scales);
  if (scales && is_floating(scales->info)) quantization_.scale = *scales->info.dtype;
}

std::string PackedMatrix::name(std::string_view part) const { return fmt::format("{}.{}", module_, part); }

// The scales of a rectangle of W, in the order of its columns.
Box PackedMatrix::groups_of(const Box& wanted) const {
  return {wanted.rows, covering(wanted.columns, quantization_.group < 0 ? inputs_ : quantization_.group)};
}

// Columns that are sorted by group lie anywhere.
Box PackedMatrix::codes_of(const Box& wanted) const {
  return quantization_.order.empty() ? wanted : Box{wanted.rows, {0, inputs_}};
}

std::vector<ExpectedTensor> PackedMatrix::tensors() const {
  const auto stored = [&](const WordPacking& packing, const Box& elements) {
    const Box box = transposed(elements, layout_.transposed);
    return packing.stored_shape(box.rows.end, box.columns.end);
  };
  const Box whole{{0, outputs_}, {0, inputs_}}, groups = groups_of(whole),
                                                scales = transposed(groups, layout_.transposed);
  std::vector<ExpectedTensor> tensors{
      {name(layout_.codes), {"I32"}, {stored(layout_.code_packing, whole)}},
      {name(layout_.scales), layout_.scale_types, {{scales.rows.end, scales.columns.end}}}};
  if (!layout_.zeros.empty())
    tensors.push_back({name(layout_.zeros), {"I32"}, {stored(layout_.zero_packing, groups)}});
  tensors.insert(tensors.end(), others_.begin(), others_.end());
  return tensors;
}

std::vector<StoredBox> PackedMatrix::needs(const Box& wanted) const {
  const Box codes = layout_.code_packing.words_of(transposed(codes_of(wanted), layout_.transposed)),
            scales = transposed(groups_of(wanted), layout_.transposed),
            zeros = layout_.zero_packing.words_of(scales);
  std::vector<StoredBox> boxes{{name(layout_.codes), codes.rows, codes.columns},
                               {name(layout_.scales), scales.rows, scales.columns}};
  if (quantization_.zeros) boxes.push_back({name(layout_.zeros), zeros.rows, zeros.columns});
  return boxes;
}

void PackedMatrix::decode_codes(const Box& wanted, const StoredPart& stored,
                                std::span<std::byte> values) const {
  const std::vector<int32_t>& order = quantization_.order;
  auto* const out = reinterpret_cast<uint8_t*>(values.data());
  if (order.empty()) return unpack_matrix(layout_.code_packing, stored, wanted, layout_.transposed, out);
  std::vector<uint8_t> unsorted(static_cast<size_t>(wanted.rows.size() * inputs_));
  unpack_matrix(layout_.code_packing, stored, codes_of(wanted), layout_.transposed, unsorted.data());
  const int64_t width = wanted.columns.size();
  for (int64_t row = 0; row < wanted.rows.size(); ++row)
    for (int64_t column = 0; column < width; ++column)
      out[row * width + column] = unsorted[static_cast<size_t>(
          row * inputs_ + order[static_cast<size_t>(wanted.columns.begin + column)])];
}

RawRows PackedMatrix::decode(const Box& wanted, std::span<const StoredPart> stored,
                             DecodedRows& memory) const {
  const Box groups = groups_of(wanted);
  const int64_t rows = wanted.rows.size(), across = groups.columns.size();
  memory.values.resize(static_cast<size_t>(wanted.elements()));
  decode_codes(wanted, stored[0], memory.values);
  RawRows raw{view_of(memory.values.data(), DType::uint8, {rows, wanted.columns.size()}), {}, {}};

  const size_t item = size_of(quantization_.scale);
  const Box held = transposed(stored[1].box, layout_.transposed);
  const int64_t down_stride = layout_.transposed ? 1 : held.columns.size(),
                across_stride = layout_.transposed ? held.rows.size() : 1;
  memory.scales.resize(static_cast<size_t>(groups.elements()) * item);
  for (int64_t row = 0; row < rows; ++row)
    for (int64_t group = 0; group < across; ++group) {
      const int64_t from = (groups.rows.begin + row - held.rows.begin) * down_stride +
                           (groups.columns.begin + group - held.columns.begin) * across_stride;
      std::memcpy(&memory.scales[static_cast<size_t>(row * across + group) * item],
                  &stored[1].bytes[static_cast<size_t>(from) * item], item);
    }
  raw.scales = view_of(memory.scales.data(), quantization_.scale, {rows, across});
  if (!quantization_.zeros) return raw;

  memory.zeros.resize(static_cast<size_t>(groups.elements()));
  auto* const zeros = reinterpret_cast<uint8_t*>(memory.zeros.data());
  unpack_matrix(layout_.zero_packing, stored[2], groups, layout_.transposed, zeros);
  const int mask = (1 << layout_.zero_packing.bits) - 1;
  for (int64_t i = 0; i < groups.elements(); ++i)
    zeros[i] = static_cast<uint8_t>((zeros[i] + layout_.zero_offset) & mask);
  raw.zeros = view_of(memory.zeros.data(), DType::uint8, {rows, across});
  return raw;
}

}  // namespace maniple
