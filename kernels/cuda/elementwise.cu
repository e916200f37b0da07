#include <kernels/cuda/chunks.hpp>
#include <kernels/cuda/elementwise.hpp>
#include <kernels/cuda/gate.hpp>
#include <kernels/cuda/instances.hpp>
#include <kernels/cuda/reductions.hpp>

namespace maniple::cuda {

using namespace device;

namespace {

// One row per block. A thread keeps its chunk for the second
// pass; only rows of more than 8192 elements are read twice.
template <typename T, typename Delta, bool aligned>
__global__ void __launch_bounds__(1024) norm_row(PreviousKernel previous, T* x, const Delta* delta,
                                                 const float* weight, float epsilon, T* out, int width) {
  wait_for(previous);
  const int64_t start = static_cast<int64_t>(block_index().x) * width;
  const int first = chunk_size * thread_index(), step = chunk_size * block_threads();
  Chunk held{};
  float squares = 0;
  for (int at = first; at < width; at += step) {
    held = load_chunk<aligned>(x + start, at, width);
    if (delta) {
      const Chunk added = load_chunk<aligned>(delta + start, at, width);
      for (int i = 0; i < chunk_size; ++i)
        held.values[i] = static_cast<float>(static_cast<T>(held.values[i] + added.values[i]));
      store_chunk<aligned>(x + start, at, width, held);
    }
    for (const float value : held.values) squares += value * value;
  }
  squares = block_sum(squares, reinterpret_cast<float*>(shared_memory()));
  const float scale = 1.0f / sqrtf(squares / static_cast<float>(width) + epsilon);
  for (int at = first; at < width; at += step) {
    if (width > step) held = load_chunk<aligned>(x + start, at, width);
    const Chunk weights = load_chunk<aligned>(weight, at, width);
    for (int i = 0; i < chunk_size; ++i) held.values[i] *= scale * weights.values[i];
    store_chunk<aligned>(out + start, at, width, held);
  }
}

template <typename T, bool aligned>
__global__ void __launch_bounds__(flat_threads)
    gate_mul_chunk(PreviousKernel previous, GateActivation activation, const T* gate_up, T* out, int64_t rows,
                   int width) {
  wait_for(previous);
  const int64_t row = flat_index() / chunks_of(width), at = flat_index() % chunks_of(width) * chunk_size;
  if (row >= rows) return;
  Chunk gate = load_chunk<aligned>(gate_up + 2 * row * width, at, width);
  const Chunk up = load_chunk<aligned>(gate_up + (2 * row + 1) * width, at, width);
  for (int i = 0; i < chunk_size; ++i) gate.values[i] = gated(activation, gate.values[i], up.values[i]);
  store_chunk<aligned>(out + row * width, at, width, gate);
}

template <typename T, typename Added, bool aligned>
__global__ void __launch_bounds__(flat_threads) add_chunk(SumArguments s) {
  const int64_t row = flat_index() / chunks_of(s.width), at = flat_index() % chunks_of(s.width) * chunk_size;
  if (row >= s.rows) return;
  const int64_t place = row * s.width;
  Chunk sum = load_chunk<aligned>(static_cast<const T*>(s.a) + place, at, s.width);
  const Chunk added =
      load_chunk<aligned>(static_cast<const Added*>(s.b) + (s.is_bias ? 0 : place), at, s.width);
  const float factor = s.gate ? 1.0f / (1.0f + expf(-s.gate[row])) : 1.0f;
  for (int i = 0; i < chunk_size; ++i) sum.values[i] += factor * added.values[i];
  store_chunk<aligned>(static_cast<T*>(s.out) + place, at, s.width, sum);
}

template <typename From, typename To, bool aligned>
__global__ void __launch_bounds__(flat_threads) convert_chunk(const From* x, To* out, int64_t count) {
  const int64_t at = flat_index() * chunk_size;
  if (at < count) store_chunk<aligned>(out, at, count, load_chunk<aligned>(x, at, count));
}

// Word: what a thread moves, sixteen bytes or two.
template <typename Word>
__global__ void __launch_bounds__(flat_threads)
    gather_row(PreviousKernel previous, const int32_t* ids, int64_t first, int64_t table_rows,
               const Word* table, Word* out, int64_t row_words) {
  wait_for(previous);
  const int64_t row = ids[block_index().x] - first, place = block_index().x * row_words;
  for (int64_t i = thread_index(); i < row_words; i += block_threads())
    out[place + i] = 0 <= row && row < table_rows ? table[row * row_words + i] : Word{};
}

}  // namespace

void norm_rows(Stream stream, const NormArguments& a) {
  const int threads = threads_for(chunks_of(a.width), 1024);
  with_element_types(a.dtype, a.delta_type, [&]<typename T, typename Delta>(T, Delta) {
    with_alignment(vectors_fit(a.width, a.x, a.delta, a.weight, a.out), [&](auto aligned) {
      launch_early(norm_row<T, Delta, aligned.value>, {a.rows}, threads, 32 * sizeof(float), stream,
                   static_cast<T*>(a.x), static_cast<const Delta*>(a.delta), a.weight, a.epsilon,
                   static_cast<T*>(a.out), a.width);
    });
  });
}

void gate_mul(Stream stream, GateActivation activation, DType dtype, const void* gate_up, void* out,
              int64_t rows, int width) {
  with_element_type(dtype, [&]<typename T>(T) {
    with_alignment(vectors_fit(width, gate_up, out), [&](auto aligned) {
      launch_early(gate_mul_chunk<T, aligned.value>, flat_blocks(rows * chunks_of(width)), flat_threads, 0,
                   stream, activation, static_cast<const T*>(gate_up), static_cast<T*>(out), rows, width);
    });
  });
}

void add(Stream stream, const SumArguments& s) {
  with_element_types(s.dtype, s.b_type, [&]<typename T, typename Added>(T, Added) {
    with_alignment(vectors_fit(s.width, s.a, s.b, s.out), [&](auto aligned) {
      launch(add_chunk<T, Added, aligned.value>, flat_blocks(s.rows * chunks_of(s.width)), flat_threads, 0,
             stream, s);
    });
  });
}

void convert(Stream stream, DType from, const void* x, DType to, void* out, int64_t count) {
  const auto launch_instance = [&]<typename From, typename To>(From, To) {
    with_alignment(vectors_fit(count, x, out), [&](auto aligned) {
      launch(convert_chunk<From, To, aligned.value>, flat_blocks(chunks_of(count)), flat_threads, 0, stream,
             static_cast<const From*>(x), static_cast<To*>(out), count);
    });
  };
  if (from == DType::fp32) return with_element_type(to, [&](auto t) { launch_instance(float{}, t); });
  with_element_type(from, [&](auto t) { launch_instance(t, float{}); });
}

void gather_rows(Stream stream, const int32_t* ids, int64_t first, int64_t table_rows, const void* table,
                 void* out, int count, int64_t row_bytes) {
  const auto copy = [&]<typename Word>(Word) {
    const int64_t words = row_bytes / static_cast<int64_t>(sizeof(Word));
    launch_early(gather_row<Word>, {count}, threads_for(words, flat_threads), 0, stream, ids, first,
                 table_rows, static_cast<const Word*>(table), static_cast<Word*>(out), words);
  };
  row_bytes % 16 == 0 && are_aligned(table, out) ? copy(Vector<uint32_t>{}) : copy(uint16_t{});
}

}  // namespace maniple::cuda
