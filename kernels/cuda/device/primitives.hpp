// The primitives of all kernels, and the only place with PTX. The tests compile the same kernels over a
// header of the same name that emulates a block with one fiber per thread (tests/emulation).
//
// Blocks are one-dimensional, of whole warps. Every lane of a warp takes part in a warp's operation, every
// thread of a block in a barrier. Names of PTX instructions: NVIDIA, Parallel Thread Execution ISA 9.0.
#pragma once

#include <device/launch.hpp>

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cstdint>
#include <type_traits>

// Before a loop: it is rare, so its code stays small.
#define DEVICE_ROLLED _Pragma("unroll 1")

namespace maniple::device {

// Converted by static_cast, to nearest even.
using bf16 = __nv_bfloat16;
using fp16 = __half;

// --- place ---
__device__ inline int thread_index() { return static_cast<int>(threadIdx.x); }
__device__ inline int block_threads() { return static_cast<int>(blockDim.x); }
__device__ inline int lane_index() { return thread_index() % 32; }
__device__ inline int warp_index() { return thread_index() / 32; }
__device__ inline Grid block_index() {
  return {static_cast<int>(blockIdx.x), static_cast<int>(blockIdx.y), static_cast<int>(blockIdx.z)};
}
__device__ inline Grid grid_size() {
  return {static_cast<int>(gridDim.x), static_cast<int>(gridDim.y), static_cast<int>(gridDim.z)};
}

// The same number, of which the compiler keeps nothing in registers from an earlier place: for loops that have none left.
__device__ inline int computed_here(int number) {
  asm volatile("" : "+r"(number));
  return number;
}

// --- memory ---
// The dynamic shared memory of the block, 128-byte aligned; undefined at the start.
__device__ inline std::byte* shared_memory() {
  extern __shared__ __align__(128) std::byte dynamic_shared[];
  return dynamic_shared;
}
// Sixteen bytes of T, moved by one instruction; addresses are multiples of 16.
template <typename T>
struct alignas(16) Vector {
  static constexpr int size = 16 / sizeof(T);
  T values[size];
};
template <typename T>
__device__ inline Vector<T> load_vector(const T* from) {
  return *reinterpret_cast<const Vector<T>*>(from);
}
template <typename T>
__device__ inline void store_vector(T* to, const Vector<T>& vector) {
  *reinterpret_cast<Vector<T>*>(to) = vector;
}
// Returns the former value. Orders no other memory.
template <typename T>
__device__ inline T atomic_add(T* place, T value) {
  return atomicAdd(place, value);
}
// A thread that sees a write after the fence also sees this thread's writes before it.
__device__ inline void memory_fence() { __threadfence(); }

// --- order of kernels ---
// Every thread of a kernel that is launched early calls it, on every way through the kernel, before it reads or writes memory that a
// kernel writes. Then the kernel before has ended, and since that one waited too, so have all before it. Lets the next kernel start.
__device__ inline void wait_for(PreviousKernel) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.launch_dependents; griddepcontrol.wait;" ::: "memory");
#endif
}

// --- barriers and exchange ---
__device__ inline void synchronize_block() { __syncthreads(); }
__device__ inline void synchronize_warp() { __syncwarp(); }
// The value of another lane. T is made of 32-bit words, 16 bytes at most.
template <typename T>
__device__ inline T shuffle(T value, int lane) {
  static_assert(sizeof(T) % 4 == 0 && sizeof(T) <= 16);
  struct Words {
    uint32_t words[sizeof(T) / 4];
  } exchanged = __builtin_bit_cast(Words, value);
  for (uint32_t& word : exchanged.words) word = __shfl_sync(0xffffffffu, word, lane);
  return __builtin_bit_cast(T, exchanged);
}
template <typename T>
__device__ inline T shuffle_xor(T value, int mask) {
  return shuffle(value, lane_index() ^ mask);
}
// Bit i is the predicate of lane i.
__device__ inline uint32_t ballot(bool predicate) { return __ballot_sync(0xffffffffu, predicate); }

// --- asynchronous copies from global to shared memory ---
// Copies sixteen bytes, or writes zeros where not valid (and reads nothing). This thread sees them after its
// wait, the others after a barrier that follows.
__device__ inline void copy_async(void* to_shared, const void* from_global, bool valid = true) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(
                   static_cast<uint32_t>(__cvta_generic_to_shared(to_shared))),
               "l"(from_global), "r"(valid ? 16 : 0)
               : "memory");
}
// Ends a group of this thread's copies.
__device__ inline void commit_copies() { asm volatile("cp.async.commit_group;" ::: "memory"); }
// Waits until all but the newest `pending` groups have arrived.
template <int pending>
__device__ inline void wait_copies() {
  asm volatile("cp.async.wait_group %0;" ::"n"(pending) : "memory");
}

// --- tensor cores ---
// Four 8 x 8 matrices of 16-bit elements from shared memory. Lane 8 i + r gives the address of row r of
// matrix i; lane l gets elements 2 (l % 4), + 1 of row l / 4 of each.
__device__ inline void load_matrices(uint32_t (&matrices)[4], const void* shared_row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(matrices[0]), "=r"(matrices[1]), "=r"(matrices[2]), "=r"(matrices[3])
               : "r"(static_cast<uint32_t>(__cvta_generic_to_shared(shared_row)))
               : "memory");
}
// The same, with each matrix transposed.
__device__ inline void load_matrices_transposed(uint32_t (&matrices)[4], const void* shared_row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(matrices[0]), "=r"(matrices[1]), "=r"(matrices[2]), "=r"(matrices[3])
               : "r"(static_cast<uint32_t>(__cvta_generic_to_shared(shared_row)))
               : "memory");
}
// sum[16, 8] += a[16, 16] * b[16, 8], T bf16 or fp16, sums fp32. With g = lane / 4, t = 2 (lane % 4):
//   a: rows g, g + 8, g, g + 8 at columns t, t, t + 8, t + 8 (and the next column in the upper half)
//   b: rows t, t + 8 (upper half: the next row) of column g
//   sum: (g, t), (g, t + 1), (g + 8, t), (g + 8, t + 1)
template <typename T>
__device__ inline void multiply_add(float (&sum)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
  static_assert(std::is_same_v<T, bf16> || std::is_same_v<T, fp16>);
  if constexpr (std::is_same_v<T, bf16>)
    asm volatile(
        "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
        "{%0, %1, %2, %3};"
        : "+f"(sum[0]), "+f"(sum[1]), "+f"(sum[2]), "+f"(sum[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
  else
    asm volatile(
        "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
        "{%0, %1, %2, %3};"
        : "+f"(sum[0]), "+f"(sum[1]), "+f"(sum[2]), "+f"(sum[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}
// Packs two values into a register of multiply_add, the first in the lower half.
template <typename T>
__device__ inline uint32_t packed_pair(float low, float high) {
  if constexpr (std::is_same_v<T, bf16>) {
    const __nv_bfloat162 pair = __floats2bfloat162_rn(low, high);
    return *reinterpret_cast<const uint32_t*>(&pair);
  } else {
    const __half2 pair = __floats2half2_rn(low, high);
    return *reinterpret_cast<const uint32_t*>(&pair);
  }
}

// --- arithmetic ---
// a * b, not fused with an addition.
__device__ inline float rounded_product(float a, float b) { return __fmul_rn(a, b); }
// (a & mask) | b, by one instruction also where mask and b are constants.
__device__ inline uint32_t masked_or(uint32_t a, uint32_t mask, uint32_t b) {
  uint32_t result;
  asm("lop3.b32 %0, %1, %2, %3, 0xea;" : "=r"(result) : "r"(a), "r"(mask), "r"(b));
  return result;
}
// Four of the eight bytes of a (0 to 3) and b (4 to 7), each named by four bits of the selector, the lowest first.
__device__ inline uint32_t permute_bytes(uint32_t a, uint32_t b, uint32_t selector) {
  return __byte_perm(a, b, selector);
}
// 2^x, relative error below 2^-21; 0 for -inf.
__device__ inline float fast_exp2(float x) {
  float power;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(power) : "f"(x));
  return power;
}

}  // namespace maniple::device
