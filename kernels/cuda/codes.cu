#include <kernels/cuda/chunks.hpp>
#include <kernels/cuda/code_elements.hpp>
#include <kernels/cuda/instances.hpp>
#include <kernels/cuda/reductions.hpp>

namespace maniple::cuda {

using namespace device;

namespace {

constexpr int threads = 256;

// One thread for sixteen bytes of codes.
template <int bits, bool aligned, typename T>
__global__ void __launch_bounds__(flat_threads)
    expand_chunk(CodeMatrix m, const int32_t* ids, int64_t first, int rows, T* out, int count) {
  const int chunks = m.row_bytes / 16;
  const int64_t i = flat_index() / chunks;
  if (i >= count) return;
  const int64_t row = ids ? ids[i] - first : first + i;
  const int column = static_cast<int>(flat_index() % chunks) * (128 / bits);
  T* const to = out + i * m.columns + column;
  const int left = m.columns - column;
  const ColumnGroups groups(m);
  if (row < 0 || row >= rows) {
    for (int place = 0; place < 128 / bits && place < left; ++place) to[place] = static_cast<T>(0.0f);
    return;
  }
  const uint8_t* const from = m.codes + row * m.row_bytes + column * bits / 8;
  const auto chunk = load_vector(reinterpret_cast<const uint32_t*>(from));
  if constexpr (aligned && sizeof(T) == 2)
    with_widening<bits, T>(m, groups, column, [&](auto widen) {
      widen(row, chunk, [&](int eight, const Eight& elements) {
        if (8 * eight < left) store_vector(reinterpret_cast<uint32_t*>(to + 8 * eight), elements);
      });
    });
  else
    for_elements<bits>(m, groups, row, column, chunk, [&](int place, float element) {
      if (place < left) to[place] = static_cast<T>(element);
    });
}

// Magnitudes are ordered as their bits are, NaN above all.
__device__ uint32_t magnitude(float value) { return std::bit_cast<uint32_t>(value) & 0x7fffffffu; }
__device__ uint32_t larger(uint32_t a, uint32_t b) { return a > b ? a : b; }

// The largest magnitude of elements first, first + step, ... before end.
template <typename T>
__device__ uint32_t largest_magnitude(const T* x, int first, int end, int step) {
  uint32_t largest = 0;
  for (int i = first; i < end; i += step) largest = larger(largest, magnitude(static_cast<float>(x[i])));
  return largest;
}
// The largest magnitude of a row. All threads of the block call it.
template <typename T>
__device__ uint32_t largest_of_row(const T* x, int columns) {
  return block_reduce(largest_magnitude(x, thread_index(), columns, block_threads()),
                      reinterpret_cast<uint32_t*>(shared_memory()), larger);
}

template <typename T>
__global__ void __launch_bounds__(threads) row_magnitude(const T* x, float* out, int columns) {
  const int64_t row = block_index().x;
  const uint32_t largest = largest_of_row(x + row * columns, columns);
  if (thread_index() == 0) out[row] = std::bit_cast<float>(largest);
}

// The scale of inputs whose largest magnitude this is (kernels/weight.hpp).
__device__ float scale_for(const RoundArguments& a, uint32_t largest) {
  const float scale = std::bit_cast<float>(largest) / (a.e4m3 ? Float8::largest : 127.0f);
  if (a.power_scales && scale > 0) return power_from(scale);
  if (!a.e4m3 || a.rule == InputRounding::per_group) return scale == 0 ? 1.0f : scale;
  constexpr float least = 1 / (Float8::largest * 512);
  return scale < least ? least : scale;
}
__device__ float code_of(const RoundArguments& a, float value, float scale) {
  if (a.e4m3) return static_cast<float>(Float8(value / scale));
  const float code = rintf(value / scale);  // a row with a NaN has a NaN scale
  return code == code ? fminf(fmaxf(code, -127.0f), 127.0f) : 0.0f;
}

// Codes become what is stored: bytes, or numbers times a scale.
template <typename T>
__device__ void store_code(const RoundArguments& a, int64_t place, float code, float scale) {
  if (a.bytes)
    static_cast<uint8_t*>(a.out)[place] =
        a.e4m3 ? Float8(code).bits : static_cast<uint8_t>(static_cast<int>(code));
  else
    static_cast<T*>(a.out)[place] = static_cast<T>(code * scale);
}

template <typename T>
__device__ void round_groups(const RoundArguments& a, const T* x, int64_t row) {
  for (int begin = warp_index() * a.group; begin < a.columns; begin += block_threads() / 32 * a.group) {
    const int end = begin + a.group < a.columns ? begin + a.group : a.columns;
    const float scale =
        scale_for(a, warp_reduce(largest_magnitude(x, begin + lane_index(), end, 32), larger));
    if (a.bytes && lane_index() == 0) a.input_scales[int64_t{begin / a.group} * a.rows + row] = scale;
    for (int i = begin + lane_index(); i < end; i += 32)
      store_code<T>(a, row * a.stride + i, code_of(a, static_cast<float>(x[i]), scale), scale);
  }
}

__device__ float fixed_scale(const RoundArguments& a) {
  if (!a.experts) return a.input_scale;
  int expert = 0;
  while (a.offsets[expert + 1] <= a.first_row + block_index().x) ++expert;
  return a.experts[expert].input_scale;
}
template <typename T>
__device__ float scale_of_row(const RoundArguments& a, const T* x) {
  if (a.rule == InputRounding::fixed) return fixed_scale(a);
  if (!a.maxima) return scale_for(a, largest_of_row(x, a.columns));
  uint32_t largest = 0;
  for (int rank = 0; rank < a.ranks; ++rank)
    largest = larger(largest, magnitude(a.maxima[rank * a.maxima_rows + a.first_row + block_index().x]));
  return scale_for(a, largest);
}

// One row per block.
template <typename T>
__global__ void __launch_bounds__(threads) round_row(RoundArguments a) {
  const int64_t row = block_index().x, all_row = a.first_row + row;
  if (a.offsets && all_row >= a.offsets[a.expert_count]) return;
  const T* const x = static_cast<const T*>(a.x) + (a.x_rows ? a.x_rows[all_row] : all_row) * a.columns;
  for (int i = a.columns + thread_index(); i < a.stride; i += block_threads())
    store_code<T>(a, row * a.stride + i, 0, 1);
  if (a.rule == InputRounding::per_group) return round_groups(a, x, row);
  const bool rounds = a.rule != InputRounding::none;
  const float scale = rounds ? scale_of_row(a, x) : 1.0f;
  if (rounds && thread_index() == 0) a.input_scales[row] = scale;
  for (int i = thread_index(); i < a.columns; i += block_threads())
    if (rounds)
      store_code<T>(a, row * a.stride + i, code_of(a, static_cast<float>(x[i]), scale), 1);
    else
      static_cast<T*>(a.out)[row * a.stride + i] = x[i];
}

template <typename T>
__global__ void __launch_bounds__(flat_threads)
    finish_sum(FinishArguments a, const void* sums, bool integers, int rows, int columns, T* out,
               int64_t first_column, int64_t width) {
  const int64_t i = flat_index(), row = i / columns, column = first_column + i % columns;
  if (row >= rows) return;
  const float sum = integers ? static_cast<float>(static_cast<const int32_t*>(sums)[i])
                             : static_cast<const float*>(sums)[i];
  out[row * width + column] = static_cast<T>(finished<8>(a, sum, row, column));
}

template <typename T>
__global__ void __launch_bounds__(flat_threads)
    gather_column(const T* x, const int32_t* order, T* out, int tokens, int part, int columns) {
  const int64_t token = flat_index() / columns;
  if (token >= tokens) return;
  const int from = order[flat_index() % columns];
  out[flat_index()] = x[(static_cast<int64_t>(from / part) * tokens + token) * part + from % part];
}

}  // namespace

void expand_rows(Stream stream, const CodeMatrix& matrix, const int32_t* ids, int64_t first, int rows,
                 DType dtype, void* out, int count) {
  with_element_type(dtype, [&]<typename T>(T) {
    with_alignment(vectors_fit(matrix.columns, out), [&](auto aligned) {
      launch(matrix.bits == 4 ? expand_chunk<4, aligned.value, T> : expand_chunk<8, aligned.value, T>,
             flat_blocks(static_cast<int64_t>(count) * (matrix.row_bytes / 16)), flat_threads, 0, stream,
             matrix, ids, first, rows, static_cast<T*>(out), count);
    });
  });
}

void round_inputs(Stream stream, const RoundArguments& arguments) {
  with_element_type(arguments.dtype, [&]<typename T>(T) {
    launch(round_row<T>, {arguments.rows}, threads, 32 * sizeof(float), stream, arguments);
  });
}

void finish_sums(Stream stream, const FinishArguments& arguments, const void* sums, DType sum_type, int rows,
                 int columns, DType out_type, void* out, int64_t first_column, int64_t width) {
  with_element_type(out_type, [&]<typename T>(T) {
    launch(finish_sum<T>, flat_blocks(static_cast<int64_t>(rows) * columns), flat_threads, 0, stream,
           arguments, sums, sum_type == DType::int32, rows, columns, static_cast<T*>(out), first_column,
           width);
  });
}

void row_abs_maxima(Stream stream, DType dtype, const void* x, float* out, int rows, int columns) {
  with_element_type(dtype, [&]<typename T>(T) {
    launch(row_magnitude<T>, {rows}, threads, 32 * sizeof(float), stream, static_cast<const T*>(x), out,
           columns);
  });
}

void gather_columns(Stream stream, DType dtype, const void* x, const int32_t* order, void* out, int tokens,
                    int part, int columns) {
  with_element_type(dtype, [&]<typename T>(T) {
    launch(gather_column<T>, flat_blocks(static_cast<int64_t>(tokens) * columns), flat_threads, 0, stream,
           static_cast<const T*>(x), order, static_cast<T*>(out), tokens, part, columns);
  });
}

}  // namespace maniple::cuda
