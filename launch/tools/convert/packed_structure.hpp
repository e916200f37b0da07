// The HDF5 side of a packed model: all that the library writes, and where it puts it.
#pragma once

#include <launch/tools/convert/packing.hpp>

namespace maniple {

// Makes the file with all its objects, none of which has content yet, and sets the offsets of `packing`. Returns the place of
// the index, which has room for every text of it. Replaces an older file. align: a power of two.
PackedBytes make_structure(const std::filesystem::path& path, Packing& packing, int shards, uint64_t align);

// Where the library finds a chunk elsewhere than the index, or nothing at all: a line each ("tensor T, chunk 3 ..."). Fails
// (input) if the library cannot open the file or its schema is not ours.
std::vector<std::string> differences_of_structure(const std::filesystem::path& path, const PackedIndex& index,
                                                  const std::map<std::string, StoredTensors>& tensors);

}  // namespace maniple
