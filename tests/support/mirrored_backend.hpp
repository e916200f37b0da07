// A backend whose memory the host cannot reach, for tests that read and write tensors in place. Each tensor
// lies in host memory and has a mirror on the device. The mirror is uploaded before an operation and
// downloaded after it, as whole allocations, so writes outside of the tensors show too.
#pragma once

#include <kernels/backend.hpp>
#include <kernels/cpu/cpu_device.hpp>

#include <cstring>
#include <map>
#include <memory>
#include <set>
#include <span>
#include <utility>
#include <vector>

namespace maniple::testing {

class MirroredDevice : public CpuDevice {
 public:
  explicit MirroredDevice(Device& inner) : CpuDevice("mirror of " + inner.description()), inner_(inner) {}

  std::byte* allocate(size_t bytes) override {
    std::byte* const host = CpuDevice::allocate(bytes);
    std::memset(host, 0xff, bytes);  // as on the device: NaN, or -1
    mirrors_[host] = {inner_.allocate(bytes), bytes};
    return host;
  }
  void release(std::byte* memory, size_t bytes) noexcept override {
    inner_.release(mirrors_[memory].device, bytes);
    mirrors_.erase(memory);
    CpuDevice::release(memory, bytes);
  }

 private:
  friend class Transfer;
  struct Mirror {
    std::byte* device;
    size_t bytes;
  };
  Device& inner_;
  std::map<std::byte*, Mirror> mirrors_;
};

// The uploads and downloads of one operation.
class Transfer {
 public:
  explicit Transfer(MirroredDevice& device) : device_(device) {}

  ConstTensorView in(ConstTensorView view) {
    return {on_device(const_cast<std::byte*>(view.data), view.bytes()), view.dtype, view.shape};
  }
  TensorView out(TensorView view) {
    return {on_device(view.data, view.bytes(), true), view.dtype, view.shape};
  }
  template <typename T>
  std::span<const T> in(std::span<const T> values) {
    auto* const host = reinterpret_cast<std::byte*>(const_cast<T*>(values.data()));
    return {reinterpret_cast<const T*>(on_device(host, values.size_bytes())), values.size()};
  }
  template <typename T>
  std::span<T> out(std::span<T> values) {
    auto* const host = reinterpret_cast<std::byte*>(values.data());
    return {reinterpret_cast<T*>(on_device(host, values.size_bytes(), true)), values.size()};
  }
  void bring_back() {
    for (const auto& [host, mirror] : changed_) device_.inner_.download(host, mirror.device, mirror.bytes);
  }

 private:
  std::byte* on_device(std::byte* host, size_t bytes, bool changed = false) {
    if (bytes == 0) return nullptr;
    auto location = device_.mirrors_.upper_bound(host);
    if (location == device_.mirrors_.begin() || (--location)->first + location->second.bytes < host + bytes)
      return visitor(host, bytes, changed);
    const auto& [first, mirror] = *location;
    if (brought_.insert(first).second) device_.inner_.upload(mirror.device, first, mirror.bytes);
    if (changed) changed_[first] = mirror;
    return mirror.device + (host - first);
  }
  // Host memory outside of the device's allocations.
  std::byte* visitor(std::byte* host, size_t bytes, bool changed) {
    visitors_.emplace_back(device_.inner_, DType::uint8, Shape{static_cast<int64_t>(bytes)});
    std::byte* const device = visitors_.back().view().data;
    device_.inner_.upload(device, host, bytes);
    if (changed) changed_[host] = {device, bytes};
    return device;
  }

  MirroredDevice& device_;
  std::set<std::byte*> brought_;
  std::map<std::byte*, MirroredDevice::Mirror> changed_;
  std::vector<Tensor> visitors_;
};

class MirroredOps : public Ops {
 public:
  MirroredOps(Backend inner, MirroredDevice& device) : inner_(std::move(inner)), device_(device) {}
  Device& device() override { return device_; }

  Weight make_weight(const WeightShape& shape) override { return inner_.ops->make_weight(shape); }
  void pack(Weight& weight, int64_t first_row, const RawRows& raw) override {
    inner_.ops->pack(weight, first_row, raw);
  }
  void matmul(ConstTensorView x, const Weight& weight, ConstTensorView bias, TensorView out,
              ConstTensorView row_maxima) override {
    run([&](Ops& ops, Transfer& t) {
      ops.matmul(t.in(x), weight, t.in(bias), t.out(out), t.in(row_maxima));
    });
  }
  void prepare_matmul(ConstTensorView x, const Weight& weight, ConstTensorView bias,
                      TensorView out) override {  // touches no memory
    inner_.ops->prepare_matmul(x, weight, bias, out);
  }
  std::string warning() const override { return inner_.ops->warning(); }
  void row_abs_maxima(ConstTensorView x, TensorView out) override {
    run([&](Ops& ops, Transfer& t) { ops.row_abs_maxima(t.in(x), t.out(out)); });
  }
  void gather_columns(ConstTensorView x, ConstTensorView order, TensorView out) override {
    run([&](Ops& ops, Transfer& t) { ops.gather_columns(t.in(x), t.in(order), t.out(out)); });
  }
  bool matmul_gate_mul(GateActivation activation, ConstTensorView x, const Weight& weight,
                       ConstTensorView bias, TensorView out) override {
    bool done = false;
    run([&](Ops& ops, Transfer& t) {
      done = ops.matmul_gate_mul(activation, t.in(x), weight, t.in(bias), t.out(out));
    });
    return done;
  }
  void embed(ConstTensorView ids, const Weight& table, IndexRange vocabulary, TensorView out) override {
    run([&](Ops& ops, Transfer& t) { ops.embed(t.in(ids), table, vocabulary, t.out(out)); });
  }
  void rms_norm(ConstTensorView x, ConstTensorView weight, float epsilon, TensorView out) override {
    run([&](Ops& ops, Transfer& t) { ops.rms_norm(t.in(x), t.in(weight), epsilon, t.out(out)); });
  }
  void add_rms_norm(ConstTensorView delta, TensorView residual, ConstTensorView weight, float epsilon,
                    TensorView out) override {
    run([&](Ops& ops, Transfer& t) {
      ops.add_rms_norm(t.in(delta), t.out(residual), t.in(weight), epsilon, t.out(out));
    });
  }
  void add_residual(ConstTensorView delta, TensorView residual) override {
    run([&](Ops& ops, Transfer& t) { ops.add_residual(t.in(delta), t.out(residual)); });
  }
  void gate_mul(GateActivation activation, ConstTensorView gate_up, TensorView out) override {
    run([&](Ops& ops, Transfer& t) { ops.gate_mul(activation, t.in(gate_up), t.out(out)); });
  }
  void add(ConstTensorView a, ConstTensorView b, TensorView out) override {
    run([&](Ops& ops, Transfer& t) { ops.add(t.in(a), t.in(b), t.out(out)); });
  }
  void add_bias(TensorView x, ConstTensorView bias) override {
    run([&](Ops& ops, Transfer& t) { ops.add_bias(t.out(x), t.in(bias)); });
  }
  void add_gated(ConstTensorView x, ConstTensorView gate, TensorView sum) override {
    run([&](Ops& ops, Transfer& t) { ops.add_gated(t.in(x), t.in(gate), t.out(sum)); });
  }
  void gather_rows(ConstTensorView x, ConstTensorView rows, TensorView out) override {
    run([&](Ops& ops, Transfer& t) { ops.gather_rows(t.in(x), t.in(rows), t.out(out)); });
  }
  int64_t route(ConstTensorView logits, const Router& router, Routing& routing) override {
    int64_t most_rows = 0;
    run([&](Ops& ops, Transfer& t) {
      Routing inner = there(t, routing);
      most_rows = ops.route(t.in(logits), there(t, router), inner);
    });
    return most_rows;
  }
  std::optional<int64_t> matmul_route(ConstTensorView x, const Weight& gate, const Router& router,
                                      Routing& routing) override {
    std::optional<int64_t> most_rows;
    run([&](Ops& ops, Transfer& t) {
      Routing inner = there(t, routing);
      most_rows = ops.matmul_route(t.in(x), gate, there(t, router), inner);
    });
    return most_rows;
  }
  void grouped_matmul_gate_mul(GateActivation activation, ConstTensorView x, const Routing& routing,
                               std::span<const Weight* const> weights, ConstTensorView biases,
                               TensorView out) override {
    run([&](Ops& ops, Transfer& t) {
      ops.grouped_matmul_gate_mul(activation, t.in(x), there(t, routing), weights, t.in(biases), t.out(out));
    });
  }
  void grouped_matmul(ConstTensorView x, const Routing& routing, std::span<const Weight* const> weights,
                      TensorView out, ConstTensorView row_maxima = {}) override {
    run([&](Ops& ops, Transfer& t) {
      ops.grouped_matmul(t.in(x), there(t, routing), weights, t.out(out), t.in(row_maxima));
    });
  }
  void combine(ConstTensorView rows, const Routing& routing, ConstTensorView biases, int64_t slices,
               TensorView out) override {
    run([&](Ops& ops, Transfer& t) {
      ops.combine(t.in(rows), there(t, routing), t.in(biases), slices, t.out(out));
    });
  }
  void widen(ConstTensorView x, TensorView out) override {
    run([&](Ops& ops, Transfer& t) { ops.widen(t.in(x), t.out(out)); });
  }
  void scatter(ConstTensorView indices, ConstTensorView values, TensorView out) override {
    run([&](Ops& ops, Transfer& t) { ops.scatter(t.in(indices), t.in(values), t.out(out)); });
  }
  void resolve_last_tokens(ConstTensorView last_tokens, TensorView ids, ConstTensorView places,
                           TensorView tokens) override {
    run([&](Ops& ops, Transfer& t) {
      ops.resolve_last_tokens(t.in(last_tokens), t.out(ids), t.in(places), t.out(tokens));
    });
  }
  void adjust_logits(TensorView logits, IndexRange vocabulary, std::span<const AdjustedRow> rows,
                     const SequenceTables& tables) override {
    run([&](Ops& ops, Transfer& t) {
      SequenceTables inner = tables;
      inner.tokens = t.in(tables.tokens);
      inner.block_tables = t.in(tables.block_tables);
      inner.lists = t.in(tables.lists);
      ops.adjust_logits(t.out(logits), vocabulary, t.in(rows), inner);
    });
  }
  void raw_logits(ConstTensorView raw, ConstTensorView rows, IndexRange vocabulary,
                  std::span<Candidate> candidates) override {
    run([&](Ops& ops, Transfer& t) { ops.raw_logits(t.in(raw), t.in(rows), vocabulary, t.out(candidates)); });
  }
  void logits_of(ConstTensorView logits, ConstTensorView ids, IndexRange vocabulary,
                 std::span<float> out) override {
    run([&](Ops& ops, Transfer& t) { ops.logits_of(t.in(logits), t.in(ids), vocabulary, t.out(out)); });
  }
  void head_squares(ConstTensorView qkv, const HeadLayout& heads, TensorView out) override {
    run([&](Ops& ops, Transfer& t) { ops.head_squares(t.in(qkv), heads, t.out(out)); });
  }
  void rotary_store(ConstTensorView qkv, const HeadLayout& heads, const HeadNorms& norms,
                    ConstTensorView cos_sin, const AttentionBatch& batch, TensorView queries,
                    const KvPages& pages) override {
    run([&](Ops& ops, Transfer& t) {
      const HeadNorms there_norms{t.in(norms.query), t.in(norms.key),     norms.epsilon,
                                  norms.size,        t.in(norms.squares), norms.query_heads};
      ops.rotary_store(t.in(qkv), heads, there_norms, t.in(cos_sin), there(t, batch), t.out(queries),
                       there(t, pages));
    });
  }
  void prepare_attention(const AttentionCall& call) override { inner_.ops->prepare_attention(call); }
  void merge_partials(ConstTensorView partials, ConstTensorView sinks, TensorView out) override {
    run([&](Ops& ops, Transfer& t) { ops.merge_partials(t.in(partials), t.in(sinks), t.out(out)); });
  }
  void matmul_heads(ConstTensorView x, std::span<const Weight* const> weights, TensorView out) override {
    run([&](Ops& ops, Transfer& t) { ops.matmul_heads(t.in(x), weights, t.out(out)); });
  }
  void latent_store(ConstTensorView rows, const LatentNorm& norm, ConstTensorView cos_sin,
                    const AttentionBatch& batch, const KvPages& pages) override {
    run([&](Ops& ops, Transfer& t) {
      ops.latent_store(t.in(rows), {t.in(norm.weight), norm.epsilon, norm.size}, t.in(cos_sin),
                       there(t, batch), there(t, pages));
    });
  }
  void latent_queries(ConstTensorView x, const HeadLayout& heads, ConstTensorView cos_sin,
                      const AttentionBatch& batch, TensorView queries) override {
    run([&](Ops& ops, Transfer& t) {
      ops.latent_queries(t.in(x), heads, t.in(cos_sin), there(t, batch), t.out(queries));
    });
  }
  void candidates(ConstTensorView logits, IndexRange vocabulary, ConstTensorView listed,
                  std::span<CandidateList> lists) override {
    run([&](Ops& ops, Transfer& t) { ops.candidates(t.in(logits), vocabulary, t.in(listed), t.out(lists)); });
  }
  void filter_candidates(std::span<const CandidateList> lists, ConstTensorView logits, IndexRange vocabulary,
                         ConstTensorView listed, std::span<const SamplingRow> rows,
                         std::span<Cut> cuts) override {
    run([&](Ops& ops, Transfer& t) {
      ops.filter_candidates(t.in(lists), t.in(logits), vocabulary, t.in(listed), t.in(rows), t.out(cuts));
    });
  }
  void filter_logits(ConstTensorView gathered, int64_t vocabulary_size, ConstTensorView listed,
                     std::span<const SamplingRow> rows, std::span<Cut> cuts) override {
    run([&](Ops& ops, Transfer& t) {
      ops.filter_logits(t.in(gathered), vocabulary_size, t.in(listed), t.in(rows), t.out(cuts));
    });
  }
  void best_candidates(ConstTensorView logits, IndexRange vocabulary, std::span<const SamplingRow> rows,
                       std::span<const Cut> cuts, std::span<Candidate> out) override {
    run([&](Ops& ops, Transfer& t) {
      ops.best_candidates(t.in(logits), vocabulary, t.in(rows), t.in(cuts), t.out(out));
    });
  }
  void choose(std::span<const Candidate> gathered, ConstTensorView seats, std::span<Candidate> out,
              TensorView last_tokens) override {
    run([&](Ops& ops, Transfer& t) {
      ops.choose(t.in(gathered), t.in(seats), t.out(out), t.out(last_tokens));
    });
  }
  void row_maxima(ConstTensorView logits, IndexRange vocabulary, std::span<float> maxima) override {
    run([&](Ops& ops, Transfer& t) { ops.row_maxima(t.in(logits), vocabulary, t.out(maxima)); });
  }
  void exp_sums(ConstTensorView logits, IndexRange vocabulary, std::span<const float> maxima, int chunks,
                std::span<float> sums) override {
    run([&](Ops& ops, Transfer& t) {
      ops.exp_sums(t.in(logits), vocabulary, t.in(maxima), chunks, t.out(sums));
    });
  }
  void largest_logits(ConstTensorView logits, IndexRange vocabulary, int64_t row,
                      std::span<TokenLogit> out) override {
    run([&](Ops& ops, Transfer& t) { ops.largest_logits(t.in(logits), vocabulary, row, t.out(out)); });
  }

 private:
  void attend(const AttentionCall& call) override {
    run([&](Ops& ops, Transfer& t) {
      AttentionCall inner = call;
      inner.queries = t.in(call.queries);
      inner.batch = there(t, call.batch);
      inner.pages = there(t, call.pages);
      inner.sinks = t.in(call.sinks);
      inner.out = t.out(call.out);
      ops.attention(inner);
    });
  }
  template <typename Operation>
  void run(Operation operation) {
    Transfer transfer(device_);
    operation(*inner_.ops, transfer);
    transfer.bring_back();
  }
  static AttentionBatch there(Transfer& t, const AttentionBatch& batch) {
    return {t.in(batch.query_starts), t.in(batch.past_lengths), t.in(batch.seats),
            t.in(batch.block_tables), t.in(batch.positions),    t.in(batch.slots)};
  }
  static Router there(Transfer& t, Router router) {
    router.bias = t.in(router.bias);
    router.logit_bias = t.in(router.logit_bias);
    return router;
  }
  static Routing there(Transfer& t, const Routing& routing) {
    return {routing.experts,       t.out(routing.tokens), t.out(routing.weights), t.out(routing.offsets),
            t.out(routing.chosen), t.out(routing.places), t.out(routing.counts),  t.in(routing.past_lengths)};
  }
  static KvPages there(Transfer& t, const KvPages& pages) {
    return {t.out(pages.bytes), pages.layout, pages.key_scale, pages.value_scale};
  }

  Backend inner_;
  MirroredDevice& device_;
};

inline Backend mirrored(Backend inner) {
  auto device = std::make_unique<MirroredDevice>(*inner.device);
  auto ops = std::make_unique<MirroredOps>(std::move(inner), *device);
  return {std::move(device), std::move(ops)};
}

}  // namespace maniple::testing
