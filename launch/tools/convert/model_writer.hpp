// A directory of safetensors files to a packed model.
#pragma once

#include <launch/tools/convert/packing.hpp>
namespace maniple {

struct PackOptions {
  int shards = 8;
  uint64_t align = 4096;
  unsigned threads = 0;  // 0: of the machine
  bool verify = false;
};

// Writes `to`.part, from its beginning also after a kill, and renames it at the end. Fails: input, if a file is no model's;
// preflight, without room or if another process writes the same target; fault, if the disk fails.
void pack_model(const ModelFiles& files, const std::filesystem::path& to, const PackOptions& options);

}  // namespace maniple
