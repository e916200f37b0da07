// What a packed model holds, and how its tensors are cut.
#pragma once

#include <runtime/checkpoint/safetensors.hpp>

namespace maniple {

struct TensorToPack {
  std::string file;  // the safetensors file
  std::string name;
  std::string link;  // its path in the HDF5 file
  StoredTensor stored;
};

struct Packing {
  std::string architecture;           // of config.json
  PackedIndex index;                  // without offsets and hashes
  std::vector<TensorToPack> tensors;  // of layers in their order
  std::string note;                   // why all tensors are whole; else empty

  PackedTensor& packed(const TensorToPack& tensor) {
    return index.safetensors.at(tensor.file).tensors.find(tensor.name)->second;
  }
};

// Reads a directory with today's checks. A tensor that tensor ranks share by rows or by columns is cut into `shards` parts of
// these; the others stay whole, as do all tensors of a model that this version cannot run.
Packing packing_of(const ModelFiles& files, int shards);

// A tensor's path in the HDF5 file: in /tensors, or in /unlisted/FILE where the model's index does not name it.
std::string link_of(const std::string& file, const std::string& name, bool listed);

std::string link_of_file(const std::string& name);  // and that of a small file

// The subfolders and other things of the directory that are no files of the model.
std::vector<std::string> left_behind(const ModelFiles& files);

}  // namespace maniple
