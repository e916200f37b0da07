#include "run_directory_testing.hpp"

namespace maniple {
namespace {

using testing::Scratch;
using Kind = JournalRecord::Kind;

// Each job's journal is replayed into the ledger.
class LedgerTest : public ::testing::Test {
 protected:
  void job(const std::vector<JournalRecord>& records, JobEnd end = JobEnd::untold) {
    const std::filesystem::path path = scratch_.path() / std::to_string(++jobs_);
    JournalWriter writer(path);
    for (const JournalRecord& record : records) writer.append(record);
    writer.sync();
    EXPECT_EQ(ledger_.replay(path, end), 0U);
  }

  Scratch scratch_;
  int jobs_ = 0;
  Ledger ledger_{10, {}};
};

TEST_F(LedgerTest, AResultStaysAndAnErrorGivesWay) {
  job({{Kind::finished, 1, "first"}, {Kind::failed, 2, "bad"}});
  EXPECT_EQ(ledger_.done(), 2U);
  EXPECT_EQ(ledger_.failed(), 1U);
  job({{Kind::finished, 1, "second"},
       {Kind::failed, 1, "bad"},
       {Kind::finished, 2, "good"},
       {Kind::failed, 3, ""}});
  EXPECT_EQ(ledger_.line(1), "first");
  EXPECT_EQ(ledger_.line(2), "good");
  EXPECT_EQ(ledger_.done(), 3U);
  EXPECT_EQ(ledger_.failed(), 1U);
  EXPECT_TRUE(ledger_.has_failed(3));
  EXPECT_FALSE(ledger_.has_result(4));
}

TEST_F(LedgerTest, OnlyAFaultWhileAloneQuarantinesAndPlannedStopsNeverCount) {
  const std::vector<JournalRecord> both = {{Kind::started, 4}, {Kind::started, 5}};
  job({{Kind::started, 4}, {Kind::started, 5}, {Kind::stopped}});
  job({{Kind::started, 4}, {Kind::started, 5}, {Kind::stopped}});
  EXPECT_FALSE(ledger_.is_suspect(4));
  job(both);
  EXPECT_FALSE(ledger_.is_suspect(4));
  job(both);
  EXPECT_TRUE(ledger_.is_suspect(4));
  EXPECT_TRUE(ledger_.is_suspect(5));
  EXPECT_FALSE(ledger_.is_quarantined(4));
  job({{Kind::started_alone, 4},
       {Kind::started, 4},
       {Kind::finished, 4, "x"},
       {Kind::started_alone, 5},
       {Kind::started, 5}});
  EXPECT_FALSE(ledger_.is_quarantined(4));
  EXPECT_TRUE(ledger_.is_quarantined(5));
}

TEST_F(LedgerTest, AnEndFromOutsideIsNoFaultOfARequest) {
  for (int time = 0; time < 3; ++time) job({{Kind::started, 4}}, JobEnd::outside);
  job({{Kind::started, 4}}, JobEnd::fault);
  job({{Kind::started_alone, 4}}, JobEnd::outside);
  EXPECT_FALSE(ledger_.is_suspect(4));
  EXPECT_FALSE(ledger_.is_quarantined(4));
  job({{Kind::started, 4}}, JobEnd::fault);
  EXPECT_TRUE(ledger_.is_suspect(4)) << "nothing is left in flight for the next one";
}

TEST_F(LedgerTest, AnErrorClearsTheQuarantineButNotTheSuspicion) {
  job({{Kind::started, 5}});
  job({{Kind::started, 5}});
  job({{Kind::started_alone, 5}});
  job({{Kind::failed, 5, "quarantined"}});
  EXPECT_FALSE(ledger_.is_quarantined(5));
  EXPECT_TRUE(ledger_.is_suspect(5));
}

TEST_F(LedgerTest, WhatAJournalTellsOfNoRequestOfTheRunIsPassedOver) {
  job({{Kind::started, 10}, {Kind::finished, 10, "ten"}, {Kind::finished, 9, "nine"}});
  EXPECT_EQ(ledger_.done(), 1U);
  EXPECT_EQ(ledger_.line(9), "nine");
}

TEST_F(LedgerTest, MoreJournalsThanOpenFiles) {
  constexpr uint64_t jobs = 400;
  const testing::FileLimit limit(200);
  ledger_ = Ledger(jobs, {});
  for (uint64_t i = 0; i < jobs; ++i) job({{Kind::finished, i, "line " + std::to_string(i)}});
  for (uint64_t i = 0; i < jobs; ++i) EXPECT_EQ(ledger_.line(i), "line " + std::to_string(i));
}

TEST(Shards, TogetherHoldEveryRequestOnce) {
  for (uint64_t requests = 0; requests < 20; ++requests)
    for (uint64_t count = 1; count < 7; ++count) {
      uint64_t sum = 0;
      for (uint64_t index = 0; index < count; ++index) {
        const Shard shard{index, count};
        uint64_t held = 0;
        for (uint64_t request = 0; request < requests; ++request) held += shard.holds(request) ? 1 : 0;
        EXPECT_EQ(held, shard.share_of(requests));
        sum += held;
      }
      EXPECT_EQ(sum, requests);
    }
}

TEST(Manifest, NamesEveryFieldThatDiffersWithBothValues) {
  const Scratch scratch;
  Manifest there, here;
  there.set("seed", "7");
  there.set("dtype", "bf16");
  there.set("old", "1");
  there.write(scratch.path());
  here.set("seed", "8");
  here.set("dtype", "bf16");
  here.set("new", "2");
  const auto read = Manifest::read(scratch.path());
  ASSERT_TRUE(read);
  EXPECT_NO_THROW(read->check_same(there, scratch.path()));
  EXPECT_EQ(read->number("seed"), 7U);
  try {
    read->check_same(here, scratch.path());
    FAIL() << "was not refused";
  } catch (const Error& error) {
    const std::string what = error.what();
    EXPECT_EQ(error.code(), ExitCode::input);
    EXPECT_NE(what.find("seed: 7 there, 8 here"), std::string::npos) << what;
    EXPECT_NE(what.find("old: 1 there, nothing here"), std::string::npos) << what;
    EXPECT_NE(what.find("new: nothing there, 2 here"), std::string::npos) << what;
    EXPECT_EQ(what.find("dtype"), std::string::npos) << what;
  }
}

TEST(Manifest, ThatIsDamagedIsRefused) {
  const Scratch scratch;
  EXPECT_FALSE(Manifest::read(scratch.path()));
  for (const char* content : {"", "{", "[]", "{\"seed\":7}"}) {
    testing::write_content(scratch.path() / "manifest.json", content);
    EXPECT_THROW(Manifest::read(scratch.path()), Error) << content;
  }
}

}  // namespace
}  // namespace maniple
