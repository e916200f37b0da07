// Tokenizers written out as JSON for tests.
#pragma once

#include <fstream>
#include <nlohmann/json.hpp>
#include <runtime/checkpoint/token_settings.hpp>
#include <runtime/tokenizer/tokenizer.hpp>
#include <string>
#include <support/test_data.hpp>

namespace maniple::testing {

inline const std::vector<std::string> families = {"qwen-style",       "llama3-style", "mistral-v1-style",
                                                  "mistral-v3-style", "kimi-style",   "harmony-style"};

inline nlohmann::json read_json(const std::filesystem::path& path) {
  return nlohmann::json::parse(std::ifstream(path));
}
inline std::filesystem::path family_file(const std::string& family, const std::string& name) {
  return test_data() / "tokenizers" / family / name;
}
inline Tokenizer family_tokenizer(const std::string& family) {
  const ModelFiles files(family_file(family, ""));
  return files.has("tokenizer.json")
             ? Tokenizer::from_json(files.text("tokenizer.json"))
             : Tokenizer::from_tiktoken(files.text("tiktoken.model"), "", read_token_settings(files));
}

inline Tokenizer build(const nlohmann::json& json) { return Tokenizer::from_json(json.dump()); }

// a=0 b=1 c=2 d=3 space=4 _=5 ab=6 bc=7 cd=8 abc=9, with merges (b c), (a b), (ab c), (c d) in this order; no
// other component.
inline nlohmann::json small_tokenizer() {
  return nlohmann::json::parse(R"({
    "version": "1.0", "truncation": null, "padding": null, "added_tokens": [], "normalizer": null, "pre_tokenizer": null,
    "post_processor": null, "decoder": {"type": "Fuse"},
    "model": {"type": "BPE", "unk_token": null, "fuse_unk": false, "byte_fallback": false, "ignore_merges": false,
              "vocab": {"a": 0, "b": 1, "c": 2, "d": 3, " ": 4, "_": 5, "ab": 6, "bc": 7, "cd": 8, "abc": 9},
              "merges": [["b", "c"], ["a", "b"], ["ab", "c"], ["c", "d"]]}})");
}

inline nlohmann::json added_token(const std::string& content, int id) {
  return {{"content", content}, {"id", id},        {"single_word", false},
          {"lstrip", false},    {"rstrip", false}, {"normalized", false},
          {"special", true}};
}

using Ids = std::vector<int32_t>;

}  // namespace maniple::testing
