#include <kernels/support/check.hpp>
#include <launch/convert/progress_log.hpp>
#include <launch/convert/range_file.hpp>

#include <algorithm>

namespace maniple {
namespace {

enum Kind : uint32_t { begun = 1, finished = 2 };

// The log's own failures speak of the results of a run.
void write(const auto& action) {
  try {
    action();
  } catch (const Error& error) {
    throw Error(error.code(), fmt::format("{}: the same command goes on", error.what()), written_stays,
                error.remedy());
  }
}

}  // namespace

std::filesystem::path replaced_by(const std::filesystem::path& to) { return to.string() + ".part.replaced"; }
std::filesystem::path progress_log_of(const std::filesystem::path& to) { return to.string() + ".progress"; }

void end_conversion(const std::filesystem::path& to) {
  std::filesystem::remove_all(replaced_by(to));
  std::filesystem::remove(progress_log_of(to));
}

std::optional<ProgressLog::Content> ProgressLog::read() const {
  std::error_code ignored;
  if (!std::filesystem::exists(path_, ignored)) return std::nullopt;
  FrameReader log(path_);
  const std::optional<FrameReader::Entry> first = log.next();
  if (!first || first->frame.kind != begun) return std::nullopt;
  Content content{std::string(first->frame.bytes), {}};
  while (const std::optional<FrameReader::Entry> entry = log.next()) {
    std::vector<uint64_t> hashes(entry->frame.bytes.size() / sizeof(uint64_t));
    std::copy_n(entry->frame.bytes.data(), hashes.size() * sizeof(uint64_t),
                reinterpret_cast<char*>(hashes.data()));
    content.finished[entry->frame.tag] = std::move(hashes);
  }
  return content;
}

void ProgressLog::start(std::string_view first, const FinishedPieces& pieces) {
  const std::filesystem::path beside = path_.string() + ".new";
  std::error_code ignored;
  std::filesystem::remove(beside, ignored);
  write([&] {
    log_.emplace(beside);
    log_->append({begun, 0, first});
  });
  for (const auto& [number, hashes] : pieces) append(number, hashes);
  sync();
  std::filesystem::rename(beside, path_);
}

void ProgressLog::append(size_t number, const std::vector<uint64_t>& hashes) {
  const std::string_view bytes(reinterpret_cast<const char*>(hashes.data()),
                               hashes.size() * sizeof(uint64_t));
  write([&] { log_->append({finished, number, bytes}); });
}

void ProgressLog::sync() {
  write([&] { log_->sync(); });
}

void refuse_changed_source(const std::string& of, const std::filesystem::path& part,
                           const std::filesystem::path& progress) {
  throw Error(ExitCode::input, fmt::format("{} has changed since {} was begun", of, part.string()),
              "a model of old and new files would be wrong",
              fmt::format("rm -r {} {}, then run the same command again", part.string(), progress.string()));
}

}  // namespace maniple
