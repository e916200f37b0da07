#include <launch/commands/run_identity.hpp>

#include <gtest/gtest.h>
#include <launch/run_directory/run_directory.hpp>
#include <launch/tools/convert/model_writer.hpp>
#include <support/temp_directory.hpp>
#include <support/thread_world.hpp>

#include <filesystem>
#include <fstream>

namespace maniple {
namespace {

namespace fs = std::filesystem;

class ModelCopy {
 public:
  ModelCopy() : path_(::testing::TempDir() + "maniple_model_copy") {
    fs::remove_all(path_);
    fs::copy(MANIPLE_TEST_DATA "/models/tiny-qwen3", path_);
  }
  ~ModelCopy() { fs::remove_all(path_); }
  const fs::path& path() const { return path_; }

 private:
  fs::path path_;
};

GenerateOptions plain_options(const fs::path& model) {
  GenerateOptions options;
  options.engine.model = model;
  return options;
}

std::string difference(const Manifest& there, const Manifest& here) {
  try {
    there.check_same(here, "d");
    return {};
  } catch (const Error& error) {
    return error.what();
  }
}

TEST(ModelHash, SeesEveryFileAndHeaderButReadsNoWeights) {
  const ModelCopy copy;
  const uint64_t original = model_hash(copy.path());
  const fs::path weights = copy.path() / "model.safetensors";
  const auto poke = [&](std::streamoff at) {
    std::fstream file(weights, std::ios::in | std::ios::out | std::ios::binary);
    file.seekp(at);
    file.put('\x01');
  };
  poke(static_cast<std::streamoff>(fs::file_size(weights)) - 1);
  EXPECT_EQ(model_hash(copy.path()), original);
  poke(20);
  EXPECT_NE(model_hash(copy.path()), original);

  const ModelCopy grown;
  std::ofstream(grown.path() / "model.safetensors", std::ios::app) << 'x';
  EXPECT_NE(model_hash(grown.path()), original);
  const ModelCopy configured;
  std::ofstream(configured.path() / "config.json", std::ios::app) << ' ';
  EXPECT_NE(model_hash(configured.path()), original);
  const ModelCopy ranked;
  std::ofstream(ranked.path() / "tiktoken.model") << "AA== 0\n";
  EXPECT_NE(model_hash(ranked.path()), original);
  const ModelCopy noted;
  std::ofstream(noted.path() / "notes.txt") << "nothing that matters";
  EXPECT_EQ(model_hash(noted.path()), original);
}

TEST(ModelHash, IsTheSameOfAPackedModel) {
  for (const char* name : {"tiny-qwen3", "tiny-qwen3-kv1"}) {
    const TempDirectory folder;
    const ModelFiles files(fs::path(MANIPLE_TEST_DATA "/models") / name);
    pack_model(files, folder / "m.h5", {});
    EXPECT_EQ(model_hash(folder / "m.h5"), model_hash(files));
  }
}

TEST(RunIdentity, ChangesWithWhatDecidesTheBytesAndNotWithTheLayout) {
  const ModelCopy copy;
  const GenerateOptions plain = plain_options(copy.path());
  const RunIdentity identity{1, 2, 3, 4};
  JobPlan plan;
  plan.backend = {BackendKind::cpu, CpuPath::avx2};
  const Manifest there = manifest_of(plain, plan, identity);
  GenerateOptions other = plain;
  other.engine.tensor_size = 4;
  other.engine.threads = 7;
  other.engine.block_size = 16;
  other.engine.max_num_seqs = 3;
  other.fail_on = 5;
  JobPlan other_grid = plan;
  other_grid.grid = {.tensor = 4};
  EXPECT_EQ(difference(there, manifest_of(other, other_grid, identity)), "");

  const auto differs = [&](const std::string& field, const auto& change) {
    GenerateOptions changed = plain;
    JobPlan changed_plan = plan;
    RunIdentity changed_identity = identity;
    change(changed, changed_plan, changed_identity);
    const std::string text = difference(there, manifest_of(changed, changed_plan, changed_identity));
    EXPECT_NE(text.find("\n    " + field + ": "), std::string::npos) << field << ": " << text;
  };
  differs("input", [](auto&, auto&, auto& id) { id.input_hash = 9; });
  differs("seed", [](auto&, auto&, auto& id) { id.seed = 9; });
  differs("instruction_path", [](auto&, auto& p, auto&) { p.backend.cpu_path = CpuPath::amx; });
  differs("unlimited_chats", [](auto&, auto&, auto& id) { id.unlimited_chats = 2; });
  differs("reasoning", [](auto& o, auto&, auto&) { o.reasoning = "auto"; });
  differs("text_lines", [](auto& o, auto&, auto&) { o.chat = true; });
  differs("shard", [](auto& o, auto&, auto&) { o.shard = {0, 2}; });
  differs("dtype", [](auto&, auto& p, auto&) { p.dtype = DType::fp32; });
  differs("kv_cache_dtype", [](auto&, auto& p, auto&) { p.kv_dtype = DType::fp8; });
  differs("weights", [](auto& o, auto&, auto&) { o.engine.random_weights = true; });
  differs("max_model_len", [](auto& o, auto&, auto&) { o.engine.max_model_len = 9; });
  differs("level", [](auto&, auto& p, auto&) { p.repro = Repro::batch; });
  differs("sampling", [](auto& o, auto&, auto&) { o.sampling.temperature = 0.5F; });
  differs("sampling", [](auto& o, auto&, auto&) { o.sampling.stop = {"a"}; });
  differs("sampling", [](auto& o, auto&, auto&) { o.sampling.max_tokens = 9; });
  differs("sampling", [](auto& o, auto&, auto&) { o.sampling.n = 2; });
}

TEST(RunIdentity, SaysHowToGoOnWithARunOfAnotherVersionOrProcessor) {
  const ModelCopy copy;
  const GenerateOptions plain = plain_options(copy.path());
  const auto begun_by = [&](BackendChoice backend, uint64_t seed = 3) {
    JobPlan plan;
    plan.backend = backend;
    return manifest_of(plain, plan, {1, 2, seed, 4});
  };
  const BackendChoice avx2{BackendKind::cpu, CpuPath::avx2}, amx{BackendKind::cpu, CpuPath::amx},
      reference{BackendKind::reference, CpuPath::portable};
  const Manifest now = begun_by(avx2);
  const auto remedy_for = [&](const std::string& version, BackendChoice backend, uint64_t seed = 3) {
    Manifest there;
    if (!version.empty()) there.set("version", version);
    const Manifest rest = begun_by(backend, seed);
    for (const char* name : {"input", "requests", "shard", "model", "weights", "dtype", "sampling", "seed",
                             "started", "max_model_len", "level", "instruction_path"})
      there.set(name, *rest.find(name));
    try {
      there.check_same(now, "d");
      return std::string();
    } catch (const Error& error) {
      return fmt::format("{} | {}", error.what(), error.remedy());
    }
  };
  const auto says = [](const std::string& text, const std::string& part) {
    EXPECT_NE(text.find(part), std::string::npos) << text;
  };
  const std::string version = *now.find("version");
  EXPECT_EQ(remedy_for(version, avx2), "");
  says(remedy_for("0.0.9", avx2), "version: 0.0.9 there, " + version + " here");
  says(remedy_for("0.0.9", avx2), "or maniple 0.0.9, which began it");
  says(remedy_for("", avx2), "version: an older version there");
  says(remedy_for("", avx2), "or the older maniple that began it");
  says(remedy_for(version, amx),
       "or --cpu-path amx, as it was begun, on nodes that have it (sbatch --constraint");
  says(remedy_for(version, reference), "or --backend reference, as it was begun");
  says(remedy_for("0.0.9", amx), "which began it (module load), and --cpu-path amx");
  says(remedy_for("0.0.9", amx, 9), "or the options, input and model of that run");
}

TEST(RunIdentity, KeepsTheSizesThatDecideBits) {
  JobPlan plan;
  plan.grid.tensor = 3;
  EXPECT_EQ(level_of(plan), "grid");
  plan.repro = Repro::batch;
  EXPECT_EQ(level_of(plan), "batch of tensor size 3");
  plan.grid.context = 3;
  EXPECT_EQ(level_of(plan), "batch of tensor size 3, context size 3");
  plan.grid.expert = 2;
  EXPECT_EQ(level_of(plan), "batch of tensor size 3, context size 3, expert size 2");
  plan.repro = Repro::off;
  EXPECT_EQ(level_of(plan), "off");
}

}  // namespace
}  // namespace maniple
