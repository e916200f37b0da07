#include <runtime/checkpoint/loading/weight_loader.hpp>
#include <runtime/checkpoint/loading/weight_sizes.hpp>

#include "checkpoint_testing.hpp"

#include <kernels/backend.hpp>
#include <kernels/factory/make_backend.hpp>
#include <layers/models/cost.hpp>
#include <parallel/nccl/nccl_groups.hpp>
#include <runtime/checkpoint/loading/model_config.hpp>
#include <support/cover.hpp>
#include <support/fake_nccl.hpp>
#include <support/fused_checkpoint.hpp>
#include <support/rank_plans.hpp>
#include <support/safetensors_writer.hpp>
#include <support/thread_world.hpp>

#include <cstring>
#include <deque>
#include <mutex>
#include <random>
#include <ranges>

namespace maniple {
namespace {

using Grid = std::vector<std::vector<int>>;

Grid grid_of(int data, int tensor) {
  Grid replicas(static_cast<size_t>(data));
  for (int rank = 0; rank < data * tensor; ++rank)
    replicas[static_cast<size_t>(rank / tensor)].push_back(rank);
  return replicas;
}

// Element by element, from bytes of the whole file.
float stored_value(const WeightIndex& index, const std::vector<std::string>& files, const WeightPiece& piece,
                   int64_t row, int64_t column) {
  const IndexedTensor& tensor = index.tensors.at(piece.source.tensor());
  const int64_t width = tensor.info.shape.size() > 1 ? tensor.info.shape[1] : 1;
  const size_t item = size_of(*tensor.info.dtype);
  const char* at = &files[tensor.extents.at(0).file]
                         [tensor.extents[0].offset + static_cast<size_t>(row * width + column) * item];
  if (tensor.info.dtype == DType::fp32) {
    float value = 0;
    std::memcpy(&value, at, sizeof value);
    return value;
  }
  uint16_t bits = 0;
  std::memcpy(&bits, at, sizeof bits);
  BFloat16 narrow;
  Float16 half;
  narrow.bits = half.bits = bits;
  return tensor.info.dtype == DType::bf16 ? static_cast<float>(narrow) : static_cast<float>(half);
}

// The reference backend keeps weights row by row. An unloaded model gives their specifications.
void expect_values(Model& model, Model& unloaded, const WeightIndex& index) {
  std::vector<std::string> files;
  for (const auto& file : index.files) files.push_back(read_file(file.path));
  const Parameters specs = unloaded.parameters();
  for (size_t i = 0; i < specs.size(); ++i) {
    const WeightSpec& spec = specs[i]->spec;
    const Parameter* const parameter = model.parameters()[i];
    const bool matrix = spec.role == WeightRole::matrix;
    const float* values = (matrix ? parameter->matrix.packed.view() : parameter->vector.view()).as<float>();
    size_t wrong = 0;
    for (const WeightPiece& piece : spec.pieces)
      for (int64_t row = piece.rows.begin; row < piece.rows.end; ++row)
        for (int64_t column = piece.columns.begin; column < piece.columns.end; ++column)
          wrong += values[(piece.local_row + row - piece.rows.begin) * spec.columns + column -
                          piece.columns.begin] != stored_value(index, files, piece, row, column);
    EXPECT_EQ(wrong, 0u) << spec.pieces[0].source.tensor();
  }
}

struct Loaded {
  Loaded(const ModelConfig& config, const WeightIndex& index, TensorRank tensor)
      : backend(make_backend({.kind = BackendKind::reference})),
        model(make_stored_model(config, testing::plan_of(tensor), index)) {
    make_weights(*model, *backend.ops, DType::fp32, *scheme_of(config), nullptr);
  }
  Backend backend;
  std::unique_ptr<Model> model;
};

// Loads as a job does. The expected values are those in `original`.
void load_on(const Grid& grid, const std::filesystem::path& directory, uint64_t round_bytes,
             const std::filesystem::path& original) {
  const ModelConfig config = read_model_config(directory);
  const WeightIndex index = read_index(directory);
  const auto members = static_cast<int>(grid[0].size());
  std::vector<WeightNeeds> needs;
  for (int member = 0; member < members; ++member)
    needs.push_back(needs_of(*make_stored_model(config, testing::plan_of({member, members}), index), index,
                             *scheme_of(config)));
  const auto replicas = static_cast<int>(grid.size());
  run_transports(replicas * members, [&](Transport& transport) {
    const WeightIndex own = index_from(to_bytes(index));  // as on another node
    const std::vector<ReadRound> plan = plan_reads(needs, own, replicas, round_bytes);
    Loaded loaded(config, own, {transport.rank() % members, members});
    std::atomic<uint32_t> blocks = 0;
    load_weights(*loaded.model, *loaded.backend.ops, own, *scheme_of(config), plan, transport, grid, blocks);
    EXPECT_GE(blocks, loaded.model->parameters().size());
    expect_values(*loaded.model, *make_model(config, testing::plan_of({transport.rank() % members, members})),
                  read_index(original));
  });
}
void load_on(const Grid& grid, const std::filesystem::path& directory, uint64_t round_bytes) {
  load_on(grid, directory, round_bytes, directory);
}

TEST(WeightLoader, GivesEveryRankTheStoredValuesOnEveryGrid) {
  const std::vector<std::pair<int, int>> grids{{1, 1}, {1, 2}, {1, 4}, {3, 1}, {2, 2}, {5, 2}, {2, 4}};
  for (const char* name : {"tiny-qwen3", "tiny-qwen3-kv1", "tiny-qwen2"})
    for (const auto& [data, tensor] : testing::sampled(grids, 3))
      for (const uint64_t round_bytes : {uint64_t{20'000}, uint64_t{1} << 20}) {
        if (read_model_config(model_directory(name)).num_heads % tensor != 0) continue;
        SCOPED_TRACE(fmt::format("{} dp {} tp {} rounds of {}", name, data, tensor, round_bytes));
        load_on(grid_of(data, tensor), model_directory(name), round_bytes);
      }
}

// layers/models/cost counts from specs what the files hold: all but the look-up table, if it is not the head.
TEST(ModelCost, CountsWhatAModelStores) {
  for (const char* name : {"tiny-llama3", "tiny-qwen2", "tiny-qwen3", "tiny-qwen3-kv1", "shakespeare"}) {
    const ModelConfig config = read_model_config(model_directory(name));
    const std::unique_ptr<Model> model = make_model(config, {});
    uint64_t matrices = 0, vectors = 0;
    for (const auto& [source, tensor] : read_index(model_directory(name)).tensors) {
      if (model->ignores(source) || (source == "model.embed_tokens.weight" && !config.tie_word_embeddings))
        continue;
      (tensor.info.shape.size() > 1 ? matrices : vectors) +=
          tensor.info.byte_size / size_of(*tensor.info.dtype);
    }
    const ModelCost cost = dense_cost(*model, DType::bf16, DType::bf16);
    EXPECT_EQ(cost.layer_parameters + cost.head_parameters, matrices) << name;
    EXPECT_EQ(cost.weight_bytes, 2 * matrices + 4 * vectors) << name;
  }
}

TEST(WeightLoader, GivesEveryRankTheSameValuesFromFusedTensors) {
  const std::vector<std::pair<int, int>> grids{{1, 1}, {1, 2}, {1, 4}, {2, 2}, {1, 8}};
  for (const char* name : {"tiny-qwen3", "tiny-qwen3-kv1", "tiny-qwen2", "tiny-llama3"}) {
    const TempDirectory fused;
    testing::write_fused(model_directory(name), fused.path());
    for (const auto& [data, tensor] : testing::sampled(grids, 2)) {
      if (read_model_config(model_directory(name)).num_heads % tensor != 0) continue;
      SCOPED_TRACE(fmt::format("{} dp {} tp {}", name, data, tensor));
      load_on(grid_of(data, tensor), fused.path(), 20'000, model_directory(name));
    }
  }
}

TEST(WeightLoader, RefusesATensorThatIsThereBothAloneAndFused) {
  const TempDirectory fused;
  testing::write_fused(model_directory("tiny-qwen3"), fused.path());
  const ModelConfig config = read_model_config(fused.path());
  WeightIndex index = read_index(fused.path());
  const std::string layer = "model.layers.0.self_attn.";
  index.tensors[layer + "k_proj.weight"] =
      read_index(model_directory("tiny-qwen3")).tensors.at(layer + "k_proj.weight");
  const std::string message =
      input_error_of([&] { check_names(*make_stored_model(config, {}, index), index, *scheme_of(config)); });
  expect_contains(message, "lacks 2 of");
  expect_contains(message, "it holds instead: " + layer + "qkv_proj.weight");
}

TEST(WeightLoader, RefusesExpertsThatAreMissingTooManyMisshapenOrInBothForms) {
  for (const char* name : {"tiny-qwen3-moe", "tiny-mixtral"}) {
    const TempDirectory fused;
    testing::write_fused_experts(model_directory(name), fused.path());
    const ModelConfig config = read_model_config(fused.path());
    const WeightIndex whole = read_index(fused.path()), alone = read_index(model_directory(name));
    const auto message_of = [&](const WeightIndex& index) {
      return input_error_of(
          [&] { check_names(*make_stored_model(config, {}, index), index, *scheme_of(config)); });
    };
    check_names(*make_stored_model(config, {}, whole), whole, *scheme_of(config));
    check_names(*make_stored_model(config, {}, alone), alone, *scheme_of(config));
    const std::string up = "model.layers.1.mlp.experts.gate_up_proj",
                      first = config.experts.names == ExpertNames::mixtral
                                  ? "model.layers.1.block_sparse_moe.experts.3.w2.weight"
                                  : "model.layers.1.mlp.experts.3.down_proj.weight";
    WeightIndex index = alone;
    index.tensors.erase(first);
    expect_contains(message_of(index), "lacks 1 of the model's tensors: " + first);
    index = alone;
    index.tensors.at(first).info.shape[1] += 1;
    expect_contains(message_of(index), first + " has the shape [64, ");
    std::string ninth = first;
    ninth.replace(ninth.find(".3."), 3, ".8.");
    index = alone;
    index.tensors[ninth] = index.tensors.at(first);
    expect_contains(message_of(index), "holds 1 tensor that the model has no place for: " + ninth);
    index = alone;
    index.tensors[up] = whole.tensors.at(up);
    expect_contains(message_of(index), up);
    expect_contains(message_of(index), "one by one (");
    for (const int64_t more : {-1, 1}) {
      index = whole;
      index.tensors.at(up).info.shape[0] += more;
      expect_contains(message_of(index), fmt::format("{} has the shape [{}, ", up, 8 + more));
    }
    index = whole;
    index.tensors.erase(up);
    expect_contains(message_of(index), "experts.0.");
  }
}

// The tiny model again, its tensors in other types.
void write_in_types(const std::filesystem::path& to) {
  const ModelFiles tiny = model_directory("tiny-qwen3");
  const WeightIndex index = read_index(tiny);
  std::mt19937 random(1);
  std::vector<TensorToWrite> tensors;
  for (const auto& [name, tensor] : index.tensors) {
    const bool wide = tensors.size() % 3 == 0;
    const size_t elements = tensor.info.byte_size / 2;
    TensorToWrite& written =
        tensors.emplace_back(name,
                             wide                      ? "F32"
                             : tensors.size() % 3 == 1 ? "F16"
                                                       : "BF16",
                             tensor.info.shape, std::vector<std::byte>(elements * (wide ? 4 : 2)));
    for (size_t i = 0; i < elements; ++i) {
      const float value = static_cast<float>(random() % 2000) * 0.001F;
      const Float16 half(value);
      const BFloat16 narrow(value);
      std::byte* const at = &written.bytes[i * (wide ? 4 : 2)];
      if (wide)
        std::memcpy(at, &value, 4);
      else
        std::memcpy(at, written.dtype == "F16" ? &half.bits : &narrow.bits, 2);
    }
  }
  write_safetensors(to / "model.safetensors", tensors);
  std::filesystem::copy(tiny.path("config.json"), to / "config.json");
}

TEST(WeightLoader, DecodesEveryTypeOnTheRankThatKeepsIt) {
  const TempDirectory directory;
  write_in_types(directory.path());
  for (const auto& [data, tensor] : {std::pair{1, 1}, {2, 1}, {1, 4}, {2, 2}})
    load_on(grid_of(data, tensor), directory.path(), 50'000);
}

// Every rank takes part in the exchange to the end, so all ranks
// learn of the error and none waits for a rank that gave up.
TEST(WeightLoader, ThrowsWhatARankFailedToReadAfterItHasServedTheOthers) {
  const TempDirectory directory;
  write_in_types(directory.path());
  for (const auto& [data, tensor] : {std::pair{1, 1}, {2, 1}, {1, 2}, {2, 2}}) {
    std::mutex mutex;
    std::vector<std::string> messages;
    const ModelConfig config = read_model_config(directory.path());
    const TempDirectory copy;
    std::filesystem::copy(directory.path(), copy.path(), std::filesystem::copy_options::recursive);
    const WeightIndex index = read_index(copy.path());
    std::filesystem::resize_file(copy / "model.safetensors", 150'000);
    std::vector<WeightNeeds> needs;
    for (int member = 0; member < tensor; ++member)
      needs.push_back(needs_of(*make_stored_model(config, testing::plan_of({member, tensor}), index), index,
                               *scheme_of(config)));
    const std::vector<ReadRound> plan = plan_reads(needs, index, data, 50'000);
    run_transports(data * tensor, [&](Transport& transport) {
      Loaded loaded(config, index, {transport.rank() % tensor, tensor});
      std::atomic<uint32_t> blocks = 0;
      try {
        load_weights(*loaded.model, *loaded.backend.ops, index, *scheme_of(config), plan, transport,
                     grid_of(data, tensor), blocks);
      } catch (const Error& error) {
        const std::lock_guard lock(mutex);
        messages.emplace_back(error.what());
      }
    });
    EXPECT_EQ(messages.size(), static_cast<size_t>(data * tensor));
    for (const std::string& message : messages) expect_contains(message, "150000 bytes, there");
  }
}

// Over NCCL: each replica reads a part of the tensors and sends it, packed, to the others.
void load_over_nccl(const char* name, const GridSize& grid) {
  const ModelConfig config = read_model_config(model_directory(name));
  const WeightIndex index = read_index(model_directory(name));
  const Readers readers = readers_of(*make_model(config, {}), grid.data);
  const auto nccl = std::make_shared<FakeNccl>();
  std::deque<NcclGroups> groups;
  for (int rank = 0; rank < grid.ranks(); ++rank) groups.emplace_back(nccl, GpuTransport::nccl);
  const auto load = [&](World& world) {
    const GridPosition position = position_in(grid, world.rank());
    const GroupRanks ranks = groups_of(grid, world.rank());
    std::vector<WeightNeeds> needs;
    for (int member = 0; member < grid.tensor; ++member)
      needs.push_back(needs_of(*make_stored_model(config, testing::plan_of({member, grid.tensor}), index),
                               index, *scheme_of(config), readers, position.data));
    Loaded loaded(config, index, {position.tensor, grid.tensor});
    std::atomic<uint32_t> blocks = 0;
    load_weights(*loaded.model, *loaded.backend.ops, index, *scheme_of(config),
                 plan_reads(needs, index, 1, 20'000), world.transport(), Grid{ranks.replica}, blocks);
    share_weights(*loaded.model, *world.make_group(ranks.data, *loaded.backend.ops), readers, blocks);
    expect_values(*loaded.model, *make_model(config, testing::plan_of({position.tensor, grid.tensor})),
                  index);
  };
  run_ranks(grid.ranks(), load, std::chrono::seconds(60),
            [&](int rank, std::unique_ptr<Transport>& members, std::span<const int> group, Ops& ops) {
              return groups[static_cast<size_t>(rank)].make(*members, group, ops.device());
            });
}

TEST(WeightLoader, GivesTheOtherReplicasPackedWhatOneHasRead) {
  for (const char* name : {"tiny-qwen3", "tiny-qwen3-kv1", "tiny-qwen2"})
    for (const GridSize& grid :
         {GridSize{.data = 2}, GridSize{.tensor = 2, .data = 2}, GridSize{.data = 5}}) {
      SCOPED_TRACE(fmt::format("{} dp {} tp {}", name, grid.data, grid.tensor));
      load_over_nccl(name, grid);
    }
}

TEST(WeightLoader, ReplicasThatReadForThemselvesReadAboutAsMuchEach) {
  for (const char* name : {"tiny-qwen3", "tiny-qwen3-kv1", "tiny-qwen2"}) {
    const auto whole = make_model(read_model_config(model_directory(name)), {});
    const WeightIndex index = read_index(model_directory(name));
    const Readers readers = readers_of(*whole, 3);
    std::vector<uint64_t> bytes(3);
    uint64_t largest = 0;
    for (const auto& [source, replica] : readers) {
      bytes[static_cast<size_t>(replica)] += index.tensors.at(source).info.byte_size;
      largest = std::max(largest, index.tensors.at(source).info.byte_size);
    }
    EXPECT_LE(std::ranges::max(bytes) - std::ranges::min(bytes), 2 * largest) << name;
    EXPECT_EQ(std::ranges::max(readers_of(*whole, 100) | std::views::values), 15) << "not all of a large job";
  }
}

}  // namespace
}  // namespace maniple
