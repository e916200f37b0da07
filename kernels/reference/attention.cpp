#include <kernels/contracts.hpp>
#include <kernels/paged_rows.hpp>
#include <kernels/reference/reference_ops.hpp>
#include <kernels/reference/rows.hpp>

#include <algorithm>
#include <cmath>
#include <limits>

namespace maniple {

using reference::Floats;

namespace {

void multiply(std::span<float> head, float scale, const float* weight) {
  for (float& value : head) value = value * scale * *weight++;
}

void normalise(std::span<float> head, ConstTensorView weight, int64_t lanes, float epsilon) {
  if (weight.empty()) return;
  const auto width = static_cast<int64_t>(head.size());
  const auto size = static_cast<float>(lanes > 0 ? lanes : width);
  const float mean_square = reference::dot(head.data(), head.data(), width) / size;
  const float scale = 1.0f / std::sqrt(mean_square + epsilon);
  multiply(head, scale, weight.as<float>());
}

// Rotates the first pairs (i, i + half): the convention of GPT-NeoX.
void rotate(std::span<float> head, const float* cos_sin, size_t pairs) {
  const size_t half = head.size() / 2;
  for (size_t i = 0; i < pairs; ++i) {
    const float cosine = cos_sin[i], sine = cos_sin[pairs + i], low = head[i], high = head[half + i];
    head[i] = low * cosine - high * sine;
    head[half + i] = high * cosine + low * sine;
  }
}

// What is rounded to fp8 is what another cache would hold: an activation.
void divide(Floats& head, DType activations, float scale) {
  for (float& value : head)
    value = (activations == DType::bf16   ? static_cast<float>(BFloat16(value))
             : activations == DType::fp16 ? static_cast<float>(Float16(value))
                                          : value) /
            scale;
}

// Softmax over one part of the context: sum of exp(score - maximum) * value, and of exp(score - maximum).
struct Partial {
  float maximum = -std::numeric_limits<float>::infinity();
  float weight = 0;
  Floats values;
};

class Context {
 public:
  Context(const KvPages& pages, const int32_t* blocks, int64_t kv_head)
      : rows_(pages),
        key_scale_(pages.key_scale),
        value_scale_(pages.value_scale),
        blocks_(blocks),
        kv_head_(kv_head) {}

  Partial over(IndexRange positions, const Floats& query, float scale) const {
    Partial part;
    Floats scores;
    for (int64_t p = positions.begin; p < positions.end; ++p)
      scores.push_back(reference::dot(query.data(), key(p).data(), rows_.layout.key_dim) * scale);
    part.maximum = *std::max_element(scores.begin(), scores.end());
    part.values.resize(static_cast<size_t>(rows_.layout.value_dim));
    for (int64_t p = positions.begin; p < positions.end; ++p) {
      const float weight = std::exp(scores[static_cast<size_t>(p - positions.begin)] - part.maximum);
      const Floats value = this->value(p);
      part.weight += weight;
      for (size_t i = 0; i < value.size(); ++i) part.values[i] += weight * value[i];
    }
    return part;
  }

 private:
  Floats key(int64_t position) const {
    return scaled(reference::read(rows_.keys, rows_.key(slot(position), kv_head_), rows_.layout.key_dim),
                  key_scale_);
  }
  Floats value(int64_t position) const {
    return scaled(
        reference::read(rows_.values, rows_.value(slot(position), kv_head_), rows_.layout.value_dim),
        value_scale_);
  }
  int64_t slot(int64_t position) const {
    const int64_t size = rows_.layout.block_size;
    return blocks_[position / size] * size + position % size;
  }
  static Floats scaled(Floats head, float scale) {
    for (float& value : head) value *= scale;
    return head;
  }

  PagedRows rows_;
  float key_scale_, value_scale_;
  const int32_t* blocks_;
  int64_t kv_head_;
};

// Both parts relative to the larger maximum.
void merge(Partial& sum, const Partial& part) {
  if (part.weight == 0) return;
  if (sum.weight == 0) {
    sum = part;
    return;
  }
  const float maximum = std::max(sum.maximum, part.maximum);
  const float old = std::exp(sum.maximum - maximum), fresh = std::exp(part.maximum - maximum);
  sum.maximum = maximum;
  sum.weight = sum.weight * old + part.weight * fresh;
  for (size_t i = 0; i < sum.values.size(); ++i) sum.values[i] = sum.values[i] * old + part.values[i] * fresh;
}

Floats divided(Partial sum) {
  for (float& value : sum.values) value /= sum.weight;
  return std::move(sum.values);
}

Partial merged(std::vector<Partial> parts) {
  merge_classes(std::ssize(parts), [&](int64_t from, int64_t into) {
    merge(parts[static_cast<size_t>(into)], parts[static_cast<size_t>(from)]);
  });
  return parts.front();
}

// Splits begin at multiples of attention_split for every length: a position's place in the sum never changes.
Partial attended(const Context& context, IndexRange seen, const Floats& query, float scale,
                 const ContextShare& share) {
  std::vector<Partial> sums(static_cast<size_t>(classes_of(share)));
  for (int64_t i = 0, begin = 0; (begin = (share.owner + i * share.owners) * attention_split) < seen.end;
       ++i) {
    const IndexRange part{std::max(begin, seen.begin), std::min(begin + attention_split, seen.end)};
    if (part.size() > 0) merge(sums[static_cast<size_t>(i) % sums.size()], context.over(part, query, scale));
  }
  return merged(std::move(sums));
}

// A sink is a position whose value is zeros.
void add_sink(Partial& sum, ConstTensorView sinks, int64_t head) {
  if (!sinks.empty()) merge(sum, {sinks.as<float>()[head], 1, Floats(sum.values.size())});
}

}  // namespace

void ReferenceOps::head_squares(ConstTensorView qkv, const HeadLayout& heads, TensorView out) {
  contract::head_squares(qkv, heads, out);
  reference::head_squares(qkv, heads, {0, qkv.shape[0]}, out);
}

void ReferenceOps::rotary_store(ConstTensorView qkv, const HeadLayout& heads, const HeadNorms& norms,
                                ConstTensorView cos_sin, const AttentionBatch& batch, TensorView queries,
                                const KvPages& pages) {
  contract::rotary_store(qkv, heads, norms, cos_sin, batch, queries, pages);
  const int64_t tokens = batch.tokens(), dim = heads.key_dim, rotary_width = cos_sin.shape[1],
                all_heads = heads.query_heads + 2 * heads.kv_heads;
  const PagedRows rows(pages);
  for (int64_t t = 0; t < tokens; ++t) {
    const float* const angles = cos_sin.as<float>() + batch.positions.as<int32_t>()[t] * rotary_width;
    for (int64_t h = 0; h < all_heads; ++h) {
      Floats head = reference::read(qkv, (t * all_heads + h) * dim, dim);
      const bool is_query = h < heads.query_heads,
                 is_key = !is_query && h < heads.query_heads + heads.kv_heads;
      if (is_query || is_key) {
        if (norms.squares.empty())
          normalise(head, is_query ? norms.query : norms.key, norms.size, norms.epsilon);
        else
          multiply(head, norms.inverse(t, is_query, dim),
                   (is_query ? norms.query : norms.key).as<float>() +
                       (is_query ? h : h - heads.query_heads) * dim);
        rotate(head, angles, static_cast<size_t>(rotary_width / 2));
      }
      const int64_t slot = batch.slots.as<int32_t>()[t];
      if (is_query)
        reference::write(queries, (t * heads.query_heads + h) * dim, head);
      else if (slot >= 0) {
        if (pages.layout.dtype == DType::fp8)
          divide(head, qkv.dtype, is_key ? pages.key_scale : pages.value_scale);
        reference::write(is_key ? rows.keys : rows.values,
                         rows.key(slot, (h - heads.query_heads) % heads.kv_heads), head);
      }
    }
  }
}

void ReferenceOps::attend(const AttentionCall& call) {
  contract::attention(call);
  const HeadLayout& heads = call.heads;
  const AttentionBatch& batch = call.batch;
  const int64_t dim = heads.value_dim, group = heads.query_heads / heads.kv_heads,
                table_width = batch.block_tables.shape[1], each = heads.query_heads / call.context.owners;
  const int32_t *starts = batch.query_starts.as<int32_t>(), *past = batch.past_lengths.as<int32_t>(),
                *seats = batch.seats.as<int32_t>();
  for (int64_t s = 0; s < batch.sequences(); ++s)
    for (int64_t h = 0; h < heads.query_heads; ++h) {
      const Context context(call.pages, batch.block_tables.as<int32_t>() + seats[s] * table_width, h / group);
      for (int64_t t = starts[s]; t < starts[s + 1]; ++t) {
        const int64_t row = (h / each * batch.tokens() + t) * each + h % each,
                      length = past[s] + (t - starts[s]) + 1;
        if (length <= 0) continue;
        const Floats query = reference::read(call.queries, row * heads.key_dim, heads.key_dim);
        const int64_t begin = call.window > 0 ? std::max<int64_t>(length - call.window, 0) : 0;
        Partial sum = attended(context, {begin, length}, query, call.scale, call.context);
        if (call.context.owners == 1) {
          add_sink(sum, call.sinks, h);
          reference::write(call.out, row * dim, divided(sum));
        } else {
          sum.values.resize(static_cast<size_t>(dim));
          sum.values.insert(sum.values.end(), {sum.maximum, sum.weight});
          reference::write(call.out, row * (dim + 2), sum.values);
        }
      }
    }
}

void ReferenceOps::merge_partials(ConstTensorView partials, ConstTensorView sinks, TensorView out) {
  contract::merge_partials(partials, sinks, out);
  const int64_t owners = partials.shape[0], width = partials.shape[3], dim = width - 2,
                rows = partials.shape[1] * partials.shape[2];
  for (int64_t row = 0; row < rows; ++row) {
    std::vector<Partial> parts;
    for (int64_t owner = 0; owner < owners; ++owner) {
      Floats values = reference::read(partials, (owner * rows + row) * width, width);
      const float maximum = values[static_cast<size_t>(dim)], weight = values.back();
      values.resize(static_cast<size_t>(dim));
      parts.push_back({maximum, weight, std::move(values)});
    }
    Partial sum = merged(std::move(parts));
    add_sink(sum, sinks, row % partials.shape[2]);
    reference::write(out, row * dim, divided(std::move(sum)));
  }
}

void ReferenceOps::latent_store(ConstTensorView rows, const LatentNorm& norm, ConstTensorView cos_sin,
                                const AttentionBatch& batch, const KvPages& pages) {
  contract::latent_store(rows, norm, cos_sin, batch, pages);
  const KvLayout& layout = pages.layout;
  const int64_t tokens = batch.tokens(), rotary_width = cos_sin.shape[1];
  const PagedRows cache(pages);
  for (int64_t t = 0; t < tokens; ++t) {
    const int64_t slot = batch.slots.as<int32_t>()[t];
    if (slot < 0) continue;
    Floats row = reference::read(rows, t * layout.key_dim, layout.key_dim);
    normalise(std::span(row).first(static_cast<size_t>(layout.value_dim)), norm.weight, norm.size,
              norm.epsilon);
    rotate(std::span(row).subspan(static_cast<size_t>(layout.value_dim)),
           cos_sin.as<float>() + batch.positions.as<int32_t>()[t] * rotary_width,
           static_cast<size_t>(rotary_width / 2));
    reference::write(cache.keys, cache.key(slot, 0), row);
  }
}

void ReferenceOps::latent_queries(ConstTensorView x, const HeadLayout& heads, ConstTensorView cos_sin,
                                  const AttentionBatch& batch, TensorView queries) {
  contract::latent_queries(x, heads, cos_sin, batch, queries);
  const int64_t lanes = heads.key_dim - heads.value_dim, width = x.shape[1] / heads.query_heads,
                rotary_width = cos_sin.shape[1];
  for (int64_t row = 0; row < batch.tokens() * heads.query_heads; ++row) {
    Floats head = reference::read(x, (row + 1) * width - lanes, lanes);
    const int32_t position = batch.positions.as<int32_t>()[row / heads.query_heads];
    rotate(head, cos_sin.as<float>() + position * rotary_width, static_cast<size_t>(rotary_width / 2));
    reference::write(queries, (row + 1) * heads.key_dim - lanes, head);
  }
}

}  // namespace maniple
