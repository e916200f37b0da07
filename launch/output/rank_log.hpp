// What one rank has to say of itself: a small file of whole lines with their times, in the folder of its job.
#pragma once

#include <kernels/support/file_descriptor.hpp>

#include <filesystem>
#include <mutex>
#include <string>
#include <string_view>

namespace maniple {

class RankLog {
 public:
  // Lines wait for it. Where the file cannot be opened or written there is no log: the job goes on.
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
