#include "checkpoint_testing.hpp"

#include <kernels/factory/make_backend.hpp>
#include <layers/models/model.hpp>
#include <runtime/checkpoint/extents.hpp>
#include <runtime/checkpoint/loading/weight_loader.hpp>
#include <runtime/checkpoint/loading/weight_sizes.hpp>
#include <runtime/checkpoint/quantization/packed_words.hpp>
#include <runtime/checkpoint/quantization/scheme.hpp>
#include <runtime/checkpoint/safetensors.hpp>
#include <support/rank_plans.hpp>

#include <cmath>
#include <cstring>
#include <functional>
#include <random>

namespace maniple {
namespace {

std::mt19937 random_numbers(7);  // NOLINT: the same numbers in each run
int64_t between(int64_t least, int64_t most) {
  return std::uniform_int_distribution<int64_t>(least, most)(random_numbers);
}
IndexRange part_of(int64_t size) {
  const int64_t begin = between(0, size - 1);
  return {begin, between(begin + 1, size)};
}

TEST(PackedWords, UnpackAnyRectangle) {
  for (const int bits : {4, 8})
    for (const bool along_rows : {false, true})
      for (const bool awq : {false, true}) {
        if (awq && bits == 8) continue;
        WordPacking packing{.bits = bits, .along_rows = along_rows};
        if (awq) packing.places = {0, 4, 1, 5, 2, 6, 3, 7};
        constexpr int64_t rows = 88, columns = 96;
        const std::vector<int64_t> stored = packing.stored_shape(rows, columns);
        std::vector<uint32_t> words(static_cast<size_t>(stored[0] * stored[1]));
        for (uint32_t& word : words) word = random_numbers();
        const auto element = [&](int64_t row, int64_t column) {
          const int64_t along = along_rows ? row : column, per = 32 / bits;
          const uint32_t word = words[static_cast<size_t>(along_rows ? row / per * columns + column
                                                                     : row * stored[1] + column / per)];
          constexpr int awq_order[] = {0, 2, 4, 6,
                                       1, 3, 5, 7};  // of the columns in a word, lowest bits first
          int place = static_cast<int>(along % per);
          if (awq) place = static_cast<int>(std::ranges::find(awq_order, place) - awq_order);
          return static_cast<uint8_t>(word >> (bits * place) & ((1U << bits) - 1));
        };
        for (int offset = 0; offset < 16; ++offset)
          for (int64_t size = 1; size <= 70; ++size) {
            const Box wanted =
                along_rows ? Box{{offset, offset + size}, {3, 8}} : Box{{3, 8}, {offset, offset + size}};
            const Box needed = packing.words_of(wanted);
            // What is held may be larger than what is needed.
            const Box held{{needed.rows.begin - between(0, needed.rows.begin), needed.rows.end},
                           {needed.columns.begin, between(needed.columns.end, stored[1])}};
            std::vector<std::byte> bytes(static_cast<size_t>(held.elements()) * 4);
            for (int64_t i = 0; i < held.rows.size(); ++i)
              std::memcpy(&bytes[static_cast<size_t>(i * held.columns.size()) * 4],
                          &words[static_cast<size_t>((held.rows.begin + i) * stored[1] + held.columns.begin)],
                          static_cast<size_t>(held.columns.size()) * 4);
            std::vector<uint8_t> out(static_cast<size_t>(wanted.elements()));
            const bool transposed = size % 2 == 0;
            const int64_t down = transposed ? 1 : wanted.columns.size(),
                          across = transposed ? wanted.rows.size() : 1;
            unpack(packing, bytes, held, wanted, out.data(), down, across);
            for (int64_t row = 0; row < wanted.rows.size(); ++row)
              for (int64_t column = 0; column < wanted.columns.size(); ++column)
                ASSERT_EQ(out[static_cast<size_t>(row * down + column * across)],
                          element(wanted.rows.begin + row, wanted.columns.begin + column))
                    << bits << " bits, offset " << offset << ", size " << size;
          }
      }
}

// One module of a checkpoint, in memory.
class MadeModule {
 public:
  // Random bytes; scales are finite and not zero.
  void add(const std::string& part, const std::string& type, const std::vector<int64_t>& shape) {
    IndexedTensor& tensor = index_.tensors["m." + part];
    int64_t elements = 1;
    for (const int64_t size : shape) elements *= size;
    const size_t item = type == "I64"                     ? 8
                        : type == "I32" || type == "F32"  ? 4
                        : type == "F16" || type == "BF16" ? 2
                                                          : 1;
    std::vector<std::byte> bytes(static_cast<size_t>(elements) * item);
    for (std::byte& byte : bytes) byte = std::byte(random_numbers());
    if (type == "F16" || type == "BF16")
      for (size_t i = 1; i < bytes.size(); i += 2) bytes[i] = (bytes[i] & std::byte{0x83}) | std::byte{0x38};
    if (type == "F8_E4M3")
      for (std::byte& byte : bytes)
        if ((byte & std::byte{0x7f}) == std::byte{0x7f}) byte = std::byte{1};
    tensor.info = {type, {}, shape, bytes.size()};
    if (type == "F16" || type == "BF16") tensor.info.dtype = type == "F16" ? DType::fp16 : DType::bf16;
    bytes_["m." + part] = std::move(bytes);
  }
  template <typename T>
  T at(const std::string& part, int64_t row, int64_t column = 0) const {
    const StoredMatrix matrix = matrix_of(index_.tensors.at("m." + part).info);
    T value{};
    std::memcpy(&value,
                &bytes_.at("m." + part)[static_cast<size_t>(row * matrix.columns + column) * sizeof(T)],
                sizeof value);
    return value;
  }
  template <typename T>
  void set(const std::string& part, int64_t row, T value) {
    std::memcpy(&bytes_.at("m." + part)[static_cast<size_t>(row) * sizeof(T)], &value, sizeof value);
  }
  const WeightIndex& known(const QuantScheme& scheme) {
    for (auto& [name, tensor] : index_.tensors)
      if (scheme.decides(name, index_) || tensor.info.shape.empty() ||
          tensor.info.shape == std::vector<int64_t>{1})
        tensor.value = bytes_.at(name);
    return index_;
  }
  // What a reader delivers.
  std::vector<std::byte> cut(const StoredBox& box) const {
    const StoredMatrix matrix = matrix_of(index_.tensors.at(box.tensor).info);
    EXPECT_LE(box.rows.end, matrix.rows);
    EXPECT_LE(box.columns.end, matrix.columns);
    const std::vector<std::byte>& all = bytes_.at(box.tensor);
    std::vector<std::byte> bytes;
    for (int64_t row = box.rows.begin; row < box.rows.end; ++row) {
      const auto begin =
          all.begin() + (row * matrix.columns + box.columns.begin) * static_cast<int64_t>(matrix.item_bytes);
      bytes.insert(bytes.end(), begin, begin + box.columns.size() * static_cast<int64_t>(matrix.item_bytes));
    }
    return bytes;
  }

 private:
  WeightIndex index_;
  std::map<std::string, std::vector<std::byte>> bytes_;
};

std::unique_ptr<const QuantScheme> scheme_from(const std::string& quantization) {
  ModelConfig config;
  config.quantization = quantization;
  return scheme_of(config);
}

float float_at(const ConstTensorView& view, int64_t i) {
  if (view.dtype == DType::bf16) return static_cast<float>(view.as<BFloat16>()[i]);
  if (view.dtype == DType::e8m0) return std::ldexp(1.0F, view.as<uint8_t>()[i] - 127);
  return view.dtype == DType::fp16 ? static_cast<float>(view.as<Float16>()[i]) : view.as<float>()[i];
}

float e2m1(int code) {
  constexpr float magnitudes[] = {0, 0.5F, 1, 1.5F, 2, 3, 4, 6};
  return code & 8 ? -magnitudes[code & 7] : magnitudes[code & 7];
}

// The value that decoded rows give an element.
float value_of(const ModuleQuantization& q, const RawRows& raw, const Box& box, int64_t inputs, int64_t row,
               int64_t column) {
  const int64_t group = q.group < 0 ? inputs : q.group;
  const int64_t at =
      row * raw.scales.shape[1] + (box.columns.begin + column) / group - box.columns.begin / group;
  const uint8_t code = raw.values.as<uint8_t>()[row * box.columns.size() + column];
  const float scale = float_at(raw.scales, at);
  if (q.format == WeightFormat::fp8) {
    Float8 wide;
    wide.bits = code;
    return static_cast<float>(wide) * scale;
  }
  if (q.format == WeightFormat::mxfp4) return e2m1(code) * scale;
  const int common = q.format == WeightFormat::int4 ? 8 : 128;
  const int zero = q.zeros ? raw.zeros.as<uint8_t>()[at] : common;
  return static_cast<float>(code - zero) * scale;
}

using Expected = std::function<float(int64_t row, int64_t input)>;

// Every rectangle, decoded from what it needs alone, holds the values that the publisher's rule gives.
void expect_rectangles(MadeModule& module, const QuantScheme& scheme, const StoredWeight& stored,
                       int64_t outputs, int64_t inputs, const Expected& expected) {
  const ModuleQuantization& q = stored.quantization();
  for (int i = 0; i < 60; ++i) {
    const Box box = i == 0 ? Box{{0, outputs}, {0, inputs}} : Box{part_of(outputs), part_of(inputs)};
    const std::vector<StoredBox> needs = stored.needs(box);
    std::vector<std::vector<std::byte>> bytes;
    std::vector<TensorInfo> infos;
    for (const StoredBox& need : needs) {
      bytes.push_back(module.cut(need));
      infos.push_back(module.known(scheme).tensors.at(need.tensor).info);
    }
    std::vector<StoredPart> parts;
    for (size_t n = 0; n < needs.size(); ++n)
      parts.push_back({&infos[n], {needs[n].rows, needs[n].columns}, bytes[n]});
    // Rows of it, as the loader decodes them.
    const int64_t half = (box.rows.begin + box.rows.end) / 2;
    for (const IndexRange rows : {IndexRange{box.rows.begin, half}, IndexRange{half, box.rows.end}}) {
      if (rows.size() == 0) continue;
      std::vector<StoredPart> streamed = parts;
      if (parts.size() == 1) {  // the same rows, as they arrive
        const auto row_bytes = static_cast<int64_t>(bytes[0].size()) / box.rows.size();
        streamed[0].box.rows = rows;
        streamed[0].bytes =
            parts[0].bytes.subspan(static_cast<size_t>((rows.begin - box.rows.begin) * row_bytes),
                                   static_cast<size_t>(rows.size() * row_bytes));
      }
      DecodedRows memory;
      const Box chunk{rows, box.columns};
      const RawRows raw = stored.decode(chunk, streamed, memory);
      ASSERT_EQ(raw.values.shape, (Shape{rows.size(), box.columns.size()}));
      for (int64_t row = 0; row < rows.size(); ++row)
        for (int64_t column = 0; column < box.columns.size(); ++column) {
          const int64_t sorted = box.columns.begin + column,
                        input = q.order.empty() ? sorted : q.order[static_cast<size_t>(sorted)];
          ASSERT_EQ(value_of(q, raw, chunk, inputs, row, column), expected(rows.begin + row, input))
              << scheme.description() << ", row " << rows.begin + row << ", input " << input;
        }
    }
  }
}

void expect_rectangles(MadeModule& module, const QuantScheme& scheme, int64_t outputs, int64_t inputs,
                       const Expected& expected) {
  const std::unique_ptr<const StoredWeight> stored = scheme.of("m", {outputs, inputs}, &module.known(scheme));
  expect_rectangles(module, scheme, *stored, outputs, inputs, expected);
}

int nibble(uint32_t word, int bits, int64_t place) {
  return static_cast<int>(word >> (bits * place) & ((1U << bits) - 1));
}

TEST(Gptq, DecodesAnyRectangle) {
  for (const int bits : {4, 8})
    for (const int64_t group : {int64_t{-1}, int64_t{16}, int64_t{48}, int64_t{128}})
      for (const bool act_order : {false, true})
        for (const bool v2 : {false, true}) {
          const int64_t n = 40, k = 88, per = 32 / bits, size = group < 0 ? k : group,
                        groups = (k + size - 1) / size;
          MadeModule module;
          module.add("qweight", "I32", {k / per, n});
          module.add("qzeros", "I32", {groups, n / per});
          module.add("scales", "F16", {groups, n});
          if (act_order) {
            module.add("g_idx", "I32", {k});
            std::vector<int32_t> g_idx;
            for (int64_t i = 0; i < k; ++i) g_idx.push_back(static_cast<int32_t>(i / size));
            std::ranges::shuffle(g_idx, random_numbers);
            for (int64_t i = 0; i < k; ++i) module.set("g_idx", i, g_idx[static_cast<size_t>(i)]);
          }
          const auto scheme = scheme_from(fmt::format(
              R"({{"quant_method": "gptq", "bits": {}, "group_size": {}, "sym": false, "desc_act": {}, "checkpoint_format": "{}"}})",
              bits, group, act_order, v2 ? "gptq_v2" : "gptq"));
          expect_rectangles(module, *scheme, n, k, [&](int64_t row, int64_t input) {
            const int64_t g = act_order ? module.at<int32_t>("g_idx", input) : input / size;
            const int q = nibble(module.at<uint32_t>("qweight", input / per, row), bits, input % per);
            const int stored = nibble(module.at<uint32_t>("qzeros", g, row / per), bits, row % per);
            const int z = v2 ? stored : (stored + 1) % (1 << bits);
            return static_cast<float>(q - z) * static_cast<float>(module.at<Float16>("scales", g, row));
          });
        }
}

TEST(Awq, DecodesAnyRectangle) {
  constexpr int64_t n = 56, k = 90, group = 32, groups = 3;
  MadeModule module;
  module.add("qweight", "I32", {k, n / 8});
  module.add("qzeros", "I32", {groups, n / 8});
  module.add("scales", "F16", {groups, n});
  const auto scheme = scheme_from(
      R"({"quant_method": "awq", "bits": 4, "group_size": 32, "version": "GEMM", "zero_point": true})");
  constexpr int place_of[] = {0, 4, 1, 5, 2, 6, 3, 7};
  expect_rectangles(module, *scheme, n, k, [&](int64_t row, int64_t input) {
    const int64_t g = input / group;
    const int q = nibble(module.at<uint32_t>("qweight", input, row / 8), 4, place_of[row % 8]);
    const int z = nibble(module.at<uint32_t>("qzeros", g, row / 8), 4, place_of[row % 8]);
    return static_cast<float>(q - z) * static_cast<float>(module.at<Float16>("scales", g, row));
  });
}

TEST(Mxfp4, DecodesAnyRectangleOfFusedExperts) {
  constexpr int64_t experts = 3, n = 10, k = 96, blocks = k / 32;
  MadeModule module;
  module.add("up_blocks", "U8", {experts, n, blocks, 16});
  module.add("up_scales", "U8", {experts, n, blocks});
  for (int64_t i = 0; i < experts * n * blocks; ++i)
    if (module.at<uint8_t>("up_scales", i / blocks, i % blocks) == 255)
      module.set<uint8_t>("up_scales", i, 0);
  const auto scheme = scheme_from(
      R"({"quant_method": "mxfp4", "modules_to_not_convert": ["model.layers.*.self_attn", "lm_head"]})");
  const auto stored = scheme->fused_experts("m.up", {experts, n, k});
  EXPECT_EQ(stored->tensors()[0].shapes[0], (std::vector<int64_t>{experts, n, blocks, 16}));
  expect_rectangles(module, *scheme, *stored, experts * n, k, [&](int64_t row, int64_t input) {
    return e2m1(nibble(module.at<uint8_t>("up_blocks", row, input / 2), 4, input % 2)) *
           std::ldexp(1.0F, module.at<uint8_t>("up_scales", row, input / 32) - 127);
  });

  module.set<uint8_t>("up_scales", 7 * blocks + 1, 255);
  const auto decode = [&](IndexRange columns) {
    const Box box{{7, 8}, columns};
    const std::vector<StoredBox> needs = stored->needs(box);
    const std::vector<std::byte> codes = module.cut(needs[0]), scales = module.cut(needs[1]);
    const std::vector<StoredPart> parts{{nullptr, {needs[0].rows, needs[0].columns}, codes},
                                        {nullptr, {needs[1].rows, needs[1].columns}, scales}};
    DecodedRows memory;
    stored->decode(box, parts, memory);
  };
  decode({0, 32});
  expect_contains(refusal_of([&] { decode({31, 33}); }), "m.up_scales");
  expect_contains(refusal_of([&] { scheme->fused_experts("m.up", {experts, n, 40}); }), "blocks of 32");
}

std::string compressed(const std::string& format, const std::string& weights, const std::string& inputs) {
  return fmt::format(R"({{"quant_method": "compressed-tensors", "format": "{}", "ignore": ["lm_head"],
                         "config_groups": {{"group_0": {{"targets": ["Linear"], "weights": {{{}}}, "input_activations": {}}}}}}})",
                     format, weights, inputs);
}

TEST(PackQuantized, DecodesAnyRectangle) {
  for (const int bits : {4, 8})
    for (const bool symmetric : {false, true})
      for (const int64_t k : {96, 90}) {
        const int64_t n = 28, per = 32 / bits, groups = (k + 31) / 32;
        MadeModule module;
        module.add("weight_packed", "I32", {n, (k + per - 1) / per});
        module.add("weight_scale", "BF16", {n, groups});
        module.add("weight_shape", "I64", {2});
        module.set("weight_shape", 0, n);
        module.set("weight_shape", 1, k);
        if (!symmetric) module.add("weight_zero_point", "I32", {(n + per - 1) / per, groups});
        const auto scheme = scheme_from(compressed(
            "pack-quantized",
            fmt::format(
                R"("num_bits": {}, "type": "int", "symmetric": {}, "strategy": "group", "group_size": 32)",
                bits, symmetric),
            "null"));
        expect_rectangles(module, *scheme, n, k, [&](int64_t row, int64_t input) {
          const int q = nibble(module.at<uint32_t>("weight_packed", row, input / per), bits, input % per);
          const int z = symmetric ? 1 << (bits - 1)
                                  : nibble(module.at<uint32_t>("weight_zero_point", row / per, input / 32),
                                           bits, row % per);
          return static_cast<float>(q - z) *
                 static_cast<float>(module.at<BFloat16>("weight_scale", row, input / 32));
        });
      }
}

TEST(Codes, OfEightBitsDecodeAnyRectangle) {
  const auto number = [](uint8_t bits) {
    Float8 code;
    code.bits = bits;
    return static_cast<float>(code);
  };
  const std::string int8 = R"("num_bits": 8, "type": "int", "symmetric": true, "strategy": "channel")",
                    fp8 = R"("num_bits": 8, "type": "float", "symmetric": true, "strategy": "channel")";
  const auto rule = [](const char* type) {
    return fmt::format(
        R"({{"num_bits": 8, "type": "{}", "symmetric": true, "dynamic": true, "strategy": "token"}})", type);
  };
  constexpr int64_t n = 37, k = 70;
  for (const bool per_row : {true, false}) {
    MadeModule module;
    module.add("weight", "I8", {n, k});
    module.add("weight_scale", "BF16", per_row ? std::vector<int64_t>{n, 1} : std::vector<int64_t>{1});
    expect_rectangles(module, *scheme_from(compressed("int-quantized", int8, rule("int"))), n, k,
                      [&](int64_t row, int64_t input) {
                        return static_cast<float>(module.at<int8_t>("weight", row, input)) *
                               static_cast<float>(module.at<BFloat16>("weight_scale", per_row ? row : 0));
                      });
    module.add("weight", "F8_E4M3", {n, k});
    expect_rectangles(module, *scheme_from(compressed("float-quantized", fp8, rule("float"))), n, k,
                      [&](int64_t row, int64_t input) {
                        return number(module.at<uint8_t>("weight", row, input)) *
                               static_cast<float>(module.at<BFloat16>("weight_scale", per_row ? row : 0));
                      });
  }
}

// A head of 96 rows cuts blocks of 128: the scale is that of the row in the whole matrix.
TEST(Fp8, DecodesAnyRectangleOfBlocks) {
  constexpr int64_t n = 300, k = 270;
  MadeModule module;
  module.add("weight", "F8_E4M3", {n, k});
  module.add("weight_scale_inv", "BF16", {3, 3});
  const auto scheme = scheme_from(
      R"({"quant_method": "fp8", "activation_scheme": "dynamic", "weight_block_size": [128, 128], "fmt": "e4m3"})");
  expect_rectangles(module, *scheme, n, k, [&](int64_t row, int64_t input) {
    Float8 code;
    code.bits = module.at<uint8_t>("weight", row, input);
    return static_cast<float>(code) *
           static_cast<float>(module.at<BFloat16>("weight_scale_inv", row / 128, input / 128));
  });
}

// The nearest of all e4m3 numbers, ties to the even code.
uint8_t nearest_e4m3(float value) {
  uint8_t best = 0;
  for (int code = 0; code < 0x7f; ++code) {
    const auto number = [](int bits) {
      Float8 wide;
      wide.bits = static_cast<uint8_t>(bits);
      return static_cast<double>(static_cast<float>(wide));
    };
    const double mine = std::abs(number(code) - std::abs(double{value})),
                 least = std::abs(number(best) - std::abs(double{value}));
    if (mine < least || (mine == least && code % 2 == 0)) best = static_cast<uint8_t>(code);
  }
  return static_cast<uint8_t>(best | (std::signbit(value) ? 0x80 : 0));
}

// The rules of those who publish models that were quantised without data.
TEST(WhileLoading, RoundsAsPublishersDo) {
  constexpr int64_t n = 24, k = 80;
  MadeModule module;
  module.add("weight", "BF16", {n, k});
  for (int64_t i = 0; i < k; ++i) module.set("weight", 5 * k + i, BFloat16(0.0F));  // a row of zeros
  for (const WeightFormat format : {WeightFormat::fp8, WeightFormat::int8, WeightFormat::int4}) {
    ModelConfig config;
    config.quantize = format;
    const auto scheme = scheme_of(config);
    const auto expected = [&](int64_t row, int64_t input) {
      const int64_t first = format == WeightFormat::int4 ? input / 32 * 32 : 0,
                    end = format == WeightFormat::int4 ? std::min(first + 32, k) : k;
      float largest = 0;
      for (int64_t i = first; i < end; ++i)
        largest = std::max(largest, std::abs(static_cast<float>(module.at<BFloat16>("weight", row, i))));
      const float range = format == WeightFormat::fp8 ? 448.0F : format == WeightFormat::int8 ? 127.0F : 7.5F;
      const auto scale = static_cast<float>(BFloat16(largest / range));
      const auto value = static_cast<float>(module.at<BFloat16>("weight", row, input));
      if (largest == 0) return 0.0F;
      if (format == WeightFormat::fp8) {
        Float8 code;
        code.bits = nearest_e4m3(value / scale);
        return static_cast<float>(code) * scale;
      }
      const float most = format == WeightFormat::int8 ? 127.0F : 7.0F,
                  least = format == WeightFormat::int8 ? -127.0F : -8.0F;
      return std::clamp(std::nearbyint(value / scale), least, most) * scale;
    };
    expect_rectangles(module, *scheme, n, k, expected);
  }
}

TEST(WhileLoading, MakesTheHeadInt8WhereItsFormatIsOfIntegers) {
  const auto format_of = [](WeightFormat format, bool tied, const char* module) {
    ModelConfig config;
    config.quantize = format;
    config.tie_word_embeddings = tied;
    return scheme_of(config)->of(module, {64, 64}, nullptr)->quantization().format;
  };
  for (const bool tied : {false, true}) {
    const char* head = tied ? "model.embed_tokens" : "lm_head";
    EXPECT_EQ(format_of(WeightFormat::int4, tied, head), WeightFormat::int8);
    EXPECT_EQ(format_of(WeightFormat::fp8, tied, head), WeightFormat::dense);
    EXPECT_EQ(format_of(WeightFormat::int4, tied, "model.layers.0.mlp.up_proj"), WeightFormat::int4);
  }
  EXPECT_EQ(format_of(WeightFormat::int8, false, "model.embed_tokens"), WeightFormat::dense)
      << "only looked up";
}

ModelConfig small_qwen3() {
  ModelConfig config;
  config.architecture = "Qwen3ForCausalLM";
  config.hidden_size = 1024;
  config.layers.assign(2, {.dense_width = 3072});
  config.num_heads = 16;
  config.num_kv_heads = 8;
  config.head_dim = 128;
  config.vocab_size = 151936 / 16;
  config.max_position_embeddings = 4096;
  config.rms_norm_eps = 1e-6;
  config.tie_word_embeddings = true;
  config.qk_norm = true;
  return config;
}

uint64_t stored_bytes_of(const ModelConfig& config) {
  const auto whole = make_model(config, {});
  const auto scheme = scheme_of(config);
  std::map<std::string, uint64_t> bytes;
  for (const Parameter* parameter : whole->parameters())
    for (const WeightPiece& piece : parameter->spec.pieces)
      for (const ExpectedTensor& tensor :
           stored_weight(*scheme, parameter->spec, piece, nullptr)->tensors()) {
        bytes[tensor.name] = item_bytes_of(tensor.types[0]).value();
        for (const int64_t size : tensor.shapes[0]) bytes[tensor.name] *= static_cast<uint64_t>(size);
      }
  uint64_t sum = 0;
  for (const auto& [name, size] : bytes) sum += size;
  return sum;
}

// What packing adds on processors with AMX: a tile sums 64 codes of int8, so slices are padded to whole ones.
double tile_padding(Model& model, const QuantScheme& scheme) {
  if (available_cpu_paths().front() != CpuPath::amx) return 0;
  int64_t bytes = 0;
  for (const Parameter* parameter : model.parameters()) {
    if (parameter->spec.role != WeightRole::matrix) continue;
    const WeightShape shape = expected_shape(scheme, parameter->spec, DType::bf16);
    if (shape.format == WeightFormat::int8 && shape.activation != ActivationRule::none)
      bytes += shape.rows * shape.slices * ((shape.slice_columns() + 63) / 64 * 64 - shape.slice_columns());
  }
  return static_cast<double>(bytes);
}

// What the KV cache is sized by, what is allocated, and what is stored.
TEST(QuantisedWeights, TakeTheMemoryThatIsPredicted) {
  const std::string int_rule =
      R"({"num_bits": 8, "type": "int", "symmetric": true, "dynamic": true, "strategy": "token"})";
  const std::string schemes[] = {
      R"({"quant_method": "gptq", "bits": 4, "group_size": 128, "sym": true})",
      R"({"quant_method": "gptq", "bits": 8, "group_size": 32, "sym": false})",
      R"({"quant_method": "awq", "bits": 4, "group_size": 32})",
      R"({"quant_method": "fp8", "weight_block_size": [128, 128]})",
      compressed("int-quantized", R"("num_bits": 8, "type": "int", "strategy": "channel")", int_rule),
      compressed("pack-quantized", R"("num_bits": 4, "type": "int", "strategy": "group", "group_size": 32)",
                 "null")};
  ModelConfig mixture = small_qwen3();
  mixture.layers.assign(2, {});
  mixture.experts = {.count = 8, .width = 768, .router = {.per_token = 2}};
  std::vector<ModelConfig> configs;
  for (const std::string& quantization : schemes)
    for (ModelConfig config : {small_qwen3(), mixture}) {
      config.quantization = quantization;
      configs.push_back(config);
    }
  // 90 blocks over 8 slices.
  ModelConfig stacked = mixture;
  stacked.experts = {.count = 4, .width = 2880, .router = {.per_token = 2}, .names = ExpertNames::gpt_oss};
  stacked.quantization = R"({"quant_method": "mxfp4"})";
  configs.push_back(stacked);
  for (ModelConfig& config : configs) {
    const auto scheme = scheme_of(config);
    config.activation_group = scheme->activation_group();
    const double stored = static_cast<double>(stored_bytes_of(config));
    for (const int tensor : {1, 2, 4, 8}) {
      const bool sparse = config.experts.count > 0;
      const int expert = sparse ? std::max(1, tensor / 2) : 1;
      // Every rank has the router, in fp32 and a whole panel.
      const double routers = sparse ? 4.0 * tensor * 32 * 1024 * static_cast<double>(config.num_layers()) : 0;
      double predicted = 0, allocated = 0, padding = 0;
      for (int rank = 0; rank < tensor; ++rank) {
        const Backend backend = make_backend({.kind = BackendKind::cpu});
        const auto model = make_model(config, testing::plan_of({rank, tensor}, expert));
        predicted += static_cast<double>(weight_bytes(*model, DType::bf16, *scheme));
        allocated += static_cast<double>(make_weights(*model, *backend.ops, DType::bf16, *scheme, nullptr));
        padding += tile_padding(*model, *scheme);
      }
      EXPECT_LE(predicted, 1.05 * stored + routers) << scheme->description() << " tp " << tensor;
      EXPECT_LE(allocated, 1.05 * stored + routers + padding) << scheme->description() << " tp " << tensor;
      EXPECT_GE(allocated, 0.97 * stored) << scheme->description() << " tp " << tensor;
    }
  }
}

}  // namespace
}  // namespace maniple
