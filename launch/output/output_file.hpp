// Writes lines to a file, a pipe or stdout ("-"). Errors say which file failed and why.
#pragma once

#include <kernels/support/check.hpp>
#include <kernels/support/file_descriptor.hpp>
#include <launch/input/line_reader.hpp>

#include <unistd.h>

#include <csignal>
#include <filesystem>
#include <string>
#include <string_view>

namespace maniple {

// Whether an output file may lose its content. asked: --overwrite. requeued: Slurm has started the job again, so the content is from the job itself.
struct Overwrite {
  bool asked = false;
  bool requeued = false;
  bool quiet = false;  // no note of a requeue
};

// Fails (input) if path is a file whose content must stay.
// Pipes, terminals, devices and "-" for stdout hold none.
void check_overwrite(const std::filesystem::path& path, const Overwrite& overwrite);
// That, and fails (input) if the file can be neither written nor made, and (usage) if the input (may be null)
// reads it. Makes no file.
void check_output(const std::filesystem::path& path, const Overwrite& overwrite, const LineReader* input);

void make_folder(const std::filesystem::path& folder);  // throws Error (input)

// What was printed is written, or fails (fault).
void flush_stdout();

// The exit code if the reader of a pipe leaves before the end,
// as of a program that SIGPIPE ended. Such an end is silent.
inline constexpr ExitCode closed_pipe{128 + SIGPIPE};

// Writes without a buffer. Throws an Error: input if the file cannot be
// opened, fault if it cannot be written, closed_pipe if the reader has left.
class OutputFile {
 public:
  // "-" for stdout. The old content stays until clear(), so that a run that cannot start loses nothing.
  explicit OutputFile(const std::string& path);

  void clear();
  void write(std::string_view text);
  // Makes sure that all of it is on the disk.
  void close();

 private:
  [[noreturn]] void fail_to_write() const;

  std::string name_;
  FileDescriptor owned_;  // stdout is not ours to close
  int descriptor_ = STDOUT_FILENO;
  size_t size_ = 0;  // after the last complete write
};

}  // namespace maniple
