// Any bytes as the index of a packed model: refused with an Error, or every range that it names lies inside the file.
#include <kernels/support/check.hpp>
#include <runtime/checkpoint/extents.hpp>

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* bytes, size_t size) {
  constexpr uint64_t file_size = 10'000;
  const maniple::TensorInfo info{"BF16", maniple::DType::bf16, {10, 6}, 120};
  try {
    const std::string_view text(reinterpret_cast<const char*>(bytes), size);
    const maniple::PackedIndex index = maniple::packed_index_from(text, "fuzz.h5", file_size);
    for (const auto& [name, file] : index.files)
      maniple::require(file.offset <= file_size && file.size <= file_size - file.offset,
                       "a file lies inside");
    for (const auto& [name, file] : index.safetensors)
      for (const auto& [tensor, packed] : file.tensors)
        for (const maniple::Extent& extent : maniple::extents_of(info, packed, 0, file_size, tensor))
          maniple::require(extent.offset <= file_size && extent.bytes() <= file_size - extent.offset,
                           "a chunk lies inside");
  } catch (const maniple::Error& error) {
    if (error.code() != maniple::ExitCode::input) throw;
  }
  return 0;
}
