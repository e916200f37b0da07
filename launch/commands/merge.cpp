#include <launch/commands/commands.hpp>
#include <launch/run_directory/run_directory.hpp>

#include <charconv>
#include <cstdio>
#include <map>

namespace maniple {
namespace {

namespace fs = std::filesystem;

// The finished run directory of one shard.
struct Part {
  fs::path path;
  Manifest manifest;
  Shard shard;
  Ledger ledger;
};

Shard shard_of(const Manifest& manifest, const fs::path& path) {
  const std::string* text = manifest.find("shard");
  Shard shard;
  const char* end = text ? text->data() + text->size() : nullptr;
  if (!text ||
      std::from_chars(std::from_chars(text->data(), end, shard.index).ptr + 1, end, shard.count).ptr != end)
    fail(ExitCode::input, "{} does not say which shard it holds", path.string());
  return shard;
}

Part open_part(const fs::path& path, const std::shared_ptr<OpenJournals>& open_journals) {
  const std::optional<Manifest> manifest = Manifest::read(path);
  if (!manifest) fail(ExitCode::input, "{} is no run directory", path.string());
  const Shard shard = shard_of(*manifest, path);
  Part part{path, *manifest, shard, {manifest->number("requests"), shard, open_journals}};
  replay_journals(path, part.ledger);
  if (part.ledger.done() < part.ledger.requests())
    throw Error(ExitCode::input,
                fmt::format("{} is not complete: {} of {} requests have a result", path.string(),
                            part.ledger.done(), part.ledger.requests()),
                {}, "run its job again, then merge");
  return part;
}

// By shard; all of one run, none missing.
std::map<uint64_t, Part> open_parts(const std::vector<fs::path>& paths) {
  std::map<uint64_t, Part> parts;
  const auto open_journals = std::make_shared<OpenJournals>();
  for (const fs::path& path : paths) {
    Part part = open_part(path, open_journals);
    if (!parts.empty()) parts.begin()->second.manifest.check_same(part.manifest, path, {"shard", "started"});
    const auto [known, fresh] = parts.try_emplace(part.shard.index, std::move(part));
    if (!fresh)
      fail(ExitCode::input, "{} and {} hold the same shard", known->second.path.string(), path.string());
  }
  const uint64_t count = parts.begin()->second.shard.count;
  for (uint64_t index = 0; index < count; ++index)
    if (!parts.contains(index) || parts.at(index).shard.count != count)
      fail(ExitCode::input, "shard {}/{} is missing; name the run directories of all shards", index, count);
  return parts;
}

void write_merged(const fs::path& out, const std::map<uint64_t, Part>& parts, bool failed) {
  const uint64_t requests = parts.at(0).manifest.number("requests");
  replace_file(out, [&](DurableFile& file) {
    for (uint64_t request = 0; request < requests; ++request) {
      const Ledger& ledger = parts.at(request % parts.size()).ledger;
      if (ledger.has_failed(request) == failed) file.append(ledger.line(request) + '\n');
    }
  });
}

}  // namespace

ExitCode run_merge(const MergeOptions& options) {
  const std::map<uint64_t, Part> parts = open_parts(options.run_dirs);
  uint64_t failed = 0;
  for (const auto& [index, part] : parts) failed += part.ledger.failed();
  write_merged(options.out, parts, false);
  const fs::path errors = options.out.string() + ".errors";
  if (failed > 0)
    write_merged(errors, parts, true);
  else if (std::error_code error; !fs::remove(errors, error) && error)  // of an earlier merge
    fail(ExitCode::fault, "cannot remove {}: {}", errors.string(), error.message());
  fmt::print(stderr, "maniple: {} requests of {} shard{}, {} failed{}\n",
             parts.at(0).manifest.number("requests"), parts.size(), parts.size() == 1 ? "" : "s", failed,
             failed > 0 ? ": " + errors.string() : "");
  return ExitCode::complete;
}

}  // namespace maniple
