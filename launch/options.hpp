// The command line. Everything wrong with it is an Error (usage) that names the nearest right thing.
#pragma once

#include <launch/sampling_fields.hpp>
#include <runtime/engine.hpp>

#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <variant>

namespace maniple {

struct GenerateOptions {
  EngineOptions engine;        // its threads and CPUs are preflight's
  std::optional<int> threads;  // absent: from the CPUs of the rank
  std::optional<std::string> prompt;
  std::optional<std::string> in;   // a path, or "-" for stdin; exactly one of prompt and in is there
  std::optional<std::string> out;  // a path, or "-" for stdout
  SamplingFields sampling;         // without seed: that of a request is made from the run's
  std::optional<uint64_t> seed;    // of the run
};

struct TokenizeOptions {
  std::filesystem::path model;
  std::string in;
  std::string out = "-";
  bool decode = false;
  bool chat = false;     // lines are chat requests; neither with decode nor with special
  bool special = false;  // encode: apply the tokenizer's template; decode: keep special tokens in the text
};

// Help or version: to be printed on stdout.
struct Notice {
  std::string text;
};

using CommandLine = std::variant<Notice, GenerateOptions, TokenizeOptions>;

// args: without the program's name. Reads the file named by --config; fails (input) when that cannot be
// opened.
CommandLine parse_arguments(std::span<const std::string> args);

// "512", "64K" and "64KiB" (2^10), "64KB" (10^3), up to T. Fails (usage) on anything else.
size_t parse_bytes(const std::string& text);

}  // namespace maniple
