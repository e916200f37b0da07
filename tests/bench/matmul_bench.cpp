// The linear layers of Qwen3-0.6B, every weight distinct, so weights come from memory. Measures one sweep for
// several numbers of rows and forms of the weights, against the read bandwidth, against the first form and, where the build
// found it, oneDNN with bf16 weights in the layout of its choice. All in alternating rounds of one run; medians. Prints a Markdown table.
//   matmul_bench [--threads n] [--rounds n] [--m 1,8,512] [--path avx512] [--lm-head 0] [--weights bf16,int8,fp8,int4,mxfp4]
// int8, fp8: inputs rounded per token; int8-only, fp8-only: weights only; fp8-block: groups of 128; int4: groups of 32, zeros;
// int4-32, int4-128: groups of so many, no zeros; mxfp4: groups of 32, scales of a byte.

#include <bench/bandwidth.hpp>
#include <bench/cpu_path.hpp>
#include <bench/dot_peak.hpp>

#include <kernels/backend.hpp>
#include <kernels/cpu/cpu_ops.hpp>

#include <fmt/core.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <memory>
#include <sstream>
#include <thread>
#include <vector>

#ifdef MANIPLE_ONEDNN
#include <omp.h>
#include <oneapi/dnnl/dnnl.hpp>
#endif

namespace maniple::bench {
namespace {

struct LinearShape {
  int64_t rows, columns;
  int slices;
  DType out;
};

using Shapes = std::vector<LinearShape>;

Shapes qwen3_0_6b(bool lm_head) {
  Shapes shapes;
  for (int layer = 0; layer < 28; ++layer) {
    shapes.push_back({4096, 1024, 1, DType::bf16});  // query, key, value
    shapes.push_back({1024, 2048, 8, DType::bf16});  // attention output
    shapes.push_back({6144, 1024, 1, DType::bf16});  // gate, up
    shapes.push_back({1024, 3072, 8, DType::bf16});  // down
  }
  if (lm_head) shapes.push_back({151936, 1024, 1, DType::fp32});
  return shapes;
}

// Values in [-1, 1), without zeros or denormals, which could change the speed.
void fill_random(std::byte* data, size_t bytes) {
  auto* values = reinterpret_cast<uint16_t*>(data);
  uint64_t state = 88172645463325252u;
  for (size_t i = 0; i < bytes / 2; ++i) {
    state ^= state << 13, state ^= state >> 7, state ^= state << 17;
    values[i] = BFloat16(static_cast<float>(static_cast<int32_t>(state >> 32)) * 0x1p-31f).bits;
  }
}

// e4m3 codes of middle exponents: in weights the smallest are rare.
void fill_with_e4m3(std::byte* data, size_t bytes) {
  fill_random(data, bytes);
  for (size_t i = 0; i < bytes; ++i) data[i] = (data[i] & std::byte{0xbf}) | std::byte{0x20};
}

// Activations and outputs of one M, shared by both sides.
struct Buffers {
  Tensor x, out;

  Buffers(Device& device, int64_t m)
      : x(device, DType::bf16, {m, 3072}), out(device, DType::fp32, {m, 151936}) {
    fill_random(x.view().data, x.view().bytes());
    std::memset(out.view().data, 0, out.view().bytes());
  }
  TensorView input(int64_t m, const LinearShape& shape) {
    return {x.view().data, DType::bf16, {m, shape.columns}};
  }
  TensorView output(int64_t m, const LinearShape& shape) {
    return {out.view().data, shape.out, {m, shape.rows}};
  }
};

WeightShape shape_of(std::string_view form, const LinearShape& shape) {
  using enum ActivationRule;
  WeightShape weight{DType::bf16, shape.rows, shape.columns, shape.slices};
  if (form == "bf16") return weight;
  const std::string_view format = form.substr(0, form.find('-'));
  weight.format = format == "int8"    ? WeightFormat::int8
                  : format == "fp8"   ? WeightFormat::fp8
                  : format == "mxfp4" ? WeightFormat::mxfp4
                                      : WeightFormat::int4;
  if (name_of(weight.format) != format) fail(ExitCode::usage, "unknown weights {}", form);
  weight.activation = form == "int8" || form == "fp8" ? per_token : form == "fp8-block" ? per_group : none;
  weight.group = form == "int4" || form == "int4-32" || form == "mxfp4" ? 32
                 : form == "fp8-block" || form == "int4-128"            ? 128
                                                                        : -1;
  weight.zeros = form == "int4";
  if (form == "mxfp4") weight.scale = DType::e8m0;
  return weight;
}

class OurWeights {
 public:
  OurWeights(cpu::CpuOps& ops, std::string_view form, const Shapes& shapes)
      : ops_(ops), form_(form), shapes_(shapes) {
    for (const LinearShape& shape : shapes_) {
      Weight weight = ops_.make_weight(shape_of(form_, shape));
      const auto fill = weight.format == WeightFormat::fp8 ? fill_with_e4m3 : fill_random;
      fill(weight.packed.view().data, weight.packed.view().bytes());
      if (weight.scale == DType::e8m0)
        std::memset(weight.scales.view().data, 120, weight.scales.view().bytes());
      else if (weight.format != WeightFormat::dense)
        fill_random(weight.scales.view().data, weight.scales.view().bytes());
      bytes_ += static_cast<double>(weight.bytes());
      weights_.push_back(std::move(weight));
    }
  }
  std::string_view form() const { return form_; }
  double bytes() const { return bytes_; }
  void sweep(int64_t m, Buffers& buffers) {
    for (size_t i = 0; i < shapes_.size(); ++i)
      ops_.matmul(buffers.input(m, shapes_[i]), weights_[i], {}, buffers.output(m, shapes_[i]));
  }

 private:
  cpu::CpuOps& ops_;
  std::string_view form_;
  const Shapes& shapes_;
  std::vector<Weight> weights_;
  double bytes_ = 0;
};

#ifdef MANIPLE_ONEDNN
class OneDnnSweep {
 public:
  OneDnnSweep(int threads, int64_t m, Buffers& buffers, const Shapes& shapes) {
    using dnnl::memory;
    omp_set_num_threads(threads);
    for (const LinearShape& shape : shapes) {
      const memory::desc x({m, shape.columns}, memory::data_type::bf16, memory::format_tag::ab);
      const memory::desc w({shape.columns, shape.rows}, memory::data_type::bf16, memory::format_tag::any);
      const auto out_type = shape.out == DType::bf16 ? memory::data_type::bf16 : memory::data_type::f32;
      const memory::desc out({m, shape.rows}, out_type, memory::format_tag::ab);
      const dnnl::matmul::primitive_desc description(dnnl::matmul::desc(x, w, out), engine_);
      storage_.emplace_back(device_, DType::uint8,
                            Shape{static_cast<int64_t>(description.weights_desc().get_size())});
      fill_random(storage_.back().view().data, storage_.back().view().bytes());
      layers_.push_back({dnnl::matmul(description), memory(x, engine_, buffers.input(m, shape).data),
                         memory(description.weights_desc(), engine_, storage_.back().view().data),
                         memory(out, engine_, buffers.output(m, shape).data)});
    }
  }
  void run() {
    for (Layer& layer : layers_) {
      layer.matmul.execute(stream_,
                           {{DNNL_ARG_SRC, layer.x}, {DNNL_ARG_WEIGHTS, layer.w}, {DNNL_ARG_DST, layer.out}});
    }
    stream_.wait();
  }

 private:
  struct Layer {
    dnnl::matmul matmul;
    dnnl::memory x, w, out;
  };
  CpuDevice device_{"oneDNN"};
  dnnl::engine engine_{dnnl::engine::kind::cpu, 0};
  dnnl::stream stream_{engine_};
  std::vector<Tensor> storage_;
  std::vector<Layer> layers_;
};
#endif

// Empty in a build without oneDNN.
std::function<void()> peer_sweep([[maybe_unused]] int threads, [[maybe_unused]] int64_t m,
                                 [[maybe_unused]] Buffers& buffers, [[maybe_unused]] const Shapes& shapes) {
#ifdef MANIPLE_ONEDNN
  return [sweep = std::make_shared<OneDnnSweep>(threads, m, buffers, shapes)] { sweep->run(); };
#else
  return {};
#endif
}

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

template <typename Run>
double timed(Run run) {
  // Threads of the other side may still be spinning.
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  const auto start = Clock::now();
  run();
  return seconds_since(start);
}

struct Arguments {
  int threads = static_cast<int>(std::thread::hardware_concurrency());
  int rounds = 5;
  std::vector<int64_t> m = {1, 2, 4, 8, 16, 32, 64, 128, 512};
  CpuPath path = CpuPath::automatic;
  bool lm_head = true;
  std::vector<std::string> weights = {"bf16"};
};

Arguments parse(int argc, char** argv) {
  Arguments arguments;
  for (int i = 1; i + 1 < argc; i += 2) {
    const std::string_view name = argv[i];
    if (name == "--threads")
      arguments.threads = std::atoi(argv[i + 1]);
    else if (name == "--rounds")
      arguments.rounds = std::atoi(argv[i + 1]);
    else if (name == "--path")
      arguments.path = cpu_path_named(argv[i + 1]);
    else if (name == "--lm-head")
      arguments.lm_head = std::atoi(argv[i + 1]) != 0;
    else if (name == "--weights") {
      arguments.weights.clear();
      std::istringstream list(argv[i + 1]);
      for (std::string form; std::getline(list, form, ',');) arguments.weights.push_back(form);
    } else if (name == "--m") {
      arguments.m.clear();
      std::istringstream list(argv[i + 1]);
      for (std::string m; std::getline(list, m, ',');) arguments.m.push_back(std::stoll(m));
    } else
      fail(ExitCode::usage, "unknown option {}", name);
  }
  if (arguments.path == CpuPath::automatic) arguments.path = available_cpu_paths().front();
  return arguments;
}

void measure(const Arguments& arguments, int64_t m, ThreadPool& pool, std::vector<OurWeights>& forms,
             ReadBandwidth& memory, Device& device, const Shapes& shapes) {
  Buffers buffers(device, m);
  const auto peer = peer_sweep(arguments.threads, m, buffers, shapes);
  std::vector<std::vector<double>> ours(forms.size());
  std::vector<double> theirs, bandwidth;
  for (int round = -1; round < arguments.rounds; ++round) {  // one to warm up
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    const double read = memory.measure(pool);
    const double peer_time = peer ? timed(peer) : 0;
    std::vector<double> times;
    for (OurWeights& weights : forms) times.push_back(timed([&] { weights.sweep(m, buffers); }));
    if (round < 0) continue;
    bandwidth.push_back(read), theirs.push_back(peer_time);
    for (size_t i = 0; i < times.size(); ++i) ours[i].push_back(times[i]);
  }
  double elements = 0;
  for (const LinearShape& shape : shapes) elements += static_cast<double>(shape.rows * shape.columns);
  for (size_t i = 0; i < forms.size(); ++i) {
    const double seconds = median(ours[i]), rate = forms[i].bytes() / seconds;
    fmt::print("| {} | {} | {:.1f} | {:.1f} | {:.0f} | {:.1f} | {:.0f} % | {:.2f} |", m, forms[i].form(),
               seconds * 1e3, rate * 1e-9, 2 * elements * static_cast<double>(m) / seconds * 1e-9,
               median(bandwidth) * 1e-9, 100 * rate / median(bandwidth), median(ours[0]) / seconds);
    if (peer)
      fmt::print(" {:.1f} | {:.2f} |\n", median(theirs) * 1e3, median(theirs) / seconds);
    else
      fmt::print(" - | - |\n");
  }
  std::fflush(stdout);
}

void run(const Arguments& arguments) {
  CpuDevice device("bench");
  ThreadPool pool(arguments.threads);
  ReadBandwidth memory(device);
  const Shapes shapes = qwen3_0_6b(arguments.lm_head);
  cpu::CpuOps ops(device, std::make_unique<ThreadPool>(arguments.threads), arguments.path);
  std::vector<OurWeights> forms;
  for (const std::string& form : arguments.weights) forms.emplace_back(ops, form, shapes);
  fmt::print("Qwen3-0.6B linear layers{}, path {}, {} threads, medians of {} rounds\n\n",
             arguments.lm_head ? " and lm_head" : "", name_of(arguments.path), arguments.threads,
             arguments.rounds);
  if (arguments.path == CpuPath::avx512_bf16)
    fmt::print("Dot products of registers alone: bf16 {:.0f}, int8 {:.0f} GFLOP/s\n\n", dot_peak(pool, false),
               dot_peak(pool, true));
  fmt::print(
      "| M | weights | ms | weights GB/s | GFLOP/s | read GB/s | of it | rate / first's | oneDNN ms | oneDNN "
      "time / ours "
      "|\n|--:|---|--:|--:|--:|--:|--:|--:|--:|--:|\n");
  for (const int64_t m : arguments.m) measure(arguments, m, pool, forms, memory, device, shapes);
}

}  // namespace
}  // namespace maniple::bench

int main(int argc, char** argv) {
  try {
    maniple::bench::run(maniple::bench::parse(argc, argv));
  } catch (const std::exception& error) {
    fmt::print(stderr, "matmul_bench: {}\n", error.what());
    return 1;
  }
}
