#include <launch/commands/generate_job.hpp>

#include <nlohmann/json.hpp>

#include "../run_directory/run_directory_testing.hpp"

namespace maniple {
namespace {

using testing::Scratch;

JobPlan on_reference() {
  JobPlan plan;
  plan.backend = {BackendKind::reference, CpuPath::portable};
  return plan;
}

class GenerateJobTest : public ::testing::Test {
 protected:
  GenerateJobTest() {
    testing::write_content(scratch_.path() / "in", "{\"tokens\":[1]}\n{\"tokens\":[2]}\n{\"tokens\":[3]}\n");
    options_.engine.model = MANIPLE_TEST_DATA "/models/tiny-qwen3";
    options_.in = {scratch_.path() / "in"};
    options_.run_dir = scratch_.path() / "run";
  }

  Scratch scratch_;
  GenerateOptions options_;
  JobPlan plan_ = on_reference();
  std::atomic<uint32_t> disk_ = 0;
};

TEST_F(GenerateJobTest, ShardsThatAreGivenNoSeedHaveTheSame) {
  options_.shard = {0, 2};
  const uint64_t first = GenerateJob(options_, plan_, "here", disk_).seed().value;
  EXPECT_EQ(GenerateJob(options_, plan_, "here", disk_).seed().value, first) << "resumed";
  const std::optional<Manifest> manifest = Manifest::read(*options_.run_dir);
  options_.shard = {1, 2};
  options_.run_dir = scratch_.path() / "other";
  EXPECT_EQ(GenerateJob(options_, plan_, "here", disk_).seed().origin, "from the input");
  EXPECT_NO_THROW(manifest->check_same(Manifest::read(*options_.run_dir).value(), *options_.run_dir,
                                       {"shard", "started"}));
  options_.seed = 7;
  options_.run_dir = scratch_.path() / "seeded";
  EXPECT_EQ(GenerateJob(options_, plan_, "here", disk_).seed().value, 7U);
}

TEST_F(GenerateJobTest, ExpectsAJournalOfWhatIsMissingAndFinalFilesOfAll) {
  constexpr uint64_t line = 8 * 10;
  options_.sampling.max_tokens = 10;
  {
    GenerateJob first(options_, plan_, "here", disk_);
    EXPECT_EQ(first.expected_bytes(), (3 + 3) * line);
    ResultStore& store = first.open_store(true);
    store.finished(0, false, "result\n");
    store.idle({});
  }
  EXPECT_EQ(GenerateJob(options_, plan_, "here", disk_).expected_bytes(), (2 + 3) * line);
}

class ChatJobTest : public GenerateJobTest {
 protected:
  ChatJobTest() {
    const std::string chat = R"({"messages":[{"role":"user","content":"Hi"}])";
    testing::write_content(scratch_.path() / "in", chat + "}\n" + chat + ",\"max_tokens\":9}\n");
    options_.engine.model = MANIPLE_TEST_DATA "/models/shakespeare";
  }
};

TEST_F(ChatJobTest, ExpectsALongAnswerWhereNothingLimitsIt) {
  EXPECT_EQ(GenerateJob(options_, plan_, "here", disk_).expected_bytes(), (2 + 2) * 8 * (512 + 64) / 2);
  EXPECT_EQ(GenerateJob(options_, plan_, "here", disk_).expected_bytes(), (2 + 2) * 8 * (512 + 64) / 2)
      << "resumed";
  options_.sampling.max_tokens = 10;
  options_.run_dir = scratch_.path() / "limited";
  EXPECT_EQ(GenerateJob(options_, plan_, "here", disk_).expected_bytes(), (2 + 2) * 8 * 10);
}

TEST_F(ChatJobTest, ARunBegunBeforeChatsWereUnlimitedGoesOnAsItBegan) {
  constexpr uint64_t short_answers = (2 + 2) * 8 * 64;
  GenerateJob(options_, plan_, "here", disk_);
  const std::optional<Manifest> now = Manifest::read(*options_.run_dir);
  Manifest before;
  for (const char* name : {"version", "input", "requests", "shard", "model", "weights", "dtype", "sampling",
                           "seed", "started", "max_model_len", "level", "instruction_path"})
    before.set(name, *now->find(name));
  before.write(*options_.run_dir);
  EXPECT_EQ(GenerateJob(options_, plan_, "here", disk_).expected_bytes(), short_answers);
  EXPECT_FALSE(Manifest::read(*options_.run_dir)->find("unlimited_chats"));
  EXPECT_THROW(before.check_same(*now, *options_.run_dir), Error) << "shards of both are not merged";
}

TEST_F(ChatJobTest, ARunThatGoesOnOnAnotherDayShowsTemplatesTheDayOfItsFirstStart) {
  const std::filesystem::path model = scratch_.path() / "model";
  std::filesystem::create_directory(model);
  for (const char* name : {"config.json", "tokenizer.json"})
    std::filesystem::copy_file(options_.engine.model / name, model / name);
  testing::write_content(model / "chat_template.jinja", "{{ strftime_now('%Y-%m-%d') }}");
  options_.engine.model = model;
  const auto day = [&] {
    const GenerateJob job(options_, plan_, "here", disk_);
    return job.renderer()(nlohmann::ordered_json::parse(R"({"messages":[{"role":"user","content":"Hi"}]})"));
  };
  day();
  const std::optional<Manifest> today = Manifest::read(*options_.run_dir);
  Manifest earlier;
  for (const char* name : {"version", "input", "requests", "shard", "model", "weights", "dtype", "sampling",
                           "seed", "max_model_len", "level", "instruction_path", "unlimited_chats"})
    earlier.set(name, *today->find(name));
  earlier.set("started", "1700000000");
  earlier.write(*options_.run_dir);
  EXPECT_TRUE(day() == "2023-11-14" || day() == "2023-11-15") << day() << ": by the local time";
  options_.run_dir = scratch_.path() / "fresh";
  EXPECT_GT(day(), "2026-01-01");
}

TEST_F(ChatJobTest, RawTextForAModelWithAChatTemplateIsNoted) {
  EXPECT_EQ(GenerateJob(options_, plan_, "here", disk_).start_note(), "");
  options_.run_dir = scratch_.path() / "raw";
  testing::write_content(scratch_.path() / "in", "{\"tokens\":[1]}\n{\"prompt\":\"a\"}\n");
  const std::string note = GenerateJob(options_, plan_, "here", disk_).start_note();
  EXPECT_NE(note.find("has a chat template, but line 2 is raw text"), std::string::npos) << note;
}

TEST_F(GenerateJobTest, OverwritesResultsOnlyIfAskedOrIfTheyAreItsOwn) {
  const std::string out = scratch_.path() / "out";
  options_.run_dir.reset();
  options_.out = out;
  testing::write_content(out, "");
  EXPECT_NO_THROW(GenerateJob(options_, plan_, "here", disk_)) << "an empty file";
  testing::write_content(out, "precious");
  EXPECT_THROW(GenerateJob(options_, plan_, "here", disk_), Error);
  options_.overwrite.requeued = true;
  EXPECT_NO_THROW(GenerateJob(options_, plan_, "here", disk_));
  options_.overwrite = {.asked = true};
  EXPECT_NO_THROW(GenerateJob(options_, plan_, "here", disk_));
  EXPECT_EQ(testing::content_of(out), "precious") << "until the model is loaded";
}

TEST_F(GenerateJobTest, SaysInASlurmJobThatItCannotGoOnAfterARequeue) {
  EXPECT_EQ(GenerateJob(options_, plan_, "here", disk_).start_note(), "");
  options_.launch.job = "12";
  options_.run_dir = scratch_.path() / "other";
  EXPECT_EQ(GenerateJob(options_, plan_, "here", disk_).start_note(), "");
  options_.run_dir.reset();
  EXPECT_NE(GenerateJob(options_, plan_, "here", disk_).start_note().find("requeues this job"),
            std::string::npos);
  options_.in.clear();
  options_.prompt = "a";
  options_.engine.model = MANIPLE_TEST_DATA "/models/shakespeare";
  EXPECT_EQ(GenerateJob(options_, plan_, "here", disk_).start_note().find("requeues"), std::string::npos);
}

}  // namespace
}  // namespace maniple
