#include <launch/options/grammar.hpp>
#include <launch/tools/convert/model_writer.hpp>
#include <launch/tools/convert/round_trip.hpp>
#include <launch/tools/tools.hpp>

#include <fmt/ranges.h>

#include <sys/vfs.h>

#include <algorithm>
#include <chrono>

#include <bit>

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

Parsed<ConvertOptions> parse_convert(Grammar& grammar, Words args, const Launch& launch) {
  ConvertOptions options;
  std::vector<std::string> words;
  grammar.take_words(words);
  grammar.group("Convert");
  grammar.add("check", on(options.check),
              "read one packed model and compare all its checksums; writes nothing");
  grammar.add("shards", number(options.shards, 1, 1024).by_default("8"),
              "parts of a tensor that tensor ranks share: their number divides by that of the tensor ranks");
  grammar.add("align", bytes(options.align).by_default("4K"), "parts begin at multiples of it");
  grammar.add("threads", number(options.threads, 1U, 1024U),
              "that copy [default: of the machine, at most 8]");
  grammar.add("verify", on(options.verify), "read the packed model again before it gets its name");
  grammar.add("overwrite", on(options.overwrite.asked), "the target may exist: it is replaced at the end");
  if (const auto help = grammar.parse(args)) return Notice{*help};
  if (words.size() != (options.check ? 1 : 2))
    refuse(options.check ? "--check takes one packed model" : "convert takes a model and its target",
           options.check ? "maniple convert --check model.h5"
                         : "maniple convert DIR model.h5, or maniple convert model.h5 DIR");
  if (!std::has_single_bit(options.align) || options.align > size_t{64} << 20)
    refuse(fmt::format("--align ({}) must be a power of two up to 64M", options.align), "--align 4K");
  options.from = words[0];
  if (!options.check) options.to = words[1];
  if (options.to.filename().empty()) options.to = options.to.parent_path();  // back/
  options.overwrite.requeued = launch.requeued;
  return options;
}

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
