// One file in the safetensors format: header length (8 bytes, little endian), a JSON header, the tensors back
// to back. The format and its rules: https://github.com/huggingface/safetensors#format
#pragma once

#include <runtime/checkpoint/checkpoint_reader.hpp>
#include <runtime/checkpoint/input_file.hpp>

#include <functional>
#include <map>

namespace maniple {

struct StoredTensor {
  TensorInfo info;
  uint64_t offset = 0;  // bytes from the end of the header
};
using StoredTensors = std::map<std::string, StoredTensor, std::less<>>;

// Believes nothing: types, shapes, sizes and offsets must agree, and the tensors must fill data_bytes without
// overlap or hole. where: the file's name for messages. Fails with ExitCode::input.
StoredTensors parse_safetensors_header(std::string_view header, uint64_t data_bytes, std::string_view where);

class SafetensorsFile final : public CheckpointReader {
 public:
  explicit SafetensorsFile(std::filesystem::path path);

  std::vector<std::string> names() const override;
  const TensorInfo* find(std::string_view name) const override;
  void read(std::string_view name, std::span<const int64_t> begin, std::span<const int64_t> extent,
            std::span<std::byte> out) const override;

  const std::filesystem::path& path() const { return file_.path(); }

 private:
  InputFile file_;
  uint64_t data_begin_ = 0;  // offset of the first byte after the header
  StoredTensors tensors_;
};

}  // namespace maniple
