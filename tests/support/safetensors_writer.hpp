// Writes small safetensors files for tests.
#pragma once

#include <fmt/core.h>
#include <fmt/ranges.h>

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

namespace maniple {

struct TensorToWrite {
  std::string name;
  std::string dtype;  // as the format calls it: "BF16"
  std::vector<int64_t> shape;
  std::vector<std::byte> bytes;
};

// Any header before any data, in the file format: for hostile files too.
inline void write_raw_safetensors(const std::filesystem::path& path, std::string_view header,
                                  std::string_view data) {
  std::ofstream file(path, std::ios::binary);
  for (int i = 0; i < 8; ++i) file.put(static_cast<char>((header.size() >> (8 * i)) & 0xff));
  file << header << data;
  if (!file.flush()) throw std::runtime_error("cannot write " + path.string());
}

inline void write_safetensors(const std::filesystem::path& path, const std::vector<TensorToWrite>& tensors) {
  std::string header = R"({"__metadata__":{"format":"pt"})", data;
  for (const TensorToWrite& tensor : tensors) {
    const size_t begin = data.size();
    data.append(reinterpret_cast<const char*>(tensor.bytes.data()), tensor.bytes.size());
    header += fmt::format(R"(,"{}":{{"dtype":"{}","shape":[{}],"data_offsets":[{},{}]}})", tensor.name,
                          tensor.dtype, fmt::join(tensor.shape, ","), begin, data.size());
  }
  write_raw_safetensors(path, header + "}", data);
}

}  // namespace maniple
