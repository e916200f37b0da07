// Kernels for blocks of 64 threads, right or wrong, for the race detector. They are compiled as it needs them.
#pragma once

#include <device/stream.hpp>

namespace maniple::cuda {

enum class Meeting { none, block, warp, shuffle, ballot };

// Thread 5 of the block and then thread 40 write one number.
void written_twice();
// Each thread reads what its counterpart among so many neighbours wrote.
void reversed(int among, Meeting meeting);
// In turns one thread writes what all read.
void taking_turns(bool meet_after);
void neighbouring_bytes();
void read_unwritten();
// Each thread copies sixteen bytes and reads those of a neighbour, or its own.
void copied(bool waits, bool meets, bool own);
// Two groups of copies, of which all but `pending` are waited for.
void copied_in_groups(int read_group, int pending);
void loaded_as_matrices(bool meets);

// The last of four blocks to arrive adds what all have written.
struct Arrival {
  bool fence_before = true, meets_before = true, meets_after = true, fence_after = true;
  bool one_fences = false;  // the thread that counts, between the barriers, for all
};
void added_by_the_last(const Arrival& arrival);
void counted_by_blocks(bool atomic);

}  // namespace maniple::cuda
