// Reductions over a warp and over a block, of any type that shuffle() takes. Every thread gets the result.
#pragma once

#include <device/primitives.hpp>

#include <functional>

namespace maniple::cuda {

// combine must be commutative: partners combine each other's values in opposite order.
template <typename T, typename Combine>
__device__ inline T warp_reduce(T value, Combine combine) {
  for (int mask = 16; mask > 0; mask /= 2) value = combine(value, device::shuffle_xor(value, mask));
  return value;
}
__device__ inline float warp_sum(float value) { return warp_reduce(value, std::plus<float>{}); }
__device__ inline float warp_maximum(float value) {
  return warp_reduce(value, [](float a, float b) { return a > b ? a : b; });
}

// scratch: shared, one entry per warp; free again when the call returns.
template <typename T, typename Combine>
__device__ inline T block_reduce(T value, T* scratch, Combine combine) {
  value = warp_reduce(value, combine);
  if (device::lane_index() == 0) scratch[device::warp_index()] = value;
  device::synchronize_block();
  value = scratch[0];
  for (int warp = 1; warp < device::block_threads() / 32; ++warp) value = combine(value, scratch[warp]);
  device::synchronize_block();
  return value;
}
template <typename T>
__device__ inline T block_sum(T value, T* scratch) {
  return block_reduce(value, scratch, std::plus<T>{});
}

// The sum of the values of the threads before this one. total: of all threads. scratch: as in block_reduce.
template <typename T>
__device__ inline T block_sum_before(std::type_identity_t<T> value, T* scratch, T& total) {
  const int lane = device::lane_index();
  T sum = value;  // of the lanes up to this one
  for (int distance = 1; distance < 32; distance *= 2) {
    const T other = device::shuffle(sum, (lane - distance) & 31);
    if (lane >= distance) sum += other;
  }
  if (lane == 31) scratch[device::warp_index()] = sum;
  device::synchronize_block();
  T before = sum - value;
  total = 0;
  for (int warp = 0; warp < device::block_threads() / 32; ++warp) {
    if (warp == device::warp_index()) before += total;
    total += scratch[warp];
  }
  device::synchronize_block();
  return before;
}

// The first number after `no` for which it holds, as for all from there to `yes`.
template <typename T, typename Holds>
__device__ T first_where(T no, T yes, Holds holds) {
  while (yes - no > 1) {
    const T middle = no + (yes - no) / 2;
    (holds(middle) ? yes : no) = middle;
  }
  return yes;
}

// Whether this block is the last of `count` that add themselves to a counter, which then returns to zero. If so, and after a fence, it
// sees what the others wrote before. All threads call it. before: shared, of nothing else while they use the answer.
// The first: where all threads have made a fence and met already.
__device__ inline bool is_last_after_fence(int32_t* arrivals, int count, int& before) {
  if (device::thread_index() == 0) {
    before = device::atomic_add(arrivals, 1);
    if (before == count - 1) *arrivals = 0;
  }
  device::synchronize_block();
  return before == count - 1;
}
__device__ inline bool is_last_to_arrive(int32_t* arrivals, int count, int& before) {
  device::memory_fence();
  device::synchronize_block();
  return is_last_after_fence(arrivals, count, before);
}

}  // namespace maniple::cuda
