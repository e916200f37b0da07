// Stored tensors of a module, and the values of those that every rank knows.
#pragma once

#include <kernels/support/check.hpp>
#include <runtime/checkpoint/weight_index.hpp>

#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace maniple {

// `<module>.<part>`, or null; null without an index.
const IndexedTensor* stored_part(const WeightIndex* index, const std::string& module, std::string_view part);
// True if the index holds a tensor of the module that is no bias and no scale of keys and values.
bool is_stored(const WeightIndex& index, const std::string& module);
// F32, F16 or BF16.
bool is_floating(const TensorInfo& tensor);
// [], [1] or [1, 1].
bool is_scalar(const TensorInfo& tensor);

// Throws Error (input) with what the tensors hold that config.json does not say.
template <typename... Args>
[[noreturn]] void refuse_files(fmt::format_string<Args...> format, Args&&... args) {
  throw Error(ExitCode::input, fmt::format(format, std::forward<Args>(args)...),
              "config.json says how the numbers of the tensors are meant",
              "get config.json and all *.safetensors files of one model");
}

// The value of a scalar whose bytes are known.
float scalar_of(const IndexedTensor& tensor);

// The inputs sorted by group, by the stored group of each; empty if they are sorted already, or if none has a group (-1).
// Throws Error (input) unless each group has `group` inputs, the last one what is left.
std::vector<int32_t> order_of(const IndexedTensor& g_idx, int64_t inputs, int64_t group,
                              const std::string& name);

}  // namespace maniple
