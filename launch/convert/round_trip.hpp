// A packed model back to its files, and its check.
#pragma once

#include <runtime/checkpoint/model_files.hpp>

namespace maniple {

// Writes the folder `to`.part, and `to`.progress, then replaces `to`; end_conversion removes the log. Every file has the bytes
// that it had. After a kill or a full disk the same call goes on with what is missing. Fails: input, at the first checksum that differs, or if `files` have
// changed since then; preflight and fault as pack_model.
void unpack_model(const ModelFiles& files, const std::filesystem::path& to, unsigned threads);

// Whether an unpack_model to the same target has renamed `to`, and the log is still there.
bool was_unpacked(const ModelFiles& files, const std::filesystem::path& to);

// Reads all of a packed model, and looks whether the HDF5 library finds each chunk where the index says. Prints a line for
// each difference and then fails (input).
void check_packed(const std::filesystem::path& path, unsigned threads);

}  // namespace maniple
