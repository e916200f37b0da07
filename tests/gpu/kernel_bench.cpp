// Times the kernels against ceilings measured in the same run, bf16, in the shapes of Qwen3:
//   kernel_bench [ceilings] [decode] [prefill] [gemm] [codes] [library_codes] [experts] [rows] [sampling] [launches] [blocks]     (default: all)
// Prints one line of JSON per measurement: median, 10th and 90th percentile of the
// microseconds of one call. Many calls are captured in one graph, so launches cost what
// they cost in a decode step. Their operands take turns among sets that together exceed
// the L2 cache. KERNEL_BENCH_SHRINK=N divides all sizes by N, to test the program itself.
#include <device/launch.hpp>
#include <gpu/bench.hpp>
#include <gpu/bench_kernels.hpp>
#include <kernels/cuda/attention.hpp>
#include <kernels/cuda/cublaslt_gemm.hpp>
#include <kernels/cuda/elementwise.hpp>
#include <kernels/cuda/experts.hpp>
#include <kernels/cuda/sampling.hpp>
#include <kernels/cuda/skinny_gemm.hpp>

#include <fmt/core.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <functional>
#include <numeric>
#include <random>
#include <set>
#include <string>
#include <vector>

namespace maniple::bench {
namespace {

using cuda::check;

constexpr int block_size = 256;
constexpr int head_dim = 128;

// Ceilings of the device: copies, the library's products,
// launches from a graph, and a small round trip to the device.
void bench_ceilings(Bench& bench) {
  const int64_t bytes = shrunk(int64_t{4} << 30);
  Tensor from(bench.device(), DType::uint8, {bytes}), to(bench.device(), DType::uint8, {bytes});
  const auto copy = [&](int) { bench.device().copy(to.view().data, from.view().data, from.view().bytes()); };
  bench.report(fmt::format(R"("kernel": "copy", "bytes": {})", bytes), bench.time(1, copy),
               2 * static_cast<double>(bytes));

  const int64_t width = shrunk(int64_t{8192});
  const Shape square{width, width};
  Tensor x = bench.random(width * width, 1), weight = bench.random(width * width, 2),
         out = bench.random(width * width, 3);
  cuda::CublasLtGemm library(bench.device());
  const auto multiply = [&](int) {
    library.multiply(bench.stream(), {x.view().data, DType::bf16, square},
                     {weight.view().data, DType::bf16, square}, {}, {out.view().data, DType::bf16, square});
  };
  bench.report(fmt::format(R"("kernel": "product", "width": {})", width), bench.time(4, multiply), 0,
               2.0 * static_cast<double>(width) * static_cast<double>(width * width));

  bench.report(R"("kernel": "idle, of 250 in a graph")", bench.time(250, [&](int) { idle(bench.stream()); }),
               0);

  std::vector<std::byte> question(4096), answer(1024);
  std::vector<double> times;
  for (int round = 0; round < 100; ++round) {
    const auto start = std::chrono::steady_clock::now();
    bench.device().upload(to.view().data, question.data(), question.size());
    bench.device().download(answer.data(), to.view().data, answer.size());
    times.push_back(
        std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now() - start).count());
  }
  bench.report(R"("kernel": "4 KiB up, 1 KiB down")", timing_of(times), 0);
}

int sets_for(int64_t bytes) { return static_cast<int>(std::clamp<int64_t>(cold_bytes() / bytes + 1, 2, 64)); }

struct Part {
  int past, queries;
};

// A batch over pages in random order, with enough sets of pages to exceed the cache.
class AttentionCase {
 public:
  AttentionCase(Bench& bench, const std::vector<Part>& parts, int group, int kv_heads = 8)
      : group_(group), kv_heads_(kv_heads) {
    for (const Part& part : parts) width_ = std::max(width_, pages_of(part));
    const int64_t page_elements = int64_t{kv_heads} * block_size * head_dim;
    int64_t pages = 0, queries = 0;
    std::vector<int32_t> starts{0}, past;
    for (const Part& part : parts) {
      pages += pages_of(part);
      starts.push_back(static_cast<int32_t>(queries += part.queries));
      past.push_back(part.past);
      const double positions = part.past + (part.queries + 1) / 2.0;
      flops_ += 4.0 * part.queries * positions * kv_heads * group * head_dim;
      kv_bytes_ += 2.0 * 2 * kv_heads * head_dim * (part.past + part.queries);
    }
    sequences_ = static_cast<int>(parts.size());
    tokens_ = static_cast<int>(queries);
    const int sets = sets_for(static_cast<int64_t>(kv_bytes_));
    keys_ = bench.random(pages * sets * page_elements, 1);
    values_ = bench.random(pages * sets * page_elements, 2);
    queries_ = bench.random(queries * kv_heads * group * head_dim, 3);
    out_ = bench.random(queries * kv_heads * group * head_dim, 4);
    starts_ = bench.ints(starts);
    past_ = bench.ints(past);
    std::vector<int32_t> seats(parts.size());
    std::iota(seats.begin(), seats.end(), 0);
    seats_ = bench.ints(seats);
    std::vector<int32_t> order(static_cast<size_t>(pages * sets));
    std::iota(order.begin(), order.end(), 0);
    std::shuffle(order.begin(), order.end(), std::mt19937(1));
    for (int set = 0; set < sets; ++set) {
      std::vector<int32_t> table;
      for (const Part& part : parts) {
        for (int p = 0; p < pages_of(part); ++p) table.push_back(order.back()), order.pop_back();
        table.resize((table.size() + static_cast<size_t>(width_) - 1) / static_cast<size_t>(width_) *
                     static_cast<size_t>(width_));
      }
      tables_.push_back(bench.ints(table));
    }
  }

  cuda::AttentionArguments arguments(int call) {
    return {DType::bf16,
            queries_.view().data,
            out_.view().data,
            keys_.view().data,
            values_.view().data,
            starts_.view().as<int32_t>(),
            past_.view().as<int32_t>(),
            seats_.view().as<int32_t>(),
            tables_[static_cast<size_t>(call) % tables_.size()].view().as<int32_t>(),
            width_,
            sequences_,
            tokens_,
            kv_heads_ * group_,
            kv_heads_,
            head_dim,
            block_size,
            1 / std::sqrt(static_cast<float>(head_dim))};
  }
  double kv_bytes() const { return kv_bytes_; }
  double flops() const { return flops_; }
  int calls() const { return std::clamp(static_cast<int>(tables_.size()), 4, 32); }

 private:
  static int pages_of(const Part& part) { return (part.past + part.queries + block_size - 1) / block_size; }

  int group_, kv_heads_, width_ = 0, sequences_ = 0, tokens_ = 0;
  double flops_ = 0, kv_bytes_ = 0;
  Tensor keys_, values_, queries_, out_, starts_, past_, seats_;
  std::vector<Tensor> tables_;
};

class DecodeCase {
 public:
  explicit DecodeCase(Bench& bench) : bench_(bench) {}
  void call(AttentionCase& batch, int turn, bool codes) {
    cuda::AttentionArguments arguments = batch.arguments(turn);
    arguments.codes = codes;
    cuda::attention_decode(
        bench_.stream(), arguments,
        {slots_.view().as<float>(),
         static_cast<int>(slots_.shape().elements() /
                          cuda::decode_slot_floats(arguments.query_heads, arguments.head_dim)),
         counters_.view().as<int32_t>()});
  }
  // what: of the line, behind the kernel's name.
  void time(const std::vector<Part>& parts, int group, bool codes, const std::string& what) {
    AttentionCase batch(bench_, parts, group);
    const Timing timing = bench_.time(batch.calls(), [&](int turn) { call(batch, turn, codes); });
    bench_.report(
        fmt::format(R"("kernel": "attention_decode{}{}, "group": {})", codes ? "_fp8" : "", what, group),
        timing, batch.kv_bytes() / (codes ? 2 : 1));
  }

 private:
  Bench& bench_;
  Tensor slots_{bench_.device(), DType::fp32, {shrunk(int64_t{128} << 20)}};
  Tensor counters_ = bench_.ints(std::vector<int32_t>(1 << 16));
};

// Lengths as in nano-vLLM's workload: 256 prompts of 100 to 1024 tokens, as many to generate; those that are left in a step.
std::vector<Part> mixed_lengths(int step) {
  std::mt19937 random(1);
  const auto drawn = [&] { return shrunk(100 + static_cast<int>(random() % 925)); };
  std::vector<Part> parts;
  for (int i = 0; i < shrunk(256); ++i) {
    const int prompt = drawn(), generated = drawn();
    if (generated >= step || parts.empty()) parts.push_back({prompt + step - 1, 1});
  }
  return parts;
}

void bench_decode(Bench& bench) {
  DecodeCase decode(bench);
  for (const bool codes : {false, true}) {
    for (const int group : {2, 4, 8})
      for (const int many : {1, 8, 32, 128, 256})
        for (const int longest : {256, 1024, 4096, 16384}) {
          if (group != 2 && many != 1 && many != 32) continue;
          const int batch = shrunk(many), context = shrunk(longest);
          decode.time(std::vector<Part>(static_cast<size_t>(batch), {context - 1, 1}), group, codes,
                      fmt::format(R"(", "sequences": {}, "context": {})", batch, context));
        }
    for (const int step : {1, 200, 800}) {
      const std::vector<Part> parts = mixed_lengths(shrunk(step));
      decode.time(parts, 2, codes,
                  fmt::format(R"(_mixed", "sequences": {}, "step": {})", parts.size(), step));
    }
  }
}

void bench_prefill(Bench& bench) {
  struct Named {
    const char* name;
    std::vector<Part> parts;
  };
  std::vector<Named> cases;
  for (const int length : {512, 1024, 4096, 16384})
    cases.push_back({"prompts", std::vector<Part>(static_cast<size_t>(16384 / length), {0, shrunk(length)})});
  cases.push_back({"chunk on a prefix", {{shrunk(14336), shrunk(2048)}}});
  cases.push_back({"mixed", {{0, 100}, {0, 700}, {512, 300}, {4096, 1000}, {0, 2000}, {300, 40}}});
  for (Part& part : cases.back().parts) part = {shrunk(part.past), shrunk(part.queries)};
  for (const Named& named : cases) {
    AttentionCase batch_case(bench, named.parts, 2);
    const Timing timing =
        bench.time(4, [&](int call) { cuda::attention_prefill(bench.stream(), batch_case.arguments(call)); });
    bench.report(fmt::format(R"("kernel": "attention_prefill", "case": "{}", "sequences": {}, "longest": {})",
                             named.name, named.parts.size(), named.parts[0].queries),
                 timing, 0, batch_case.flops());
  }
}

struct CodeFormat {
  const char* name;
  int bits;
  bool e4m3;
};
constexpr CodeFormat code_formats[] = {{"int4", 4, false}, {"int8", 8, false}, {"fp8", 8, true}};
constexpr int whole_row = 1 << 30;

// group: columns that share a scale.
cuda::CodeMatrix code_matrix(const CodeFormat& format, const std::byte* codes, const Tensor& scales,
                             int columns, int group) {
  const int groups = (columns - 1) / group + 1;
  return {reinterpret_cast<const uint8_t*>(codes),
          scales.view().data,
          nullptr,
          format.bits,
          format.e4m3,
          groups > 1,
          DType::bf16,
          static_cast<uint8_t>(format.e4m3 ? 0 : 1 << (format.bits - 1)),
          columns * format.bits / 8,
          columns,
          group,
          groups,
          0,
          1};
}
int whole_chunks(int columns) { return (columns + 31) / 32 * 32; }

void bench_codes(Bench& bench) {
  Tensor partials(bench.device(), DType::fp32, {cuda::skinny_partial_floats});
  Tensor arrivals = bench.ints(std::vector<int32_t>(cuda::skinny_arrivals));
  constexpr std::pair<int, int> shapes[] = {{6144, 1024}, {24576, 4096}, {4096, 12288}};
  for (const auto& [rows, columns] : shapes)
    for (const int m : {1, 8, 64})
      for (const CodeFormat& format : code_formats)
        for (const int group : {128, whole_row}) {
          const int n = shrunk(rows), k = whole_chunks(shrunk(columns)), groups = (k - 1) / group + 1;
          const int64_t bytes = int64_t{n} * k * format.bits / 8;
          const int sets = sets_for(bytes);
          Tensor codes = bench.random(bytes * sets / 2, 1), scales = bench.random(int64_t{n} * groups, 2),
                 x = bench.random(int64_t{m} * k, 3), out = bench.random(int64_t{m} * n, 4);
          const auto call = [&](int i) {
            cuda::skinny_gemm(
                bench.stream(),
                {DType::bf16,
                 DType::bf16,
                 x.view().data,
                 nullptr,
                 {.codes = code_matrix(format, codes.view().data + i % sets * bytes, scales, k, group)},
                 out.view().data,
                 m,
                 n,
                 k},
                {partials.view().as<float>(), arrivals.view().as<int32_t>()});
          };
          bench.report(
              fmt::format(
                  R"("kernel": "dequant_gemm", "format": "{}", "groups": {}, "m": {}, "n": {}, "k": {})",
                  format.name, groups, m, n, k),
              bench.time(std::clamp(sets, 4, 32), call), static_cast<double>(bytes));
        }
}

void bench_gemm(Bench& bench) {
  cuda::CublasLtGemm library(bench.device());
  Tensor partials(bench.device(), DType::fp32, {cuda::skinny_partial_floats});
  Tensor arrivals = bench.ints(std::vector<int32_t>(cuda::skinny_arrivals));
  constexpr std::pair<int, int> shapes[] = {{4096, 1024},  {1024, 2048},  {6144, 1024},
                                            {1024, 3072},  {6144, 4096},  {4096, 4096},
                                            {24576, 4096}, {4096, 12288}, {151936, 1024}};
  for (const auto& [rows, columns] : shapes)
    for (const int many : {1, 2, 4, 8, 16, 32, 64, 128, 256, 1024, 4096, 8192}) {
      const bool few = many <= cuda::max_skinny_rows;
      const int m = few ? many : shrunk(many), n = shrunk(rows), k = shrunk(columns);
      const int64_t elements = int64_t{n} * k;
      const int sets = sets_for(2 * elements);
      Tensor weights = bench.random(elements * sets, 1), x = bench.random(int64_t{m} * k, 2),
             out = bench.random(int64_t{m} * n, 3);
      const auto weight = [&](int call) { return weights.view().as<BFloat16>() + call % sets * elements; };
      const auto skinny = [&](int call, bool gated) {
        cuda::skinny_gemm(
            bench.stream(),
            {DType::bf16, DType::bf16, x.view().data, weight(call), {}, out.view().data, m, n, k, gated},
            {partials.view().as<float>(), arrivals.view().as<int32_t>()});
      };
      const auto report = [&](const char* name, const std::function<void(int)>& call) {
        bench.report(fmt::format(R"("kernel": "{}", "m": {}, "n": {}, "k": {})", name, m, n, k),
                     bench.time(std::clamp(sets, 4, 32), call), 2.0 * static_cast<double>(elements),
                     2.0 * m * static_cast<double>(elements));
      };
      if (few) {
        report("skinny_gemm", [&](int call) { skinny(call, false); });
        report("skinny_gemm_gated", [&](int call) { skinny(call, true); });
      }
      report("cublaslt", [&](int call) {
        library.multiply(bench.stream(), {x.view().data, DType::bf16, {m, k}},
                         {reinterpret_cast<std::byte*>(weight(call)), DType::bf16, {n, k}}, {},
                         {out.view().data, DType::bf16, {m, n}});
      });
    }
}

// The library's products of codes, or that it refuses them.
void bench_library_codes(Bench& bench) {
  struct Kind {
    const char* name;
    DType codes, sums;
    bool blocks;
  };
  cuda::CublasLtGemm library(bench.device());
  for (const Kind& kind : {Kind{"int8", DType::uint8, DType::int32, false},
                           {"fp8", DType::fp8, DType::fp32, false},
                           {"fp8 in blocks", DType::fp8, DType::fp32, true}})
    for (const int many : {128, 256, 1024, 8192}) {
      const int64_t m = shrunk(many), n = whole_chunks(shrunk(24576)), k = (shrunk(4096) + 127) / 128 * 128;
      const int sets = sets_for(n * k);
      Tensor weights = bench.random(n * k * sets / 2, 1), x = bench.random(m * k / 2, 2),
             scales = bench.random(2 * std::max(n, m) * cuda::block_scale_columns(k), 3),
             sums(bench.device(), kind.sums, {m, n});
      const auto* const scale = reinterpret_cast<const float*>(scales.view().data);
      const auto multiply = [&](int call) {
        library.multiply(bench.stream(), {x.view().data, kind.codes, {m, k}},
                         {weights.view().data + call % sets * n * k, kind.codes, {n, k}}, {}, sums,
                         kind.blocks ? cuda::BlockScales{scale, scale} : cuda::BlockScales{});
      };
      const std::string what = fmt::format(
          R"("kernel": "cublaslt", "codes": "{}", "m": {}, "n": {}, "k": {})", kind.name, m, n, k);
      try {
        multiply(0);
      } catch (const Error& error) {
        fmt::print("{{{}, \"refused\": true}}\n", what);
        continue;
      }
      bench.report(what, bench.time(std::clamp(sets, 4, 32), multiply), static_cast<double>(n * k),
                   2.0 * static_cast<double>(m * n) * static_cast<double>(k));
    }
}

// A layer of experts as Qwen3-30B-A3B has it, by random routers, of elements and of codes in groups of 128. Bytes are those of the
// weights that a token chose.
void bench_experts(Bench& bench) {
  constexpr int experts = 128, per_token = 8, panel = 32;
  const int hidden = whole_chunks(shrunk(2048)), inner = whole_chunks(shrunk(768)),
            half = (inner + panel - 1) / panel * panel;
  const int64_t gate_up_elements = int64_t{2} * half * hidden, down_elements = int64_t{hidden} * inner;
  const Tensor gate_up = bench.random(experts * gate_up_elements, 1),
               down = bench.random(experts * down_elements, 2);
  const auto table_of = [&](const auto& of_expert) {
    std::vector<decltype(of_expert(0))> all;
    for (int e = 0; e < experts; ++e) all.push_back(of_expert(e));
    Tensor table(bench.device(), DType::uint8, {static_cast<int64_t>(all.size() * sizeof all[0])});
    bench.device().upload(table.view().data, reinterpret_cast<const std::byte*>(all.data()),
                          table.view().bytes());
    return table;
  };
  const Tensor scales = bench.random(gate_up_elements, 5);  // those of one expert serve all
  struct Weights {
    CodeFormat format;  // bits 0: elements
    Tensor gate_up, down;
  };
  std::vector<Weights> kinds;
  const auto add = [&](const CodeFormat& format, const auto& of) {
    kinds.push_back({format, table_of([&](int e) { return of(gate_up, e * gate_up_elements, hidden); }),
                     table_of([&](int e) { return of(down, e * down_elements, inner); })});
  };
  add({"bf16", 0, false},
      [](const Tensor& weights, int64_t element, int) { return weights.view().data + 2 * element; });
  for (const CodeFormat& format : {code_formats[0], code_formats[2]})
    add(format, [&](const Tensor& weights, int64_t element, int columns) {
      return code_matrix(format, weights.view().data + element * format.bits / 8, scales, columns, 128);
    });
  for (const int tokens : {1, 8, 32, 128, shrunk(512), shrunk(4096)}) {
    const int64_t most_rows = int64_t{tokens} * per_token;
    std::mt19937 random(7);
    std::vector<float> drawn(static_cast<size_t>(tokens) * experts);
    for (float& logit : drawn) logit = std::normal_distribution<float>()(random);
    Tensor logits(bench.device(), DType::fp32, {tokens, experts});
    bench.device().upload(logits.view().data, reinterpret_cast<const std::byte*>(drawn.data()),
                          logits.view().bytes());
    const Tensor x = bench.random(int64_t{tokens} * hidden, 3);
    Tensor between = bench.random(most_rows * inner, 4);
    const auto numbers = [&](int64_t count) {
      return bench.ints(std::vector<int32_t>(static_cast<size_t>(count)));
    };
    Tensor row_tokens = numbers(most_rows), row_weights = numbers(most_rows), offsets = numbers(experts + 1),
           chosen = numbers(most_rows), places = numbers(most_rows), counts = numbers(experts),
           rows(bench.device(), DType::fp32, {most_rows, hidden}),
           sums(bench.device(), DType::fp32, {tokens, hidden});
    const cuda::RoutingArguments routing{logits.view().as<float>(),
                                         nullptr,
                                         tokens,
                                         experts,
                                         0,
                                         experts,
                                         per_token,
                                         row_tokens.view().as<int32_t>(),
                                         row_weights.view().as<float>(),
                                         offsets.view().as<int32_t>(),
                                         chosen.view().as<int32_t>(),
                                         places.view().as<int32_t>(),
                                         counts.view().as<int32_t>()};
    const auto report = [&](const char* name, double bytes, double flops,
                            const std::function<void(int)>& call) {
      bench.report(fmt::format(R"("kernel": "{}", "tokens": {})", name, tokens), bench.time(8, call), bytes,
                   flops);
    };
    report("route", 0, 0, [&](int) { cuda::route_tokens(bench.stream(), {per_token, true}, routing); });
    std::vector<int32_t> numbers_of(experts);
    bench.device().download(reinterpret_cast<std::byte*>(numbers_of.data()), counts.view().data,
                            counts.view().bytes());
    const auto touched = static_cast<double>(experts - std::ranges::count(numbers_of, 0));
    const auto product = [&](const Tensor& in, const int32_t* x_rows, int bits, const Tensor& table,
                             void* out, int n, int k, int width, bool gated) {
      const auto* const entries = table.view().data;
      cuda::grouped_product(
          bench.stream(),
          {DType::bf16, gated ? DType::bf16 : DType::fp32, in.view().data, x_rows,
           offsets.view().as<int32_t>(), bits == 0 ? reinterpret_cast<const void* const*>(entries) : nullptr,
           out, experts, most_rows, n, k, width, gated, true, bits,
           bits == 0 ? nullptr : reinterpret_cast<const cuda::CodeMatrix*>(entries)});
    };
    const auto flops = [&](int64_t columns, int64_t k) {
      return 2.0 * static_cast<double>(most_rows * columns * k);
    };
    for (const auto& [format, gate_up_table, down_table] : kinds) {
      const int bits = format.bits;
      const double bytes = touched * static_cast<double>(down_elements) * (bits == 0 ? 16 : bits) / 8;
      const auto name = [&](const char* part) {
        return fmt::format(R"(experts {}", "format": "{})", part, format.name);
      };
      report(name("gate_up").c_str(), 2 * bytes, flops(2 * inner, hidden), [&](int) {
        product(x, row_tokens.view().as<int32_t>(), bits, gate_up_table, between.view().data, 2 * half,
                hidden, inner, true);
      });
      report(name("down").c_str(), bytes, flops(hidden, inner), [&](int) {
        product(between, nullptr, bits, down_table, rows.view().data, hidden, inner, hidden, false);
      });
    }
    report("combine", 4.0 * static_cast<double>((most_rows + tokens) * hidden), 0, [&](int) {
      cuda::combine_rows(bench.stream(),
                         {rows.view().as<float>(), row_weights.view().as<float>(),
                          chosen.view().as<int32_t>(), places.view().as<int32_t>(), sums.view().as<float>(),
                          tokens, per_token, hidden, experts, experts});
    });
  }
}

void bench_rows(Bench& bench) {
  for (const int most : {1, 32, 256, 4096})
    for (const int whole : {1024, 4096}) {
      const int rows = shrunk(most), width = shrunk(whole);
      const int64_t count = int64_t{rows} * width;
      const int sets = sets_for(6 * count);
      Tensor x = bench.random(count * sets, 1), delta = bench.random(count * sets, 2),
             out = bench.random(count * sets, 3);
      Tensor weight(bench.device(), DType::fp32, {width});
      fill_random(bench.stream(), weight.view().data, 2 * int64_t{width}, 4);
      const auto at = [&](Tensor& tensor, int call) {
        return tensor.view().as<BFloat16>() + call % sets * count;
      };
      const std::string shape = fmt::format(R"("rows": {}, "width": {})", rows, width);
      bench.report(R"("kernel": "add_rms_norm", )" + shape,
                   bench.time(32,
                              [&](int call) {
                                cuda::norm_rows(bench.stream(), {DType::bf16, at(x, call), at(delta, call),
                                                                 DType::bf16, weight.view().as<float>(),
                                                                 1e-6f, at(out, call), rows, width});
                              }),
                   8.0 * static_cast<double>(count));
      bench.report(R"("kernel": "silu_mul", )" + shape,
                   bench.time(32,
                              [&](int call) {
                                cuda::gate_mul(bench.stream(), {}, DType::bf16, at(x, call), at(out, call),
                                               rows, width / 2);
                              }),
                   3.0 * static_cast<double>(count));
    }
}

void bench_sampling(Bench& bench) {
  for (const int most : {1, 32, 256}) {
    const int rows = shrunk(most), vocabulary = shrunk(151936);
    std::vector<int32_t> every(static_cast<size_t>(rows));
    std::iota(every.begin(), every.end(), 0);
    Tensor logits(bench.device(), DType::fp32, {rows, vocabulary}),
        drawn(bench.device(), DType::uint8, {rows, sizeof(Candidate)}),
        lists(bench.device(), DType::uint8, {rows, sizeof(CandidateList)}),
        cuts(bench.device(), DType::uint8, {rows, sizeof(Cut)}),
        partial(bench.device(), DType::uint8, {cuda::max_parts, rows, sizeof(CandidateList)}),
        listed = bench.ints(every);
    fill_logits(bench.stream(), logits.view().as<float>(), logits.shape().elements(), 1);
    auto* const of_rows = reinterpret_cast<CandidateList*>(lists.view().data);
    auto* const of_parts = partial.view().data;
    auto* const cut = reinterpret_cast<Cut*>(cuts.view().data);
    const auto* const ids = listed.view().as<int32_t>();
    const auto report = [&](const char* name, const SamplingRow& row, const auto& sample) {
      const std::vector<SamplingRow> rows_here(static_cast<size_t>(rows), row);
      Tensor how(bench.device(), DType::uint8, {static_cast<int64_t>(rows_here.size() * sizeof row)});
      bench.device().upload(how.view().data, reinterpret_cast<const std::byte*>(rows_here.data()),
                            how.view().bytes());
      const Timing timing = bench.time(16, [&](int) {
        sample(reinterpret_cast<const SamplingRow*>(how.view().data),
               reinterpret_cast<Candidate*>(drawn.view().data));
      });
      bench.report(fmt::format(R"("kernel": "{}", "rows": {}, "vocabulary": {})", name, rows, vocabulary),
                   timing, 4.0 * rows * vocabulary);
    };
    const cuda::Logits all_logits{logits.view().as<float>(), rows, vocabulary, 0, vocabulary};
    Tensor room(bench.device(), DType::uint8, {rows * cuda::filter_bytes(all_logits)});
    const auto best = [&](const SamplingRow* how, Candidate* out) {
      cuda::best_candidates(bench.stream(), all_logits, how, cut, reinterpret_cast<Candidate*>(of_parts),
                            out);
    };
    report("best_candidates", {.temperature = 0.6f}, best);
    SamplingRow row{.temperature = 0.6f, .top_p = 0.95f};
    report("sample_top_p", row, [&](const SamplingRow* how, Candidate* out) {
      cuda::filter_logits(bench.stream(), all_logits, true, ids, rows, how,
                          {room.view().data, room.view().bytes()}, cut);
      best(how, out);
    });
    row.top_k = 20;
    report("sample_filtered", row, [&](const SamplingRow* how, Candidate* out) {
      cuda::candidates(bench.stream(), all_logits, ids, rows, reinterpret_cast<CandidateList*>(of_parts),
                       of_rows);
      cuda::filter_candidates(bench.stream(), of_rows, 1, all_logits, ids, rows, how, cut);
      best(how, out);
    });
  }
}

// Small kernels of a layer in a graph: what a node takes on the device, and the host's part of a launch, first and later ones.
void bench_launches(Bench& bench) {
  const int width = shrunk(1024);
  Tensor x = bench.random(width, 1), delta = bench.random(width, 2), out = bench.random(width, 3),
         weight = bench.random(2 * width, 4);
  const auto small = [&](int i) {
    const auto element = [](Tensor& tensor) { return tensor.view().as<BFloat16>(); };
    if (i % 2 == 0)
      cuda::norm_rows(bench.stream(),
                      {DType::bf16, element(x), element(delta), DType::bf16,
                       reinterpret_cast<const float*>(weight.view().data), 1e-6f, element(out), 1, width});
    else
      cuda::gate_mul(bench.stream(), {}, DType::bf16, element(out), element(delta), 1, width / 2);
  };
  for (const int nodes : {10, 250}) {
    const auto what = [&](const char* name) {
      return fmt::format(R"("kernel": "{}", "nodes": {})", name, nodes);
    };
    device::allow_early_starts(false);
    bench.report(what("small kernels that start in turn, a node"), bench.time(nodes, small), 0);
    device::allow_early_starts(true);
    bench.report(what("small kernels, a node"), bench.time(nodes, small), 0);
    const cudaGraph_t graph = bench.graph_of(nodes, small);
    cudaGraphExec_t captured;
    check(cudaGraphInstantiate(&captured, graph, 0), "making a graph");
    std::vector<double> times;
    for (int round = 0; round < 32; ++round) {
      const auto start = std::chrono::steady_clock::now();
      check(cudaGraphLaunch(captured, bench.stream()), "launching a graph");
      times.push_back(
          std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now() - start).count());
      bench.device().synchronize();
    }
    bench.report(what("graph launch, host, first"), timing_of({times[0]}), 0);
    bench.report(what("graph launch, host, second"), timing_of({times[1]}), 0);
    bench.report(what("graph launch, host, later"), timing_of({times.begin() + 2, times.end()}), 0);
    cudaGraphExecDestroy(captured), cudaGraphDestroy(graph);
  }
}

// Blocks of a kernel that a multiprocessor runs at once, as the runtime says and as seen.
void bench_blocks(Bench& bench) {
  DecodeCase decode(bench);
  AttentionCase one_query(bench, std::vector<Part>(static_cast<size_t>(shrunk(32)), {shrunk(4095), 1}), 2);
  AttentionCase prompts(bench, std::vector<Part>(static_cast<size_t>(shrunk(4)), {0, shrunk(1024)}), 2);
  const std::pair<const char*, std::function<void(int)>> kernels[] = {
      {"attention_decode", [&](int i) { decode.call(one_query, i, false); }},
      {"attention_decode_fp8", [&](int i) { decode.call(one_query, i, true); }},
      {"attention_prefill", [&](int i) { cuda::attention_prefill(bench.stream(), prompts.arguments(i)); }}};
  for (const auto& [name, call] : kernels) {
    const cudaGraph_t graph = bench.graph_of(1, call);
    fmt::print("{{\"kernel\": \"blocks\", \"of\": \"{}\", {}}}\n", name, blocks_of(bench.stream(), graph));
    cudaGraphDestroy(graph);
  }
}

int run(const std::set<std::string>& chosen) {
  Bench bench;
  int driver = 0, runtime = 0;
  check(cudaDriverGetVersion(&driver), "asking for the driver's version");
  check(cudaRuntimeGetVersion(&runtime), "asking for the runtime's version");
  fmt::print("{{\"device\": \"{}\", \"driver\": {}, \"runtime\": {}}}\n", bench.device().description(),
             driver, runtime);
  bench.measure_reading();
  const std::pair<const char*, void (*)(Bench&)> parts[] = {
      {"ceilings", bench_ceilings}, {"decode", bench_decode}, {"prefill", bench_prefill},
      {"gemm", bench_gemm},         {"codes", bench_codes},   {"library_codes", bench_library_codes},
      {"experts", bench_experts},   {"rows", bench_rows},     {"sampling", bench_sampling},
      {"launches", bench_launches}, {"blocks", bench_blocks}};
  for (const auto& [name, part] : parts)
    if (chosen.empty() || chosen.contains(name)) part(bench);
  return 0;
}

}  // namespace
}  // namespace maniple::bench

int main(int count, char** arguments) try {
  return maniple::bench::run({arguments + 1, arguments + count});
} catch (const std::exception& error) {
  fmt::print(stderr, "kernel_bench: {}\n", error.what());
  return 1;
}
