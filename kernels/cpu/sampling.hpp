// From logits to tokens, for every instruction path of the CPU backend. Contracts as in kernels/ops.hpp.
#pragma once

#include <kernels/cpu/elementwise_kernel.hpp>
#include <kernels/cpu/thread_pool.hpp>
#include <kernels/ops.hpp>

#include <vector>

namespace maniple::cpu {

// Working memory of one thread while it filters a row; grows to the vocabulary once.
struct FilterScratch {
  std::vector<TokenLogit> entries;
  std::vector<float> numbers;
  std::vector<int32_t> ids;
};

void best_candidates(ThreadPool& pool, const SamplingKernels& kernels, ConstTensorView logits,
                     IndexRange vocabulary, std::span<const SamplingRow> rows, std::span<Candidate> out);
void row_maxima(ThreadPool& pool, const SamplingKernels& kernels, ConstTensorView logits,
                IndexRange vocabulary, std::span<float> maxima);
void exp_sums(ThreadPool& pool, const SamplingKernels& kernels, ConstTensorView logits, IndexRange vocabulary,
              std::span<const float> maxima, int chunks, std::span<float> sums);
// scratch: one for each thread of the pool.
void sample_filtered(ThreadPool& pool, const SamplingKernels& kernels, ConstTensorView gathered,
                     int64_t vocabulary_size, std::span<const SamplingRow> rows, std::span<Candidate> out,
                     std::span<FilterScratch> scratch);
void largest_logits(ConstTensorView gathered, int64_t vocabulary_size, int64_t row,
                    std::span<TokenLogit> out);

}  // namespace maniple::cpu
