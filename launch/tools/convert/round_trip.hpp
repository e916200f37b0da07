// A packed model back to its files, and its check.
#pragma once

#include <runtime/checkpoint/model_files.hpp>

namespace maniple {

// Writes the folder `to`.part, from its beginning also after a kill, then replaces `to`. Every file has the bytes that it
// had. Fails: input, at the first checksum that differs; preflight and fault as pack_model.
void unpack_model(const ModelFiles& files, const std::filesystem::path& to, unsigned threads);

// Reads all of a packed model, and looks whether the HDF5 library finds each chunk where the index says. Prints a line for
// each difference and then fails (input).
void check_packed(const std::filesystem::path& path, unsigned threads);

}  // namespace maniple
