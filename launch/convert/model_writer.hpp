// A directory of safetensors files to a packed model.
#pragma once

#include <launch/convert/packing.hpp>

namespace maniple {

struct PackOptions {
  int shards = 8;
  uint64_t align = 4096;
  unsigned threads = 0;  // 0: of the machine
  bool verify = false;
};

// Writes `to`.part and `to`.progress, and renames at the end; end_conversion removes the log. After a kill or a full disk the
// same call goes on with what is missing. source: a hash of the model without its weights. Fails: input, if the source has changed since then; preflight,
// without room or if another process writes the same target; fault, if the disk fails.
void pack_model(const ModelFiles& files, const std::filesystem::path& to, uint64_t source,
                const PackOptions& options);

// Whether a pack_model with the same arguments has renamed `to`, and the log is still there.
bool was_packed(const ModelFiles& files, const std::filesystem::path& to, uint64_t source,
                const PackOptions& options);

}  // namespace maniple
