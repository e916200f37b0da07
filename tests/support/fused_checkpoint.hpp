// Rewrites models in the fused forms of other checkpoints: qkv_proj and gate_up_proj instead of their parts;
// tensors of three dimensions instead of single experts.
#pragma once

#include <runtime/checkpoint/weight_index.hpp>
#include <support/safetensors_writer.hpp>

#include <map>
#include <utility>

namespace maniple::testing {

inline std::vector<std::byte> bytes_of(const WeightIndex& index, const std::string& name) {
  const IndexedTensor& tensor = index.tensors.at(name);
  std::vector<std::byte> bytes(tensor.info.byte_size);
  InputFile(index.files[tensor.extents.at(0).file].path).read(tensor.extents[0].offset, bytes);
  return bytes;
}

inline std::vector<TensorToWrite> with_fused_experts(const WeightIndex& index) {
  std::vector<TensorToWrite> tensors;
  // Parts of an expert side by side, expert after expert.
  const auto fuse = [&](const std::string& block, const std::string& to, std::vector<std::string> parts) {
    TensorToWrite fused{to, "", {0, 0, 0}, {}};
    for (int64_t expert = 0;; ++expert) {
      fused.shape[0] = expert;
      for (const std::string& part : parts) {
        const std::string name = fmt::format("{}.experts.{}.{}.weight", block, expert, part);
        const auto found = index.tensors.find(name);
        if (found == index.tensors.end()) return tensors.push_back(fused);
        const TensorInfo& info = found->second.info;
        fused.dtype = info.stored_type;
        fused.shape = {expert, info.shape[0] * static_cast<int64_t>(parts.size()), info.shape[1]};
        const std::vector<std::byte> bytes = bytes_of(index, name);
        fused.bytes.insert(fused.bytes.end(), bytes.begin(), bytes.end());
      }
    }
  };
  for (const auto& [name, tensor] : index.tensors) {
    const size_t qwen = name.find(".mlp.gate.weight"), mixtral = name.find(".block_sparse_moe.gate.weight");
    const std::string layer = name.substr(0, std::min(qwen, mixtral)), to = layer + ".mlp.experts.";
    if (name.find(".experts.") != name.npos) continue;
    std::string kept = name;
    if (const size_t block = name.find("block_sparse_moe"); block != name.npos)
      kept.replace(block, 16, "mlp");
    tensors.push_back({kept, tensor.info.stored_type, tensor.info.shape, bytes_of(index, name)});
    if (qwen != name.npos) {
      fuse(layer + ".mlp", to + "gate_up_proj", {"gate_proj", "up_proj"});
      fuse(layer + ".mlp", to + "down_proj", {"down_proj"});
    } else if (mixtral != name.npos) {
      fuse(layer + ".block_sparse_moe", to + "gate_up_proj", {"w1", "w3"});
      fuse(layer + ".block_sparse_moe", to + "down_proj", {"w2"});
    }
  }
  return tensors;
}

inline void write_fused_experts(const ModelFiles& model, const std::filesystem::path& to) {
  write_safetensors(to / "model.safetensors", with_fused_experts(read_index(model)));
  std::filesystem::copy(model.path("config.json"), to / "config.json");
}

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
      const size_t at =
          entry.first.find(".experts.") == std::string::npos ? entry.first.find(part) : std::string::npos;
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
