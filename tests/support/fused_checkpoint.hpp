// Rewrites a model in the fused form of other checkpoints: qkv_proj and gate_up_proj instead of their parts.
#pragma once

#include <runtime/checkpoint/weight_index.hpp>
#include <support/safetensors_writer.hpp>

#include <map>
#include <utility>

namespace maniple::testing {

inline void write_fused(const ModelFiles& model, const std::filesystem::path& to) {
  WeightIndex index = read_index(model);
  std::map<std::string, TensorToWrite> tensors;
  const auto append = [&](const std::string& name, const IndexedTensor& tensor) {
    std::vector<std::byte> bytes(tensor.info.byte_size);
    const Extent& extent = tensor.extents.at(0);
    InputFile(index.files[extent.file].path).read(extent.offset, bytes);
    const TensorToWrite empty{name, tensor.info.stored_type, tensor.info.shape, {}};
    const auto [entry, added] = tensors.emplace(name, empty);
    if (!added) entry->second.shape[0] += tensor.info.shape[0];
    entry->second.bytes.insert(entry->second.bytes.end(), bytes.begin(), bytes.end());
  };
  for (const auto& [part, fused] : {std::pair<std::string, std::string>{".q_proj.", ".qkv_proj."},
                                    {".k_proj.", ".qkv_proj."},
                                    {".v_proj.", ".qkv_proj."},
                                    {".gate_proj.", ".gate_up_proj."},
                                    {".up_proj.", ".gate_up_proj."}})
    std::erase_if(index.tensors, [&](const auto& entry) {
      const size_t at = entry.first.find(part);
      if (at != std::string::npos)
        append(std::string(entry.first).replace(at, part.size(), fused), entry.second);
      return at != std::string::npos;
    });
  for (const auto& [name, tensor] : index.tensors) append(name, tensor);
  std::vector<TensorToWrite> all;
  for (auto& [name, tensor] : tensors) all.push_back(std::move(tensor));
  write_safetensors(to / "model.safetensors", all);
  std::filesystem::copy(model.path("config.json"), to / "config.json");
}

}  // namespace maniple::testing
