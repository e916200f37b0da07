// Prints the journals of a run directory: a line "JOB KIND REQUEST" for each whole record.
#include <launch/run_directory/journal.hpp>
#include <launch/run_directory/run_lock.hpp>

#include <fmt/format.h>

#include <array>
#include <exception>

namespace {

constexpr std::array kinds = {"?", "started", "started_alone", "finished", "failed", "stopped"};

void print_records(const std::filesystem::path& job) {
  if (!exists(job / "journal")) return;
  maniple::JournalReader journal(job / "journal");
  while (const auto entry = journal.next())
    fmt::print("{} {} {}\n", job.filename().string(), kinds.at(static_cast<size_t>(entry->record.kind)),
               entry->record.request);
}

}  // namespace

int main(int count, char** arguments) try {
  if (count != 2) throw std::invalid_argument("usage: journal_records RUN_DIRECTORY");
  for (const auto& job : maniple::job_folders(arguments[1])) print_records(job);
} catch (const std::exception& error) {
  fmt::print(stderr, "{}\n", error.what());
  return 1;
}
