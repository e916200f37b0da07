// A folder of its own for each test, and helpers of the tests in this folder.
#pragma once

#include <launch/run_directory/run_directory.hpp>

#include <gtest/gtest.h>

#include <sys/resource.h>

#include <cstdlib>
#include <fstream>
#include <sstream>
#include <vector>

namespace maniple::testing {

namespace fs = std::filesystem;

class Scratch {
 public:
  Scratch() : path_(::testing::TempDir() + "maniple_run_XXXXXX") {
    std::string name = path_.string();
    EXPECT_NE(::mkdtemp(name.data()), nullptr);
    path_ = name;
  }
  ~Scratch() {
    std::error_code ignored;
    fs::remove_all(path_, ignored);
  }
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;

  const fs::path& path() const { return path_; }

 private:
  fs::path path_;
};

// Limits the number of open files for its lifetime.
class FileLimit {
 public:
  explicit FileLimit(rlim_t most) {
    ::getrlimit(RLIMIT_NOFILE, &before_);
    const rlimit now{most, before_.rlim_max};
    ::setrlimit(RLIMIT_NOFILE, &now);
  }
  ~FileLimit() { ::setrlimit(RLIMIT_NOFILE, &before_); }
  FileLimit(const FileLimit&) = delete;
  FileLimit& operator=(const FileLimit&) = delete;

 private:
  rlimit before_{};
};

inline std::string content_of(const fs::path& path) {
  std::ostringstream text;
  text << std::ifstream(path, std::ios::binary).rdbuf();
  return text.str();
}

inline void write_content(const fs::path& path, const std::string& content) {
  std::ofstream(path, std::ios::binary) << content;
}

struct Told {
  JournalRecord::Kind kind;
  uint64_t request;
  std::string line;
  bool operator==(const Told&) const = default;
};

inline std::vector<Told> records_of(const fs::path& journal) {
  JournalReader reader(journal);
  std::vector<Told> told;
  while (const auto entry = reader.next())
    told.push_back({entry->record.kind, entry->record.request, std::string(entry->record.line)});
  return told;
}

inline Manifest manifest_of(uint64_t requests) {
  Manifest manifest;
  manifest.set("requests", std::to_string(requests));
  return manifest;
}

}  // namespace maniple::testing
