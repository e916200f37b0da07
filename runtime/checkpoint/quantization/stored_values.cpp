#include <kernels/reference/rows.hpp>
#include <runtime/checkpoint/quantization/stored_values.hpp>

#include <algorithm>
#include <cstring>
#include <numeric>

namespace maniple {

const IndexedTensor* stored_part(const WeightIndex* index, const std::string& module, std::string_view part) {
  if (!index) return nullptr;
  const auto found = index->tensors.find(fmt::format("{}.{}", module, part));
  return found == index->tensors.end() ? nullptr : &found->second;
}

bool is_stored(const WeightIndex& index, const std::string& module) {
  constexpr std::string_view others[] = {"bias", "k_scale", "v_scale", "output_scale"};
  const std::string prefix = module + ".";
  for (auto found = index.tensors.lower_bound(prefix);
       found != index.tensors.end() && found->first.starts_with(prefix); ++found) {
    const std::string_view part = std::string_view(found->first).substr(prefix.size());
    if (part.find('.') == part.npos && std::ranges::count(others, part) == 0) return true;
  }
  return false;
}

bool is_floating(const TensorInfo& tensor) {
  return tensor.dtype == DType::fp32 || tensor.dtype == DType::bf16 || tensor.dtype == DType::fp16;
}

bool is_scalar(const TensorInfo& tensor) {
  return std::ranges::all_of(tensor.shape, [](int64_t size) { return size == 1; });
}

float scalar_of(const IndexedTensor& tensor) {
  require(is_floating(tensor.info) && tensor.value.size() == size_of(*tensor.info.dtype), "a known scalar");
  return reference::read(view_of(tensor.value.data(), *tensor.info.dtype, {1}), 0, 1)[0];
}

std::vector<int32_t> order_of(const IndexedTensor& g_idx, int64_t inputs, int64_t group,
                              const std::string& name) {
  std::vector<int32_t> groups(static_cast<size_t>(inputs));
  if (g_idx.value.size() != groups.size() * sizeof(int32_t)) return {};  // check_names refuses its shape
  std::memcpy(groups.data(), g_idx.value.data(), g_idx.value.size());
  if (std::ranges::count(groups, -1) == inputs) return {};
  const int64_t size = group < 0 ? inputs : group, count = (inputs + size - 1) / size;
  std::vector<int64_t> members(static_cast<size_t>(count));
  for (int64_t input = 0; input < inputs; ++input) {
    const int32_t of = groups[static_cast<size_t>(input)];
    if (of < 0 || of >= count)
      refuse_files("tensor {} says that input {} is in group {}; there are {} groups of {}", name, input, of,
                   count, size);
    ++members[static_cast<size_t>(of)];
  }
  for (int64_t of = 0; of < count; ++of)
    if (const int64_t wanted = std::min(size, inputs - of * size); members[static_cast<size_t>(of)] != wanted)
      refuse_files("tensor {} gives group {} {} inputs instead of {}", name, of,
                   members[static_cast<size_t>(of)], wanted);
  if (std::ranges::is_sorted(groups)) return {};
  std::vector<int32_t> order(groups.size());
  std::iota(order.begin(), order.end(), 0);
  std::ranges::stable_sort(order, {}, [&](int32_t input) { return groups[static_cast<size_t>(input)]; });
  return order;
}

}  // namespace maniple
