// The primitives of kernels/cuda/device/primitives.hpp over fibers: the same names, the same meaning, and a
// check where a device would silently do something else.
#pragma once

#include <device/launch.hpp>
#include <kernels/tensor/dtype.hpp>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <source_location>
#include <type_traits>

#define __global__
#define __device__
#define __launch_bounds__(...)
#define DEVICE_ROLLED

namespace maniple::device {

using bf16 = BFloat16;
using fp16 = Float16;
using Place = std::source_location;

// --- place ---
inline int thread_index() { return emulation::thread_index(); }
inline int block_threads() { return emulation::block_threads(); }
inline int lane_index() { return thread_index() % 32; }
inline int warp_index() { return thread_index() / 32; }
inline Grid block_index() { return emulation::block_index(); }
inline Grid grid_size() { return emulation::grid_size(); }

inline int computed_here(int number) { return number; }

// --- memory ---
inline std::byte* shared_memory() { return emulation::shared_memory(); }
template <typename T>
struct alignas(16) Vector {
  static constexpr int size = 16 / sizeof(T);
  T values[size];
};
inline void check_alignment(const void* address) {
  if (reinterpret_cast<uintptr_t>(address) % 16 != 0)
    throw emulation::EmulationError("sixteen bytes at an address that is no multiple of 16");
}
template <typename T>
Vector<T> load_vector(const T* from) {
  check_alignment(from);
  Vector<T> vector;
  std::memcpy(vector.values, from, 16);
  return vector;
}
template <typename T>
void store_vector(T* to, const Vector<T>& vector) {
  check_alignment(to);
  std::memcpy(to, vector.values, 16);
}
template <typename T>
T atomic_add(T* place, T value) {
  if (emulation::observer) emulation::observer->begin_atomic(place);
  const T before = *place;
  *place = before + value;
  if (emulation::observer) emulation::observer->end_atomic();
  return before;
}
inline float rounded_product(float a, float b) { return a * b; }
inline void memory_fence(Place place = Place::current()) { emulation::memory_fence(place); }

// --- order of kernels ---
inline void wait_for(PreviousKernel previous) { *previous.waited = true; }

// --- barriers and exchange ---
inline void synchronize_block(Place place = Place::current()) { emulation::block_barrier(place); }
// complete(parts) gets the parts of all 32 lanes.
template <typename Part, typename Complete>
void in_warp(Part& mine, Place place, Complete complete) {
  if (const emulation::Lanes* lanes = emulation::arrive_in_warp(&mine, place)) {
    complete([&](int lane) -> Part& { return *static_cast<Part*>((*lanes)[static_cast<size_t>(lane)]); });
    emulation::release_warp();
  }
}
inline void synchronize_warp(Place place = Place::current()) {
  int nothing = 0;
  in_warp(nothing, place, [&](auto) { emulation::warp_barrier(place); });
}
template <typename T>
T shuffle(T value, int lane, Place place = Place::current()) {
  static_assert(sizeof(T) % 4 == 0 && sizeof(T) <= 16 && std::is_trivially_copyable_v<T>);
  struct Part {
    T value, taken;
    int lane;
  } mine{value, value, lane};
  in_warp(mine, place, [](auto part) {
    for (int i = 0; i < 32; ++i) part(i).taken = part(part(i).lane & 31).value;
  });
  return mine.taken;
}
template <typename T>
T shuffle_xor(T value, int mask, Place place = Place::current()) {
  return device::shuffle(value, lane_index() ^ mask, place);
}
inline uint32_t ballot(bool predicate, Place place = Place::current()) {
  struct Part {
    bool predicate;
    uint32_t bits;
  } mine{predicate, 0};
  in_warp(mine, place, [](auto part) {
    uint32_t bits = 0;
    for (int i = 0; i < 32; ++i) bits |= static_cast<uint32_t>(part(i).predicate) << i;
    for (int i = 0; i < 32; ++i) part(i).bits = bits;
  });
  return mine.bits;
}

// --- asynchronous copies from global to shared memory ---
inline void copy_async(void* to_shared, const void* from_global, bool valid = true) {
  emulation::copy_async(to_shared, from_global, valid);
}
inline void commit_copies() { emulation::commit_copies(); }
template <int pending>
void wait_copies(Place place = Place::current()) {
  emulation::wait_copies(pending, place);
}

// --- tensor cores ---
struct MatrixLoad {
  const uint16_t* row;
  uint32_t* matrices;
};
// element(row, column) of the matrix whose rows come from the lanes from `first` on.
template <typename Element>
void distribute(uint32_t (&matrices)[4], const void* shared_row, Place place, Element element) {
  check_alignment(shared_row);
  MatrixLoad mine{static_cast<const uint16_t*>(shared_row), matrices};
  in_warp(mine, place, [&](auto part) {
    for (int lane = 0; lane < 32; ++lane) {
      if (emulation::observer) emulation::observer->begin_acting(lane);
      for (int i = 0; i < 4; ++i) {
        const int row = lane / 4, column = 2 * (lane % 4);
        const uint32_t low = element(part, 8 * i, row, column), high = element(part, 8 * i, row, column + 1);
        part(lane).matrices[i] = low | high << 16;
      }
    }
    if (emulation::observer) emulation::observer->end_acting();
  });
}
inline void load_matrices(uint32_t (&matrices)[4], const void* shared_row, Place place = Place::current()) {
  distribute(matrices, shared_row, place,
             [](auto part, int first, int row, int column) { return part(first + row).row[column]; });
}
inline void load_matrices_transposed(uint32_t (&matrices)[4], const void* shared_row,
                                     Place place = Place::current()) {
  distribute(matrices, shared_row, place,
             [](auto part, int first, int row, int column) { return part(first + column).row[row]; });
}

template <typename T>
void unpack_pair(uint32_t word, float& low, float& high) {
  const T values[2] = {std::bit_cast<T>(static_cast<uint16_t>(word)),
                       std::bit_cast<T>(static_cast<uint16_t>(word >> 16))};
  low = static_cast<float>(values[0]);
  high = static_cast<float>(values[1]);
}
struct Fragments {
  float* sum;
  const uint32_t* a;
  uint32_t b[2];
};
// Products are exact in fp32. Sums go in the order of k; a device may use another order.
template <typename T>
void multiply_add(float (&sum)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1,
                  Place place = Place::current()) {
  Fragments mine{sum, a, {b0, b1}};
  in_warp(mine, place, [](auto part) {
    float left[16][16], right[16][8], sums[16][8];
    for (int lane = 0; lane < 32; ++lane) {
      const int g = lane / 4, t = 2 * (lane % 4);
      const Fragments& given = part(lane);
      for (int i = 0; i < 4; ++i) {
        const int row = g + i % 2 * 8, column = t + i / 2 * 8;
        unpack_pair<T>(given.a[i], left[row][column], left[row][column + 1]);
        sums[g + i / 2 * 8][t + i % 2] = given.sum[i];
      }
      for (int i = 0; i < 2; ++i) unpack_pair<T>(given.b[i], right[t + 8 * i][g], right[t + 8 * i + 1][g]);
    }
    for (int row = 0; row < 16; ++row)
      for (int k = 0; k < 16; ++k)
        for (int column = 0; column < 8; ++column) sums[row][column] += left[row][k] * right[k][column];
    for (int lane = 0; lane < 32; ++lane)
      for (int i = 0; i < 4; ++i) part(lane).sum[i] = sums[lane / 4 + i / 2 * 8][2 * (lane % 4) + i % 2];
  });
}
template <typename T>
uint32_t packed_pair(float low, float high) {
  return static_cast<uint32_t>(std::bit_cast<uint16_t>(static_cast<T>(low))) |
         static_cast<uint32_t>(std::bit_cast<uint16_t>(static_cast<T>(high))) << 16;
}

// --- arithmetic ---
inline uint32_t masked_or(uint32_t a, uint32_t mask, uint32_t b) { return (a & mask) | b; }
inline uint32_t permute_bytes(uint32_t a, uint32_t b, uint32_t selector) {
  const uint64_t bytes = uint64_t{b} << 32 | a;
  uint32_t chosen = 0;
  for (int i = 0; i < 4; ++i)
    chosen |= static_cast<uint32_t>(bytes >> (selector >> 4 * i & 7) * 8 & 0xff) << 8 * i;
  return chosen;
}
inline float fast_exp2(float x) { return std::exp2(x); }

}  // namespace maniple::device
