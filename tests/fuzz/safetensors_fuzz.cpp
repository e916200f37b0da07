// Any bytes as a safetensors header: refused with an Error, or every tensor lies inside the data.
#include <kernels/support/check.hpp>
#include <runtime/checkpoint/safetensors.hpp>

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* bytes, size_t size) {
  if (size < 2) return 0;
  const uint64_t data_bytes = bytes[0] | (uint64_t{bytes[1]} << 8);
  try {
    const std::string_view header(reinterpret_cast<const char*>(bytes) + 2, size - 2);
    uint64_t total = 0;
    for (const auto& [name, tensor] :
         maniple::parse_safetensors_header(header, data_bytes, "fuzz.safetensors")) {
      maniple::require(tensor.offset <= data_bytes && tensor.info.byte_size <= data_bytes - tensor.offset,
                       "a tensor lies in the data");
      total += tensor.info.byte_size;
    }
    maniple::require(total == data_bytes, "the tensors fill the data");
  } catch (const maniple::Error& error) {
    if (error.code() != maniple::ExitCode::input) throw;
  }
  return 0;
}
