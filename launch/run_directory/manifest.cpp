#include <kernels/support/check.hpp>
#include <launch/run_directory/durable_file.hpp>
#include <launch/run_directory/manifest.hpp>

#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <charconv>

namespace maniple {

namespace fs = std::filesystem;
using nlohmann::ordered_json;

namespace {

constexpr const char* file_name = "manifest.json";

[[noreturn]] void refuse(const fs::path& directory, const std::string& problem) {
  throw Error(ExitCode::input, fmt::format("{} {}", (directory / file_name).string(), problem),
              "it says which run this directory belongs to", "give another run directory");
}

// How to go on after a module upgrade or on other nodes; empty for other fields.
std::string remedy_of(const std::string& field, const std::string& there, const std::string& here) {
  if (field == "version")
    return there.empty() ? "the older maniple that began it"
                         : fmt::format("maniple {}, which began it (module load)", there);
  if (field != "instruction_path" || there.empty()) return {};
  const auto is_backend = [](const std::string& path) { return path == "cuda" || path == "reference"; };
  if (is_backend(there)) return fmt::format("--backend {}, as it was begun", there);
  return fmt::format("{}--cpu-path {}, as it was begun, on nodes that have it (sbatch --constraint=NAME)",
                     is_backend(here) ? "--backend cpu " : "", there);
}

}  // namespace

std::optional<Manifest> Manifest::read(const fs::path& directory) {
  std::error_code ignored;
  if (fs::exists(directory, ignored) && !fs::is_directory(directory, ignored))
    throw Error(ExitCode::input, fmt::format("{} is not a directory", directory.string()),
                "a run directory holds the results of a run", "give --run-dir a directory, or a new name");
  const std::optional<std::string> text = read_optional_file(directory / file_name);
  if (!text) return std::nullopt;
  const ordered_json object = ordered_json::parse(*text, nullptr, /*allow_exceptions=*/false);
  if (!object.is_object()) refuse(directory, "is not a JSON object");
  Manifest manifest;
  for (const auto& [name, value] : object.items()) {
    if (!value.is_string()) refuse(directory, fmt::format("holds a {} that is not text", name));
    manifest.set(name, value);
  }
  return manifest;
}

void Manifest::write(const fs::path& directory) const {
  ordered_json object;
  for (const auto& [name, value] : fields_) object[name] = value;
  replace_file(directory / file_name, object.dump(2) + '\n');
}

void Manifest::set(std::string name, std::string value) {
  fields_.emplace_back(std::move(name), std::move(value));
}

const std::string* Manifest::find(std::string_view name) const {
  const auto field = std::ranges::find(fields_, name, [](const auto& pair) { return pair.first; });
  return field == fields_.end() ? nullptr : &field->second;
}

uint64_t Manifest::number(std::string_view name) const {
  const std::string* text = find(name);
  uint64_t value = 0;
  const char* end = text ? text->data() + text->size() : nullptr;
  if (!text || std::from_chars(text->data(), end, value).ptr != end)
    fail(ExitCode::input, "{} has no number \"{}\"; give another run directory", file_name, name);
  return value;
}

Manifest::Differences Manifest::differences(const Manifest& wanted,
                                            std::initializer_list<std::string_view> except) const {
  Differences found;
  const auto compare = [&](const std::string& name) {
    const std::string* here = find(name);
    const std::string* there = wanted.find(name);
    if (std::ranges::count(except, name) > 0 || (here && there && *here == *there)) return;
    const char* missing = name == "version" ? "an older version" : "nothing";
    found.text +=
        fmt::format("\n    {}: {} there, {} here", name, here ? *here : missing, there ? *there : missing);
    found.remedies.push_back(remedy_of(name, here ? *here : "", there ? *there : ""));
  };
  for (const auto& [name, value] : fields_) compare(name);
  for (const auto& [name, value] : wanted.fields_)
    if (!find(name)) compare(name);
  return found;
}

void Manifest::check_same(const Manifest& wanted, const fs::path& directory,
                          std::initializer_list<std::string_view> except) const {
  const auto [found, remedies] = differences(wanted, except);
  if (found.empty()) return;
  const bool by_machine_alone = std::ranges::none_of(remedies, &std::string::empty);
  throw Error(ExitCode::input, fmt::format("{} belongs to another run:{}", directory.string(), found),
              "the results of two different runs would be mixed",
              fmt::format("give another --run-dir, or {}",
                          by_machine_alone ? fmt::format("{}", fmt::join(remedies, ", and "))
                                           : "the options, input and model of that run"));
}

}  // namespace maniple
