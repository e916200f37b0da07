// Records of a made-up job of four ranks. usage: make_record OUT.h5|OUT.log [speed [model hash [slow rank]]]; a log is that of a
// job that did not end. Or a launch of a scaling study: make_record launch STUDY TP DP ROUND TOKENS_PER_S.
#include <support/made_studies.hpp>

#include <cstdlib>

int main(int count, char** words) {
  using namespace maniple;
  if (count < 2) return 64;
  if (words[1] == std::string("launch") && count == 7) {
    const StudyPoint point{std::atoi(words[3]), std::atoi(words[4])};
    write_launch(read_study(words[2]), words[2], point, std::atoi(words[5]), std::atof(words[6]));
    return 0;
  }
  const std::filesystem::path out = words[1];
  MadeJob job;
  job.complete = out.extension() == ".h5";
  if (count > 2) job.speed = std::atof(words[2]);
  if (count > 3) job.model_hash = words[3];
  if (count > 4) job.slow_rank = std::atoi(words[4]);
  if (job.complete)
    write_record_file(made_job(job), out);
  else
    write_log(made_job(job), out);
}
