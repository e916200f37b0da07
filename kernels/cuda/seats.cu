#include <kernels/cuda/chunks.hpp>
#include <kernels/cuda/seats.hpp>

namespace maniple::cuda {

using namespace device;

namespace {

constexpr int threads = 128;

// One thread per entry.
__device__ int entry_index() { return block_index().x * threads + thread_index(); }

__global__ void __launch_bounds__(threads) scatter_entry(PreviousKernel previous, const int32_t* indices,
                                                         const int32_t* values, int32_t* out, int count) {
  wait_for(previous);
  if (const int i = entry_index(); i < count) out[indices[i]] = values[i];
}

__global__ void __launch_bounds__(threads)
    resolve_entry(PreviousKernel previous, const int32_t* last_tokens, int32_t* ids, int count,
                  const int32_t* places, int32_t* tokens) {
  wait_for(previous);
  const int i = entry_index();
  if (i >= count) return;
  if (ids[i] < 0) ids[i] = last_tokens[-1 - ids[i]];
  if (places && places[i] != -1) tokens[places[i]] = ids[i];
}

__global__ void __launch_bounds__(threads)
    choose_row(PreviousKernel previous, const Candidate* gathered, int shards, int rows, const int32_t* seats,
               Candidate* out, int32_t* last_tokens) {
  wait_for(previous);
  const int row = entry_index();
  if (row >= rows) return;
  Candidate best = gathered[row];
  for (int shard = 1; shard < shards; ++shard) {
    const Candidate other = gathered[shard * rows + row];
    if (other.score > best.score || (other.score == best.score && other.id < best.id)) best = other;
  }
  out[row] = best;
  if (const int32_t seat = seats[row]; seat != -1) last_tokens[seat] = best.id < 0 ? 0 : best.id;
}

}  // namespace

void scatter(Stream stream, const int32_t* indices, const int32_t* values, int32_t* out, int count) {
  launch_early(scatter_entry, blocks_of(count, threads), threads, 0, stream, indices, values, out, count);
}

void resolve_last_tokens(Stream stream, const int32_t* last_tokens, int32_t* ids, int count,
                         const int32_t* places, int32_t* tokens) {
  launch_early(resolve_entry, blocks_of(count, threads), threads, 0, stream, last_tokens, ids, count, places,
               tokens);
}

void choose(Stream stream, const Candidate* gathered, int shards, int rows, const int32_t* seats,
            Candidate* out, int32_t* last_tokens) {
  launch_early(choose_row, blocks_of(rows, threads), threads, 0, stream, gathered, shards, rows, seats, out,
               last_tokens);
}

}  // namespace maniple::cuda
