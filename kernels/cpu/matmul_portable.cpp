#include <kernels/cpu/matmul_vector.inl>

namespace maniple::cpu {
namespace {

// Four lanes of the compilers' vector extension: plain C++ on any processor.
struct Sums {
  using Sum = float __attribute__((vector_size(16)));
  using Units = uint32_t __attribute__((vector_size(16)));
  static constexpr int lanes = 4, registers = 8;

  static Sum zero() { return Sum{}; }
  static void store(float* to, Sum sum) { __builtin_memcpy(to, &sum, sizeof sum); }
  static Units load(const uint32_t* units) {
    Units loaded;
    __builtin_memcpy(&loaded, units, sizeof loaded);
    return loaded;
  }
};

struct Fp32 : Sums {
  using Element = float;
  using Weight = Sum;
  using Activation = float;
  static constexpr int group = 1;

  static Weight weight(const uint32_t* units) { return (Sum)load(units); }
  static Activation activation(const Element* x) { return *x; }
  static Activation last_activation(const Element* x) { return *x; }
  static Sum dot(Sum sum, Weight w, Activation x) { return sum + w * x; }
};

struct Bf16 : Sums {
  using Element = uint16_t;
  struct Weight {
    Sum even, odd;
  };
  struct Activation {
    float even, odd;
  };
  static constexpr int group = 2;

  static float widened(Element x) {
    const uint32_t wide = static_cast<uint32_t>(x) << 16;
    float value;
    __builtin_memcpy(&value, &wide, 4);
    return value;
  }
  static Weight weight(const uint32_t* units) {
    const Units pairs = load(units);
    return {(Sum)(pairs << 16), (Sum)(pairs & 0xffff0000u)};
  }
  static Activation activation(const Element* x) { return {widened(x[0]), widened(x[1])}; }
  static Activation last_activation(const Element* x) { return {widened(x[0]), 0.0f}; }
  static Sum dot(Sum sum, Weight w, Activation x) { return (sum + w.even * x.even) + w.odd * x.odd; }
};

}  // namespace

void matmul_bf16_portable(const MatmulBlock& block) { multiply_block<VectorKernel<Bf16, 4>>(block); }
void matmul_fp32_portable(const MatmulBlock& block) { multiply_block<VectorKernel<Fp32, 4>>(block); }

}  // namespace maniple::cpu
