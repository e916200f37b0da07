// Records of a made-up job of four ranks. usage: make_record OUT.h5|OUT.log [speed [model hash [slow rank]]]; a log is that of a
// job that did not end.
#include <launch/record/record_file.hpp>

#include <support/made_records.hpp>

#include <cstdlib>

int main(int count, char** words) {
  using namespace maniple;
  if (count < 2) return 64;
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
