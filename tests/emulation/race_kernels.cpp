#include <device/primitives.hpp>
#include <emulation/race_kernels.hpp>

namespace maniple::cuda {

using namespace device;

namespace {

alignas(16) const int source[4 * 64] = {};
int arrivals, counter, parts[4 * 64];

int* shared() { return reinterpret_cast<int*>(shared_memory()); }
void use(int value) { shuffle(value, 0); }

}  // namespace

void written_twice() {
  if (thread_index() == 5) shared()[3] = 1;
  shuffle(1, 0);
  if (thread_index() == 40) shared()[3] = 2;
}

void reversed(int among, Meeting meeting) {
  const int mine = thread_index(), first = mine / among * among;
  shared()[mine] = mine;
  if (meeting == Meeting::block) synchronize_block();
  if (meeting == Meeting::warp) synchronize_warp();
  if (meeting == Meeting::shuffle) shuffle(1, 0);
  if (meeting == Meeting::ballot) ballot(true);
  use(shared()[first + among - 1 - mine % among]);
}

void taking_turns(bool meet_after) {
  for (int turn = 0; turn < 2; ++turn) {
    if (thread_index() == turn) shared()[0] = turn;
    synchronize_block();
    use(shared()[0]);
    if (meet_after) synchronize_block();
  }
}

void neighbouring_bytes() { shared_memory()[thread_index()] = std::byte{1}; }
void read_unwritten() { use(shared()[thread_index()]); }

void copied(bool waits, bool meets, bool own) {
  const int mine = thread_index();
  copy_async(shared() + 4 * mine, source + 4 * mine);
  commit_copies();
  if (waits) wait_copies<0>();
  if (meets) synchronize_warp();
  use(shared()[4 * (own ? mine : mine ^ 1)]);
}

void copied_in_groups(int read_group, int pending) {
  int* const mine = shared() + 8 * thread_index();
  for (int i = 0; i < 2; ++i) {
    copy_async(mine + 4 * i, source);
    commit_copies();
  }
  pending == 1 ? wait_copies<1>() : wait_copies<0>();
  use(mine[4 * read_group]);
}

void loaded_as_matrices(bool meets) {
  auto* const row = reinterpret_cast<uint16_t*>(shared_memory()) + 8 * thread_index();
  for (int i = 0; i < 8; ++i) row[i] = 1;
  if (meets) synchronize_warp();
  uint32_t matrices[4];
  load_matrices(matrices, row);
}

void added_by_the_last(const Arrival& a) {
  parts[block_index().x * 64 + thread_index()] = 1;
  if (a.fence_before && !a.one_fences) memory_fence();
  if (a.meets_before) synchronize_block();
  if (thread_index() == 0) {
    if (a.one_fences) memory_fence();
    shared()[0] = atomic_add(&arrivals, 1);
    if (a.one_fences) memory_fence();
    if (shared()[0] == grid_size().x - 1) arrivals = 0;
  }
  if (a.meets_after) synchronize_block();
  const bool last = shared()[0] == grid_size().x - 1;
  if (last && a.fence_after && !a.one_fences) memory_fence();
  int sum = 0;
  for (int block = 0; last && block < grid_size().x; ++block) sum += parts[block * 64 + thread_index()];
  use(sum);
}

void counted_by_blocks(bool atomic) {
  if (atomic)
    atomic_add(&counter, 1);
  else
    ++counter;
}

}  // namespace maniple::cuda
