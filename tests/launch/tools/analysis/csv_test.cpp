#include <launch/tools/analysis/csv.hpp>
#include <launch/tools/analysis/plots.hpp>

#include <support/made_records.hpp>
#include <support/temp_directory.hpp>

#include <gmock/gmock.h>

#include <iterator>

namespace maniple {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

std::string content_of(const std::filesystem::path& path) {
  std::ifstream file(path);
  return {std::istreambuf_iterator<char>(file), {}};
}

TEST(Csv, HasALineOfNamesAndALineARow) {
  const TempDirectory scratch;
  Record record = empty_record();
  add_place(record, 3, 0, 1, 0);
  add_sample(record, "a \"b\"", "tok/s", uint64_t{1} << 40, 0.1);
  add_sample(record, "m", "", 1, not_recorded);
  write_csv(record, scratch.path());
  EXPECT_EQ(content_of(scratch / "topology.csv"),
            "rank,host,node,local_rank,tensor,pipeline,data,context,expert,cpus,gpu_uuid\n3,n1,0,0,1,0,0,0,0,"
            "\"0-3,8\",\n");
  EXPECT_EQ(content_of(scratch / "samples.csv"),
            "metric,unit,repeat,value\n\"a \"\"b\"\"\",tok/s,1099511627776,0.1\nm,,1,\n");
  EXPECT_FALSE(std::filesystem::exists(scratch / "steps.csv"));
}

TEST(Csv, StaysInItsFolderWhateverATableIsCalled) {
  const TempDirectory scratch;
  Record record = empty_record();
  add_sample(record, "m", "", 1, 2);
  record.tables[static_cast<size_t>(TableId::samples)].table.name = "../escaped";
  std::filesystem::create_directory(scratch / "in");
  write_csv(record, scratch / "in");
  EXPECT_FALSE(std::filesystem::exists(scratch / "escaped.csv"));
}

TEST(Plots, HaveAScriptForEachTableThatHasRows) {
  const TempDirectory scratch;
  EXPECT_THAT(write_plot_scripts(made_job({}), scratch.path(), "it's r"),
              ElementsAre("throughput", "steps", "latency", "kv_cache", "ranks"));
  const std::string script = content_of(scratch / "throughput.gp");
  EXPECT_THAT(script, HasSubstr("set output 'throughput.svg'\n"));
  EXPECT_THAT(script, HasSubstr("set title 'it''s r' noenhanced\n"));
  EXPECT_THAT(script, HasSubstr("bar(t) = t < 40 ? 0.5 * (floor(t / 0.5) + 0.5) : NaN\n"));
  EXPECT_THAT(write_plot_scripts(empty_record(), scratch.path(), ""), ElementsAre());
}

}  // namespace
}  // namespace maniple
