#include <kernels/support/check.hpp>
#include <kernels/support/counted.hpp>
#include <runtime/checkpoint/json_fields.hpp>
#include <runtime/checkpoint/safetensors.hpp>

#include <fmt/ranges.h>

#include <algorithm>
#include <array>

namespace maniple {

using nlohmann::json;

namespace {

constexpr uint64_t length_bytes = 8;

struct StoredType {
  std::string_view name;
  uint64_t item_bytes;
  std::optional<DType> dtype;
};

constexpr StoredType stored_types[] = {
    {"F32", 4, DType::fp32},      {"BF16", 2, DType::bf16},     {"F16", 2, DType::fp16},
    {"I32", 4, DType::int32},     {"U8", 1, DType::uint8},      {"BOOL", 1, std::nullopt},
    {"I8", 1, std::nullopt},      {"F8_E4M3", 1, std::nullopt}, {"I16", 2, std::nullopt},
    {"U16", 2, std::nullopt},     {"U32", 4, std::nullopt},     {"F8_E5M2", 1, std::nullopt},
    {"I64", 8, std::nullopt},     {"U64", 8, std::nullopt},     {"F64", 8, std::nullopt},
    {"F8_E8M0", 1, std::nullopt},
};

// item_bytes times the sizes; absent if that is more than 2^64 - 1.
std::optional<uint64_t> bytes_of(uint64_t item_bytes, const std::vector<int64_t>& shape) {
  if (std::ranges::count(shape, 0) > 0) return 0;
  uint64_t bytes = item_bytes;
  for (const int64_t size : shape)
    if (__builtin_mul_overflow(bytes, static_cast<uint64_t>(size), &bytes)) return std::nullopt;
  return bytes;
}

const StoredType* find_type(std::string_view name) {
  const auto* type = std::ranges::find(stored_types, name, &StoredType::name);
  return type == std::end(stored_types) ? nullptr : type;
}

// The size of a tensor of an unknown type cannot be checked. No rank can read it either.
void check_size(const TensorInfo& info, const JsonFields& entry) {
  const StoredType* type = find_type(info.stored_type);
  if (!type) return;
  const std::optional<uint64_t> bytes = bytes_of(type->item_bytes, info.shape);
  if (bytes != info.byte_size)
    entry.refuse("data_offsets", fmt::format("{}, for {} of shape {}",
                                             bytes ? counted(*bytes, "byte") : "more than 2^64 bytes",
                                             type->name, info.shape));
}

StoredTensor parse_entry(const JsonFields& entry, uint64_t data_bytes) {
  StoredTensor tensor;
  tensor.info.stored_type = entry.text("dtype");
  tensor.info.shape = entry.sizes("shape");
  const std::vector<int64_t> range = entry.sizes("data_offsets");
  if (range.size() != 2 || range[0] > range[1] || static_cast<uint64_t>(range[1]) > data_bytes)
    entry.refuse("data_offsets",
                 fmt::format("a begin and an end in the {} after the header (is the file complete?)",
                             counted(data_bytes, "byte")));
  tensor.offset = static_cast<uint64_t>(range[0]);
  tensor.info.byte_size = static_cast<uint64_t>(range[1] - range[0]);
  tensor.info.dtype = dtype_of(tensor.info.stored_type);
  check_size(tensor.info, entry);
  return tensor;
}

// In the order of their offsets each tensor begins where the one before ends, and the last
// ends with the file.
void check_layout(const StoredTensors& tensors, uint64_t data_bytes, std::string_view where) {
  std::vector<const StoredTensors::value_type*> order;
  for (const auto& tensor : tensors) order.push_back(&tensor);
  std::ranges::sort(order, {},
                    [](const auto* t) { return std::pair(t->second.offset, t->second.info.byte_size); });
  uint64_t end = 0;
  for (const auto* tensor : order) {
    const uint64_t begin = tensor->second.offset;
    if (begin != end)
      fail(ExitCode::input,
           "{}: tensor {} begins at byte {} of the data, {} the end of the one before it at {}", where,
           shown(tensor->first), begin, begin < end ? "overlapping" : "leaving a hole after", end);
    end += tensor->second.info.byte_size;
  }
  if (end != data_bytes)
    fail(ExitCode::input, "{}: the tensors end at byte {} of the data, the file at {}", where, end,
         data_bytes);
}

uint64_t header_length(const InputFile& file) {
  if (file.size() < length_bytes)
    fail(ExitCode::input, "{} has {}; a safetensors file has at least {}", file.path().string(),
         counted(file.size(), "byte"), length_bytes + 2);
  std::array<std::byte, length_bytes> bytes;
  file.read(0, bytes);
  uint64_t length = 0;
  for (size_t i = 0; i < length_bytes; ++i) length |= std::to_integer<uint64_t>(bytes[i]) << (8 * i);
  const uint64_t limit = std::min(max_header_bytes, file.size() - length_bytes);
  if (length > limit)
    fail(ExitCode::input,
         "{}: the header claims {} bytes; at most {} are possible (is it a complete safetensors file?)",
         file.path().string(), length, limit);
  return length;
}

}  // namespace

StoredTensors parse_safetensors_header(std::string_view header, uint64_t data_bytes, std::string_view where) {
  const json entries = parse_json(header, where);
  StoredTensors tensors;
  for (const auto& [name, value] : JsonFields(entries, where).items())
    if (name != "__metadata__")
      tensors.emplace(name, parse_entry(JsonFields(value, where, "tensor " + shown(name)), data_bytes));
  check_layout(tensors, data_bytes, where);
  return tensors;
}

StoredTensors read_safetensors_header(const InputFile& file, std::optional<uint64_t> size) {
  std::string header(header_length(file), '\0');
  file.read(length_bytes, std::as_writable_bytes(std::span(header)));
  const uint64_t data_begin = length_bytes + header.size();
  const uint64_t end = size.value_or(file.size());
  if (end < data_begin)
    fail(ExitCode::input, "{}: the header has {}, the file {}", file.path().string(),
         counted(data_begin, "byte"), end);
  StoredTensors tensors = parse_safetensors_header(header, end - data_begin, file.path().string());
  for (auto& [name, tensor] : tensors) tensor.offset += data_begin;
  return tensors;
}

std::optional<DType> dtype_of(std::string_view stored_type) {
  const StoredType* type = find_type(stored_type);
  return type ? type->dtype : std::nullopt;
}

std::optional<uint64_t> item_bytes_of(std::string_view stored_type) {
  const StoredType* type = find_type(stored_type);
  return type ? std::optional(type->item_bytes) : std::nullopt;
}

}  // namespace maniple
