#include <launch/options/option_names.hpp>

#include <boost/algorithm/string/replace.hpp>

#include <array>
#include <utility>

namespace maniple {
namespace {

constexpr std::array<std::pair<std::string_view, std::string_view>, 21> option_of_field = {{
    {"`backend`", "--backend"},
    {"`block_size`", "--block-size"},
    {"`context_size`", "--cp"},
    {"`dtype`", "--dtype"},
    {"`eager`", "--eager"},
    {"`expert_size`", "--ep"},
    {"`gpu_memory_utilization`", "--gpu-memory-utilization"},
    {"`kv_cache_dtype`", "--kv-cache-dtype"},
    {"`kv_memory`", "--kv-memory"},
    {"`max_model_len`", "--max-model-len"},
    {"`max_num_batched_tokens`", "--max-num-batched-tokens"},
    {"`max_num_seqs`", "--max-num-seqs"},
    {"`overwrite`", "--overwrite"},
    {"`pipeline_layers`", "--pp-layers"},
    {"`pipeline_size`", "--pp"},
    {"`quantize`", "--quantize"},
    {"`repro`", "--repro"},
    {"`tensor_size`", "--tp"},
    {"`transport`", "--transport"},
    {"`gpus_a_node`", "--gpus-per-node"},  // srun's
    {"`ranks_a_node`", "--ntasks-per-node"},
}};

}  // namespace

std::string with_option_names(std::string text) {
  for (const auto& [field, option] : option_of_field) boost::algorithm::replace_all(text, field, option);
  return text;
}

}  // namespace maniple
