#include <launch/commands/commands.hpp>
#include <launch/convert/model_writer.hpp>
#include <launch/convert/round_trip.hpp>

#include <fmt/ranges.h>

#include <sys/vfs.h>

#include <algorithm>
#include <chrono>

namespace maniple {

namespace fs = std::filesystem;

namespace {

// Neither the source, nor in it, nor around it.
void check_place(const fs::path& from, const fs::path& to) {
  const fs::path source = fs::weakly_canonical(from), target = fs::weakly_canonical(to);
  const auto inside = [](const fs::path& path, const fs::path& folder) {
    return std::mismatch(folder.begin(), folder.end(), path.begin(), path.end()).first == folder.end();
  };
  if (inside(target, source) || inside(source, target))
    throw Error(ExitCode::input, fmt::format("{} is in its own source {}", to.string(), from.string()),
                "a conversion reads one model and writes another", "give a path outside of it");
}

void check_nothing_lost(const fs::path& to, bool overwrite) {
  if (!fs::exists(to) || overwrite) return;
  throw Error(ExitCode::input, fmt::format("{} exists", to.string()), "its content would be lost",
              "--overwrite replaces it; or give another name");
}

void note_on_stripes(const fs::path& to) {
  constexpr long lustre = 0x0BD00BD3;
  struct statfs system {};
  const fs::path folder = to.parent_path().empty() ? "." : to.parent_path();
  if (::statfs(folder.c_str(), &system) == 0 && system.f_type == lustre)
    fmt::print(stderr,
               "maniple: convert: note: on Lustre many readers need many stripes: lfs setstripe -c -1 {}\n",
               folder.string());
}

// The target of a way back is replaced with all that is in it.
void check_folder(const fs::path& to) {
  if (!fs::exists(to) || fs::exists(to / "config.json") || (fs::is_directory(to) && fs::is_empty(to))) return;
  throw Error(ExitCode::input, fmt::format("{} is no model", to.string()),
              "--overwrite replaces models alone", "give another name");
}

// Folders of downloads and the like.
void note_on_folders(const ModelFiles& files) {
  if (const std::vector<std::string> names = left_behind(files); !names.empty())
    fmt::print(stderr, "maniple: convert: note: left out, because they are no files: {}\n",
               fmt::join(names, ", "));
}

}  // namespace

ExitCode run_convert(const ConvertOptions& options) {
  const auto begin = std::chrono::steady_clock::now();
  const auto report = [&](const std::string& what) {
    const std::chrono::duration<double> time = std::chrono::steady_clock::now() - begin;
    fmt::print(stderr, "maniple: convert: {} in {:.1f} s\n", what, time.count());
  };
  if (options.check) {
    check_packed(options.from, options.threads);
    report(options.from.string() + ": all checksums hold");
    return ExitCode::complete;
  }
  const ModelFiles files(options.from);
  check_place(options.from, options.to);
  check_nothing_lost(options.to, options.overwrite.asked);
  if (files.packed()) {
    check_folder(options.to);
    unpack_model(files, options.to, options.threads);
  } else {
    if (fs::is_directory(options.to))
      throw Error(ExitCode::input, fmt::format("{} is a directory", options.to.string()),
                  "a packed model is one file", "give the name of a file that ends in .h5");
    note_on_stripes(options.to);
    note_on_folders(files);
    pack_model(files, options.to, {options.shards, options.align, options.threads, options.verify});
  }
  report(fmt::format("{} -> {}", options.from.string(), options.to.string()));
  return ExitCode::complete;
}

}  // namespace maniple
