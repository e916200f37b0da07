#include <kernels/contracts.hpp>
#include <kernels/reference/host_ops.hpp>

#include <algorithm>

namespace maniple {

namespace {

int32_t& entry(TensorView table, int64_t index) {
  require(0 <= index && index < table.shape.elements(), "an index outside the table");
  return table.as<int32_t>()[index];
}

bool wins(const Candidate& a, const Candidate& b) {
  return a.score != b.score ? a.score > b.score : a.id < b.id;
}

}  // namespace

void HostOps::scatter(ConstTensorView indices, ConstTensorView values, TensorView out) {
  require(indices.shape == values.shape, "a scatter has a value for each index");
  for (int64_t i = 0; i < indices.shape.elements(); ++i)
    entry(out, indices.as<int32_t>()[i]) = values.as<int32_t>()[i];
}

void HostOps::resolve_last_tokens(ConstTensorView last_tokens, TensorView ids, ConstTensorView places,
                                  TensorView tokens) {
  for (int64_t t = 0; t < ids.shape.elements(); ++t) {
    int32_t& id = ids.as<int32_t>()[t];
    require(-1 - id < last_tokens.shape[0], "a token of a seat that does not exist");
    if (id < 0) id = last_tokens.as<int32_t>()[-1 - id];
    if (tokens.empty() || places.as<int32_t>()[t] == -1) continue;
    entry(tokens, places.as<int32_t>()[t]) = id;
  }
}

void HostOps::choose(std::span<const Candidate> gathered, ConstTensorView seats, std::span<Candidate> out,
                     TensorView last_tokens) {
  contract::choose(gathered, seats, out);
  const size_t rows = out.size();
  for (size_t row = 0; row < rows; ++row) {
    out[row] = gathered[row];
    for (size_t i = row + rows; i < gathered.size(); i += rows)
      if (wins(gathered[i], out[row])) out[row] = gathered[i];
    if (const int32_t seat = seats.as<int32_t>()[row]; seat != -1)
      entry(last_tokens, seat) = std::max(out[row].id, 0);
  }
}

float HostOps::over_shards(std::span<const float> maxima, size_t rows, size_t row) {
  float largest = maxima[row];
  for (size_t i = row + rows; i < maxima.size(); i += rows) largest = std::max(largest, maxima[i]);
  return largest;
}

}  // namespace maniple
