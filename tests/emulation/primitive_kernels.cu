#include <device/primitives.hpp>
#include <emulation/primitive_kernels.hpp>

namespace maniple::cuda {

using namespace device;

namespace {

__global__ void __launch_bounds__(128) reverse(const float* in, float* out) {
  float* const shared = reinterpret_cast<float*>(shared_memory());
  shared[thread_index()] = in[thread_index()];
  synchronize_block();
  out[thread_index()] = shared[block_threads() - 1 - thread_index()];
}

__global__ void __launch_bounds__(32) exchange(const float* in, float* out) {
  const int lane = lane_index();
  const float mine = in[lane];
  for (int i = 0; i < 4; ++i) out[32 * i + lane] = shuffle(mine, (lane + i) % 32);
  out[128 + lane] = shuffle_xor(mine, 5);
  const uint32_t positive = ballot(mine > 0);
  out[160 + lane] = positive >> lane & 1u ? 1.0f : 0.0f;
}

__global__ void __launch_bounds__(32) copy_stages(const float* in, float* out, int count, int valid_count) {
  constexpr int stages = 3, stage = 128;  // floats
  float* const shared = reinterpret_cast<float*>(shared_memory());
  const int steps = (count + stage - 1) / stage, lane = lane_index();
  const auto fetch = [&](int step) {
    const int at = step * stage + 4 * lane;
    if (step < steps) copy_async(shared + step % stages * stage + 4 * lane, in + at, at < valid_count);
    commit_copies();
  };
  for (int step = 0; step < stages - 1; ++step) fetch(step);
  for (int step = 0; step < steps; ++step) {
    wait_copies<stages - 2>();
    synchronize_warp();
    for (int i = lane; i < stage && step * stage + i < count; i += 32)
      out[step * stage + i] = shared[step % stages * stage + i];
    synchronize_warp();
    fetch(step + stages - 1);
  }
}

template <typename T>
__global__ void __launch_bounds__(32) multiply(const T* a, const T* b, bool transposed, float* out) {
  const int lane = lane_index(), row = lane % 16, half = lane / 16 * 8;
  T* const left = reinterpret_cast<T*>(shared_memory());
  T* const right = left + 256;
  for (int i = lane; i < 256; i += 32) left[i] = a[i];
  for (int i = lane; i < 128; i += 32) right[i] = b[i];
  synchronize_warp();
  uint32_t as[4], bs[4];
  load_matrices(as, left + 16 * row + half);
  // Only the first two matrices of b exist; the other lanes name any row.
  if (transposed)
    load_matrices(bs, right + 16 * (lane % 8) + lane / 8 % 2 * 8);
  else
    load_matrices_transposed(bs, right + 8 * row);
  const int g = lane / 4, t = 2 * (lane % 4);
  float sum[4] = {out[8 * g + t], out[8 * g + t + 1], out[8 * g + 64 + t], out[8 * g + 64 + t + 1]};
  multiply_add<T>(sum, as, bs[0], bs[1]);
  for (int i = 0; i < 4; ++i) out[8 * g + i / 2 * 64 + t + i % 2] = sum[i];
}

__global__ void __launch_bounds__(64) count(int* total, int* out) {
  int* const ticket = reinterpret_cast<int*>(shared_memory());
  const int before = atomic_add(total, 1);
  memory_fence();
  if (thread_index() == 0) *ticket = before;
  synchronize_block();
  if (thread_index() == 63) out[block_index().x] = *ticket;
}

}  // namespace

void reversed_through_shared(Stream stream, const float* in, float* out) {
  launch(reverse, {1}, 128, 128 * sizeof(float), stream, in, out);
}

void exchanged_in_warp(Stream stream, const float* in, float* out) {
  launch(exchange, {1}, 32, 0, stream, in, out);
}

void copied_in_stages(Stream stream, const float* in, float* out, int count, int valid_count) {
  launch(copy_stages, {1}, 32, 3 * 128 * sizeof(float), stream, in, out, count, valid_count);
}

void multiplied(Stream stream, DType dtype, const void* a, const void* b, bool transposed, float* out) {
  if (dtype == DType::bf16)
    launch(multiply<bf16>, {1}, 32, 768, stream, static_cast<const bf16*>(a), static_cast<const bf16*>(b),
           transposed, out);
  else
    launch(multiply<fp16>, {1}, 32, 768, stream, static_cast<const fp16*>(a), static_cast<const fp16*>(b),
           transposed, out);
}

void counted(Stream stream, int blocks, int* total, int* out) {
  launch(count, {blocks}, 64, sizeof(int), stream, total, out);
}

}  // namespace maniple::cuda
