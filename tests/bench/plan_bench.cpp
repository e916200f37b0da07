// plan_bench make CONFIG.json DIRECTORY   a checkpoint of that model: the headers are real, the numbers a hole in sparse files
// plan_bench DIRECTORY TENSOR PIPELINE EXPERT   what a start does with its names before a number is read: the seconds of each step, and
//   the memory of the process. The first call is rank 0, which leaves index.sent there; later calls are other ranks.
#include <runtime/checkpoint/loading/known_tensors.hpp>
#include <runtime/checkpoint/loading/language_model.hpp>
#include <runtime/checkpoint/loading/model_config.hpp>
#include <runtime/checkpoint/loading/weight_loader.hpp>
#include <runtime/checkpoint/safetensors.hpp>
#include <support/safetensors_writer.hpp>

#include <sys/resource.h>

#include <chrono>
#include <iostream>
#include <set>

namespace maniple {
namespace {

namespace fs = std::filesystem;

void write_shard(const fs::path& path, const std::string& header, uint64_t bytes) {
  write_raw_safetensors(path, "{" + header + "}", "");
  fs::resize_file(path, fs::file_size(path) + bytes);
}

void make(const fs::path& config_file, const fs::path& to) {
  constexpr uint64_t shard_bytes = uint64_t{10} << 30;
  fs::create_directories(to);
  fs::copy_file(config_file, to / "config.json", fs::copy_options::overwrite_existing);
  const ModelConfig config = read_model_config(to);
  const std::unique_ptr<const QuantScheme> scheme = scheme_of(config);
  std::set<std::string> written;
  std::string header, weight_map;
  uint64_t bytes = 0;
  int shard = 0;
  const auto name_of_shard = [&] { return fmt::format("model-{:05}.safetensors", shard); };
  const std::unique_ptr<Model> model = make_model(config, {});
  for (const Parameter* parameter : model->parameters())
    for (const WeightPiece& piece : parameter->spec.pieces)
      for (const ExpectedTensor& tensor :
           stored_weight(*scheme, parameter->spec, piece, nullptr)->tensors()) {
        if (!written.insert(tensor.name).second) continue;
        uint64_t size = *item_bytes_of(tensor.types[0]);
        for (const int64_t n : tensor.shapes[0]) size *= static_cast<uint64_t>(n);
        if (bytes + size > shard_bytes) {
          write_shard(to / name_of_shard(), header, bytes);
          header.clear();
          bytes = 0;
          ++shard;
        }
        header += fmt::format(R"({}"{}":{{"dtype":"{}","shape":[{}],"data_offsets":[{},{}]}})",
                              header.empty() ? "" : ",", tensor.name, tensor.types[0],
                              fmt::join(tensor.shapes[0], ","), bytes, bytes + size);
        weight_map +=
            fmt::format("{}\"{}\":\"{}\"", weight_map.empty() ? "" : ",", tensor.name, name_of_shard());
        bytes += size;
      }
  write_shard(to / name_of_shard(), header, bytes);
  std::ofstream(to / "model.safetensors.index.json") << "{\"weight_map\":{" << weight_map << "}}";
  std::cout << written.size() << " tensors in " << shard + 1 << " files\n";
}

class Steps {
 public:
  void done(const char* step) {
    const auto now = std::chrono::steady_clock::now();
    rusage usage{};
    getrusage(RUSAGE_SELF, &usage);
    std::cout << fmt::format("| {} | {:.2f} | {} |\n", step,
                             std::chrono::duration<double>(now - last_).count(), usage.ru_maxrss / 1024);
    last_ = now;
  }

 private:
  std::chrono::steady_clock::time_point last_ = std::chrono::steady_clock::now();
};

// As RankModel::load_checkpoint and share_index. A rank other than the first begins with the bytes of the index.
void plan(const fs::path& directory, const GridSize& grid) {
  const ModelConfig config = read_model_config(directory);
  const std::unique_ptr<const QuantScheme> scheme = scheme_of(config);
  std::cout << "| step | s | MiB at most |\n|---|--:|--:|\n";
  Steps steps;
  const fs::path sent = directory / "index.sent";
  const bool first = !fs::exists(sent);
  if (first) {
    WeightIndex index = read_language_model(directory, config);
    steps.done("read the headers");
    read_known_tensors(index, config, *scheme);
    steps.done("read small tensors");
    std::ofstream(sent) << to_bytes(index);
    steps.done("write the index");
  }
  std::ifstream file(sent, std::ios::binary);
  std::string bytes(std::istreambuf_iterator<char>(file), {});
  steps.done("(get its bytes)");
  const WeightIndex index = index_from(bytes);
  bytes = {};
  steps.done("index");
  if (first) check_names(*make_stored_model(config, {}, index), index, *scheme);
  if (first) steps.done("names");
  std::vector<WeightNeeds> needs;
  for (int rank = 0; rank < grid.replica_ranks(); ++rank) {
    RankPlan plan{grid, position_in(grid, rank), groups_of(grid, rank), std::nullopt};
    const int64_t stage = plan.position.pipeline;
    plan.layers = {config.num_layers() * stage / grid.pipeline,
                   config.num_layers() * (stage + 1) / grid.pipeline};
    needs.push_back(needs_of(*make_stored_model(config, plan, index), index, *scheme));
  }
  steps.done("needs");
  const std::vector<ReadRound> rounds = plan_reads(needs, index, 1, uint64_t{16} << 20);
  steps.done("plan");
  std::cout << rounds.size() << " rounds\n";
}

}  // namespace
}  // namespace maniple

int main(int count, char** words) try {
  const std::vector<std::string> args(words + 1, words + count);
  if (args.size() == 3 && args[0] == "make")
    maniple::make(args[1], args[2]);
  else if (args.size() == 4)
    maniple::plan(
        args[0],
        {.tensor = std::stoi(args[1]), .pipeline = std::stoi(args[2]), .expert = std::stoi(args[3])});
  else
    std::cerr << "plan_bench make CONFIG.json DIRECTORY\nplan_bench DIRECTORY TENSOR PIPELINE EXPERT\n";
  return 0;
} catch (const maniple::Error& error) {
  std::cerr << error.what() << '\n';
  return 1;
}
