// A warp's share of attention on tensor cores: scores, softmax in base 2 and the weighted sum of values, over
// tiles of keys and values in shared memory (Dao: FlashAttention-2, 2023).
#pragma once

#include <kernels/cuda/attention.hpp>
#include <kernels/cuda/instances.hpp>
#include <kernels/cuda/shared_tiles.hpp>

namespace maniple::cuda {

// Calls f(T{}, Kept{}, Constant<head size>{}) with T bf16 or fp16, and Kept, the type in the cache, T or Float8. Returns false
// where there is no such instance.
template <typename F>
bool with_attention_instance(DType dtype, int64_t head_dim, bool codes, F f) {
  bool found = false;
  with_tensor_core_type(dtype, [&](auto element) {
    found = with_constant<16, 32, 64, 96, 128, 256>(static_cast<int>(head_dim), [&](auto dims) {
      codes ? f(element, Float8{}, dims) : f(element, element, dims);
    });
  });
  return found;
}

// Running attention of 16 * row_tiles rows. With g = lane / 4 and t = 2 (lane % 4), entries 2 r and 2 r + 1
// belong to rows 16 r + g and 16 r + g + 8, columns t and t + 1 of each eight.
template <typename T, int dims, int row_tiles>
struct WarpAttention {
  static_assert(dims % 16 == 0);

  static constexpr float lowest = -1e30f;  // finite: lowest - lowest is 0

  float maximum[2 * row_tiles];            // of score * scale; lowest where nothing was seen
  float total[2 * row_tiles] = {};         // of the weights that this lane saw
  float sum[row_tiles][dims / 8][4] = {};  // weights * values
  template <int keys>
  using Scores = float[row_tiles][keys / 8][4];

  __device__ WarpAttention() {
    for (float& m : maximum) m = lowest;
  }

  // scores += queries * keys^T.
  template <int keys>
  __device__ void score(Scores<keys>& scores, const T* query_rows, const T* key_tile) const {
    const int lane = device::lane_index(), row = lane / 16 * 8 + lane % 8, half = lane / 8 % 2;
    for (int k = 0; k < dims / 16; ++k) {
      uint32_t queries[row_tiles][4];
      for (int r = 0; r < row_tiles; ++r)
        device::load_matrices(queries[r], query_rows + swizzled<dims>(16 * r + lane % 16, 2 * k | lane / 16));
      for (int n = 0; n < keys / 16; ++n) {
        uint32_t b[4];
        device::load_matrices(b, key_tile + swizzled<dims>(16 * n + row, 2 * k | half));
        for (int r = 0; r < row_tiles; ++r) {
          device::multiply_add<T>(scores[r][2 * n], queries[r], b[0], b[1]);
          device::multiply_add<T>(scores[r][2 * n + 1], queries[r], b[2], b[3]);
        }
      }
    }
  }

  // Turns scores into weights relative to the maximum, which may grow.
  template <int keys>
  __device__ void weigh(Scores<keys>& scores, float scale) {
    float shrink[2 * row_tiles];
    bool grown = false;
    for (int i = 0; i < 2 * row_tiles; ++i) {
      float largest = -INFINITY;
      for (const auto& score : scores[i / 2])
        largest = fmaxf(largest, fmaxf(score[i % 2 * 2], score[i % 2 * 2 + 1]));
      largest = fmaxf(largest, device::shuffle_xor(largest, 1));
      largest = fmaxf(maximum[i], fmaxf(largest, device::shuffle_xor(largest, 2)) * scale);
      grown |= largest > maximum[i];
      shrink[i] = device::fast_exp2(maximum[i] - largest);
      maximum[i] = largest;
      total[i] *= shrink[i];
      for (auto& score : scores[i / 2])
        for (int j = i % 2 * 2; j < i % 2 * 2 + 2; ++j) {
          score[j] = device::fast_exp2(score[j] * scale - largest);
          total[i] += score[j];
        }
    }
    if (device::ballot(grown) == 0) return;
    for (int r = 0; r < row_tiles; ++r)
      for (auto& entry : sum[r])
        for (int j = 0; j < 4; ++j) entry[j] *= shrink[2 * r + j / 2];
  }

  // sum += weights * values.
  template <int keys>
  __device__ void add_values(const Scores<keys>& weights, const T* value_tile) {
    const int lane = device::lane_index(), row = lane / 8 % 2 * 8 + lane % 8, half = lane / 16;
    for (int k = 0; k < keys / 16; ++k) {
      uint32_t a[row_tiles][4];
      for (int r = 0; r < row_tiles; ++r)
        for (int i = 0; i < 4; ++i) {
          const float* const pair = weights[r][2 * k + i / 2] + i % 2 * 2;
          a[r][i] = device::packed_pair<T>(pair[0], pair[1]);
        }
      for (int n = 0; n < dims / 16; ++n) {
        uint32_t b[4];
        device::load_matrices_transposed(b, value_tile + swizzled<dims>(16 * k + row, 2 * n | half));
        for (int r = 0; r < row_tiles; ++r) {
          device::multiply_add<T>(sum[r][2 * n], a[r], b[0], b[1]);
          device::multiply_add<T>(sum[r][2 * n + 1], a[r], b[2], b[3]);
        }
      }
    }
  }

  // Adds total over the lanes of a row: every lane then has the total of its rows.
  __device__ void finish() {
    for (float& t : total) {
      t += device::shuffle_xor(t, 1);
      t += device::shuffle_xor(t, 2);
    }
  }
};

}  // namespace maniple::cuda
