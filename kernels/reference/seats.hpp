// What the host's backends do alike: a few numbers a row. Contracts as in kernels/ops.hpp.
#pragma once

#include <kernels/sampling_batch.hpp>
#include <kernels/tensor/tensor_view.hpp>

#include <span>

namespace maniple::reference {

void scatter(ConstTensorView indices, ConstTensorView values, TensorView out);
void resolve_last_tokens(ConstTensorView last_tokens, TensorView ids);
void choose(std::span<const Candidate> gathered, ConstTensorView seats, std::span<Candidate> out,
            TensorView last_tokens);
// The largest of maxima[shard * rows + row].
float over_shards(std::span<const float> maxima, size_t rows, size_t row);

}  // namespace maniple::reference
