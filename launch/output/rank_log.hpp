// The log of one rank: a small file of whole lines with times, in the folder of its job.
#pragma once

#include <kernels/support/file_descriptor.hpp>

#include <filesystem>
#include <mutex>
#include <string>
#include <string_view>

namespace maniple {

class RankLog {
 public:
  // Lines written before are kept until then. If the file
  // cannot be opened or written, the job goes on without a log.
  void open(const std::filesystem::path& file);
  // From any thread.
  void write(std::string_view line);

 private:
  void write_out();

  std::mutex mutex_;
  std::string waiting_;
  FileDescriptor file_;
};

}  // namespace maniple
