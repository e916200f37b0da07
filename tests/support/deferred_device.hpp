// The host as a device that works as late as possible, as a GPU could: work stays in a queue until a call
// waits for one of its results, and graphs are recorded calls. Results then show code that reads the host's
// memory too late, or that fails to read the device again when a graph is replayed.
#pragma once

#include <kernels/cpu/cpu_device.hpp>
#include <kernels/ops.hpp>

#include <deque>
#include <functional>
#include <list>
#include <vector>

namespace maniple::testing {

class DeferredDevice : public CpuDevice {
 public:
  using Work = std::function<void()>;

  DeferredDevice() : CpuDevice("deferred") {}

  void defer(Work work) {
    if (recording_)
      recording_->push_back(std::move(work));
    else
      queue_.push_back(std::move(work));
  }
  bool recording() const { return recording_ != nullptr; }
  // How often each graph was replayed.
  const std::list<int>& replays() const { return replays_; }

  void upload(std::byte* to_device, const std::byte* from_host, size_t bytes) override {
    require(!recording_, "an upload is captured");
    defer([to_device, copy = std::vector<std::byte>(from_host, from_host + bytes)] {
      std::copy(copy.begin(), copy.end(), to_device);
    });
  }
  void copy(std::byte* to, const std::byte* from, size_t bytes) override {
    defer([=] { std::copy_n(from, bytes, to); });
  }
  void download(std::byte* to_host, const std::byte* from_device, size_t bytes) override {
    synchronize();
    std::copy_n(from_device, bytes, to_host);
  }
  std::unique_ptr<Download> start_download(const std::byte* from_device, size_t bytes) override {
    auto started = std::make_unique<Late>(*this);
    defer([from_device, bytes, copy = started->copy] { copy->assign(from_device, from_device + bytes); });
    return started;
  }
  void synchronize() override {
    require(!recording_, "a wait is captured");
    while (!queue_.empty()) work_one();
  }

  bool captures() const override { return true; }
  std::unique_ptr<Graph> capture(const std::function<void()>& work) override {
    auto graph = std::make_unique<Recorded>(*this, replays_.emplace_back(0));
    recording_ = &graph->calls;
    work();
    recording_ = nullptr;
    return graph;
  }

 private:
  struct Late final : Download {
    explicit Late(DeferredDevice& owner) : device(owner) {}
    bool ready() override { return !copy->empty(); }
    std::span<const std::byte> wait() override {
      while (!ready()) device.work_one();
      return *copy;
    }
    DeferredDevice& device;
    std::shared_ptr<std::vector<std::byte>> copy = std::make_shared<std::vector<std::byte>>();
  };
  struct Recorded final : Graph {
    Recorded(DeferredDevice& owner, int& count) : device(owner), replays(count) {}
    void replay() override {
      ++replays;
      for (const Work& call : calls) device.defer(call);
    }
    DeferredDevice& device;
    int& replays;
    std::vector<Work> calls;
  };

  void work_one() {
    const Work work = std::move(queue_.front());
    queue_.pop_front();
    work();
  }

  std::deque<Work> queue_;
  std::vector<Work>* recording_ = nullptr;
  std::list<int> replays_;
};

// The operations of `inner`, deferred, with the addresses and shapes of their call.
class DeferredOps : public Ops {
 public:
  DeferredOps(DeferredDevice& device, Ops& inner) : device_(device), inner_(inner) {}
  Device& device() override { return device_; }

  Weight make_weight(const WeightShape& shape) override { return inner_.make_weight(shape); }
  void pack(Weight& weight, int64_t first_row, const RawRows& raw) override {
    inner_.pack(weight, first_row, raw);
  }
  void matmul(ConstTensorView x, const Weight& weight, ConstTensorView bias, TensorView out,
              ConstTensorView row_maxima) override {
    device_.defer([=, this, &weight] { inner_.matmul(x, weight, bias, out, row_maxima); });
  }
  void row_abs_maxima(ConstTensorView x, TensorView out) override {
    device_.defer([=, this] { inner_.row_abs_maxima(x, out); });
  }
  void gather_columns(ConstTensorView x, ConstTensorView order, TensorView out) override {
    device_.defer([=, this] { inner_.gather_columns(x, order, out); });
  }
  void embed(ConstTensorView ids, const Weight& table, IndexRange vocabulary, TensorView out) override {
    device_.defer([=, this, &table] { inner_.embed(ids, table, vocabulary, out); });
  }
  void rms_norm(ConstTensorView x, ConstTensorView weight, float epsilon, TensorView out) override {
    device_.defer([=, this] { inner_.rms_norm(x, weight, epsilon, out); });
  }
  void add_rms_norm(ConstTensorView delta, TensorView residual, ConstTensorView weight, float epsilon,
                    TensorView out) override {
    device_.defer([=, this] { inner_.add_rms_norm(delta, residual, weight, epsilon, out); });
  }
  void add_residual(ConstTensorView delta, TensorView residual) override {
    device_.defer([=, this] { inner_.add_residual(delta, residual); });
  }
  void gate_mul(GateActivation activation, ConstTensorView gate_up, TensorView out) override {
    device_.defer([=, this] { inner_.gate_mul(activation, gate_up, out); });
  }
  void add(ConstTensorView a, ConstTensorView b, TensorView out) override {
    device_.defer([=, this] { inner_.add(a, b, out); });
  }
  void add_bias(TensorView x, ConstTensorView bias) override {
    device_.defer([=, this] { inner_.add_bias(x, bias); });
  }
  void add_gated(ConstTensorView x, ConstTensorView gate, TensorView sum) override {
    device_.defer([=, this] { inner_.add_gated(x, gate, sum); });
  }
  void gather_rows(ConstTensorView x, ConstTensorView rows, TensorView out) override {
    device_.defer([=, this] { inner_.gather_rows(x, rows, out); });
  }
  int64_t route(ConstTensorView logits, const Router& router, Routing& routing) override {
    device_.defer([=, this]() mutable { inner_.route(logits, router, routing); });
    return routing.tokens.shape[0];
  }
  void grouped_matmul_gate_mul(GateActivation activation, ConstTensorView x, const Routing& routing,
                               std::span<const Weight* const> weights, ConstTensorView biases,
                               TensorView out) override {
    device_.defer(
        [=, this] { inner_.grouped_matmul_gate_mul(activation, x, routing, weights, biases, out); });
  }
  void grouped_matmul(ConstTensorView x, const Routing& routing, std::span<const Weight* const> weights,
                      TensorView out, ConstTensorView row_maxima = {}) override {
    device_.defer([=, this] { inner_.grouped_matmul(x, routing, weights, out, row_maxima); });
  }
  void combine(ConstTensorView rows, const Routing& routing, ConstTensorView biases, int64_t slices,
               TensorView out) override {
    device_.defer([=, this] { inner_.combine(rows, routing, biases, slices, out); });
  }
  void widen(ConstTensorView x, TensorView out) override {
    device_.defer([=, this] { inner_.widen(x, out); });
  }
  void scatter(ConstTensorView indices, ConstTensorView values, TensorView out) override {
    device_.defer([=, this] { inner_.scatter(indices, values, out); });
  }
  void resolve_last_tokens(ConstTensorView last_tokens, TensorView ids, ConstTensorView places,
                           TensorView tokens) override {
    device_.defer([=, this] { inner_.resolve_last_tokens(last_tokens, ids, places, tokens); });
  }
  void adjust_logits(TensorView logits, IndexRange vocabulary, std::span<const AdjustedRow> rows,
                     const SequenceTables& tables) override {
    device_.defer([=, this] { inner_.adjust_logits(logits, vocabulary, rows, tables); });
  }
  void raw_logits(ConstTensorView raw, ConstTensorView rows, IndexRange vocabulary,
                  std::span<Candidate> candidates) override {
    device_.defer([=, this] { inner_.raw_logits(raw, rows, vocabulary, candidates); });
  }
  void logits_of(ConstTensorView logits, ConstTensorView ids, IndexRange vocabulary,
                 std::span<float> out) override {
    device_.defer([=, this] { inner_.logits_of(logits, ids, vocabulary, out); });
  }
  void head_squares(ConstTensorView qkv, const HeadLayout& heads, TensorView out) override {
    device_.defer([=, this] { inner_.head_squares(qkv, heads, out); });
  }
  void rotary_store(ConstTensorView qkv, const HeadLayout& heads, const HeadNorms& norms,
                    ConstTensorView cos_sin, const AttentionBatch& batch, TensorView queries,
                    const KvPages& pages) override {
    device_.defer([=, this] { inner_.rotary_store(qkv, heads, norms, cos_sin, batch, queries, pages); });
  }
  void merge_partials(ConstTensorView partials, ConstTensorView sinks, TensorView out) override {
    device_.defer([=, this] { inner_.merge_partials(partials, sinks, out); });
  }
  void matmul_heads(ConstTensorView x, std::span<const Weight* const> weights, TensorView out) override {
    device_.defer([=, this] { inner_.matmul_heads(x, weights, out); });
  }
  void latent_store(ConstTensorView rows, const LatentNorm& norm, ConstTensorView cos_sin,
                    const AttentionBatch& batch, const KvPages& pages) override {
    device_.defer([=, this] { inner_.latent_store(rows, norm, cos_sin, batch, pages); });
  }
  void latent_queries(ConstTensorView x, const HeadLayout& heads, ConstTensorView cos_sin,
                      const AttentionBatch& batch, TensorView queries) override {
    device_.defer([=, this] { inner_.latent_queries(x, heads, cos_sin, batch, queries); });
  }
  void candidates(ConstTensorView logits, IndexRange vocabulary, ConstTensorView listed,
                  std::span<CandidateList> lists) override {
    device_.defer([=, this] { inner_.candidates(logits, vocabulary, listed, lists); });
  }
  void filter_candidates(std::span<const CandidateList> lists, ConstTensorView logits, IndexRange vocabulary,
                         ConstTensorView listed, std::span<const SamplingRow> rows,
                         std::span<Cut> cuts) override {
    device_.defer([=, this] { inner_.filter_candidates(lists, logits, vocabulary, listed, rows, cuts); });
  }
  void filter_logits(ConstTensorView gathered, int64_t vocabulary_size, ConstTensorView listed,
                     std::span<const SamplingRow> rows, std::span<Cut> cuts) override {
    device_.defer([=, this] { inner_.filter_logits(gathered, vocabulary_size, listed, rows, cuts); });
  }
  void best_candidates(ConstTensorView logits, IndexRange vocabulary, std::span<const SamplingRow> rows,
                       std::span<const Cut> cuts, std::span<Candidate> out) override {
    device_.defer([=, this] { inner_.best_candidates(logits, vocabulary, rows, cuts, out); });
  }
  void choose(std::span<const Candidate> gathered, ConstTensorView seats, std::span<Candidate> out,
              TensorView last_tokens) override {
    device_.defer([=, this] { inner_.choose(gathered, seats, out, last_tokens); });
  }
  void row_maxima(ConstTensorView logits, IndexRange vocabulary, std::span<float> maxima) override {
    device_.defer([=, this] { inner_.row_maxima(logits, vocabulary, maxima); });
  }
  void exp_sums(ConstTensorView logits, IndexRange vocabulary, std::span<const float> maxima, int chunks,
                std::span<float> sums) override {
    device_.defer([=, this] { inner_.exp_sums(logits, vocabulary, maxima, chunks, sums); });
  }
  void largest_logits(ConstTensorView logits, IndexRange vocabulary, int64_t row,
                      std::span<TokenLogit> out) override {
    device_.defer([=, this] { inner_.largest_logits(logits, vocabulary, row, out); });
  }

 protected:
  void attend(const AttentionCall& call) override {
    device_.defer([=, this] { inner_.attention(call); });
  }

 private:
  DeferredDevice& device_;
  Ops& inner_;
};

}  // namespace maniple::testing
