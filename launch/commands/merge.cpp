#include <kernels/support/counted.hpp>
#include <launch/commands/commands.hpp>
#include <launch/options/grammar.hpp>
#include <launch/output/output_file.hpp>
#include <launch/run_directory/run_directory.hpp>

#include <cstdio>
#include <functional>
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

Part open_part(const fs::path& path, const std::shared_ptr<OpenJournals>& open_journals) {
  const std::optional<Manifest> manifest = Manifest::read(path);
  if (!manifest) fail(ExitCode::input, "{} is no run directory", path.string());
  const Shard shard = shard_of(*manifest, path);
  Part part{path, *manifest, shard, {manifest->number("requests"), shard, open_journals}};
  replay_journals(path, part.ledger);
  if (part.ledger.done() < part.ledger.requests())
    throw Error(ExitCode::input,
                fmt::format("{} is not complete: {} of {} with a result", path.string(), part.ledger.done(),
                            counted(part.ledger.requests(), "request")),
                "a merge holds the results of all requests",
                "start the command of that shard again; when it is complete, merge");
  return part;
}

void check_same_run(const Part& one, const Part& other) {
  const std::string differences = one.manifest.differences(other.manifest, {"shard", "started"}).text;
  if (differences.empty()) return;
  throw Error(ExitCode::input,
              fmt::format("{} (there) and {} (here) belong to two runs:{}", one.path.string(),
                          other.path.string(), differences),
              "the results of different runs would be mixed", "name the run directories of one run");
}

// By shard; all of one run, none missing.
std::map<uint64_t, Part> open_parts(const std::vector<fs::path>& paths) {
  std::map<uint64_t, Part> parts;
  const auto open_journals = std::make_shared<OpenJournals>();
  for (const fs::path& path : paths) {
    Part part = open_part(path, open_journals);
    if (!parts.empty()) check_same_run(parts.begin()->second, part);
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

void for_each_line(const std::map<uint64_t, Part>& parts, bool failed,
                   const std::function<void(const std::string&)>& take) {
  const uint64_t requests = parts.at(0).manifest.number("requests");
  for (uint64_t request = 0; request < requests; ++request) {
    const Ledger& ledger = parts.at(request % parts.size()).ledger;
    if (ledger.has_failed(request) == failed) take(ledger.line(request) + '\n');
  }
}

// A pipe or a device is written to, and never replaced by a file.
bool is_stream(const fs::path& out) { return out == "-" || (fs::exists(out) && !fs::is_regular_file(out)); }

void write_merged(const fs::path& out, const std::map<uint64_t, Part>& parts, bool failed) try {
  if (is_stream(out)) {
    OutputFile stream(out);
    return for_each_line(parts, failed, [&](const std::string& line) { stream.write(line); });
  }
  replace_file(out, [&](DurableFile& file) {
    for_each_line(parts, failed, [&](const std::string& line) { file.append(line); });
  });
} catch (const Error& error) {
  throw Error(error.code(), error.what(), "OUT holds what it held before, unless it is a pipe or a device",
              "make room (df, quota, ulimit -f) or give another OUT, then merge again");
}

// Removes the errors of an earlier merge if there are none now.
std::string write_errors(const fs::path& out, const std::map<uint64_t, Part>& parts, uint64_t failed) {
  if (is_stream(out)) return failed > 0 ? ": errors.jsonl in the run directories" : "";
  const fs::path errors = out.string() + ".errors";
  if (failed > 0) {
    write_merged(errors, parts, true);
    return ": " + errors.string();
  }
  if (std::error_code error; !fs::remove(errors, error) && error)
    fail(ExitCode::fault, "cannot remove {}: {}", errors.string(), error.message());
  return {};
}

}  // namespace

Parsed<MergeOptions> parse_merge(Grammar& grammar, Words args, const Launch& launch) {
  MergeOptions options;
  std::vector<std::string> words;
  grammar.take_words(words);
  grammar.group("Merge");
  grammar.add("overwrite", on(options.overwrite.asked), "OUT may be a file that is not empty");
  if (const auto help = grammar.parse(args)) return Notice{*help};
  if (words.size() < 2)
    refuse("merge takes OUT, the file for the results, and then run directories",
           fmt::format("maniple merge results.jsonl {}", words.empty() ? "DIR..." : words[0] + " ..."));
  options.out = words[0];
  options.run_dirs.assign(words.begin() + 1, words.end());
  options.overwrite.requeued = launch.requeued;
  return options;
}

ExitCode run_merge(const MergeOptions& options) {
  if (fs::is_directory(options.out))
    throw Error(ExitCode::usage, fmt::format("OUT is missing: {} is a directory", options.out.string()),
                "OUT, the file for the results, comes before the run directories",
                fmt::format("maniple merge results.jsonl {} ...", options.out.string()));
  check_output(options.out, options.overwrite, nullptr);
  if (!is_stream(options.out)) check_output(options.out.string() + ".errors", options.overwrite, nullptr);
  const std::map<uint64_t, Part> parts = open_parts(options.run_dirs);
  uint64_t failed = 0;
  for (const auto& [index, part] : parts) failed += part.ledger.failed();
  write_merged(options.out, parts, false);
  const std::string errors = write_errors(options.out, parts, failed);
  fmt::print(stderr, "maniple: {}: {} of {}, {} failed{}\n", options.out.string(),
             counted(parts.at(0).manifest.number("requests"), "request"), counted(parts.size(), "shard"),
             failed, errors);
  return ExitCode::complete;
}

}  // namespace maniple
