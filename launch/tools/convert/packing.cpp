#include <launch/tools/convert/packing.hpp>
#include <layers/models/model.hpp>
#include <runtime/checkpoint/extents.hpp>
#include <runtime/checkpoint/loading/known_tensors.hpp>
#include <runtime/checkpoint/loading/language_model.hpp>
#include <runtime/checkpoint/loading/model_config.hpp>
#include <runtime/checkpoint/loading/own_head.hpp>
#include <runtime/checkpoint/loading/weight_loader.hpp>

#include <algorithm>
#include <limits>
#include <set>

namespace maniple {

namespace fs = std::filesystem;

namespace {

enum class Axis { none, rows, columns };
using Axes = std::map<std::string, Axis, std::less<>>;  // by tensor; absent: none

// Of the first of the tensor ranks; the largest number of them, up to `most`, that the model divides by.
std::unique_ptr<Model> largest_division(const ModelConfig& config, int most) {
  for (int size = most; size > 1; --size) try {
      RankPlan plan;
      plan.grid.tensor = size;
      plan.groups = groups_of(plan.grid, 0);
      return make_model(config, plan);
    } catch (const Indivisible&) {
    }
  return nullptr;
}

Axes axes_of(const ModelConfig& config, const WeightIndex& index, int shards) {
  const std::unique_ptr<Model> part = largest_division(config, shards);
  const std::unique_ptr<const QuantScheme> scheme = scheme_of(config);
  check_names(*make_stored_model(config, {}, index), index, *scheme);
  Axes axes;
  if (!part) return axes;
  name_as_stored(*part, index);
  for (const StoredBox& box : needs_of(*part, index, *scheme)) {
    const StoredMatrix matrix = matrix_of(index.tensors.at(box.tensor).info);
    if (box.columns.size() < matrix.columns)
      axes[box.tensor] = Axis::columns;
    else if (box.rows.size() < matrix.rows)
      axes.emplace(box.tensor, Axis::rows);
  }
  return axes;
}

// A chunk has less than 4 GiB; that is HDF5's limit.
PackedTensor cut(const TensorInfo& tensor, Axis axis, int shards) {
  const StoredMatrix matrix = matrix_of(tensor);
  PackedTensor packed{matrix.rows, matrix.columns, {}, {}};
  if (tensor.shape.size() > 2 && axis != Axis::none)  // whole experts
    packed.chunk_rows = (tensor.shape[0] + shards - 1) / shards * tensor.shape[1];
  if (tensor.shape.size() == 2 && axis == Axis::rows) packed.chunk_rows = (matrix.rows + shards - 1) / shards;
  if (tensor.shape.size() == 2 && axis == Axis::columns)
    packed.chunk_columns = (matrix.columns + shards - 1) / shards;
  const uint64_t bytes = static_cast<uint64_t>(packed.chunk_rows * packed.chunk_columns) * matrix.item_bytes;
  if (bytes >= std::numeric_limits<uint32_t>::max()) packed = {matrix.rows, matrix.columns, {}, {}};
  if (matrix.rows == 0) return packed;
  const int64_t down = (matrix.rows + packed.chunk_rows - 1) / packed.chunk_rows;
  const int64_t across = (matrix.columns + packed.chunk_columns - 1) / packed.chunk_columns;
  packed.offsets = std::vector<int64_t>(static_cast<size_t>(down * across));
  packed.hashes = std::vector<uint64_t>(packed.offsets.size());
  return packed;
}

// What no reader would take is not written. The longest text has more digits, and not more values.
void check_limits(const PackedIndex& index, const std::string& where) {
  packed_index_from(to_json(index), "the index of " + where, std::numeric_limits<uint64_t>::max());
  if (const uint64_t bytes = longest_json(index); bytes > max_index_bytes)
    throw Error(ExitCode::input, fmt::format("the index of {} would have {} bytes", where, bytes),
                fmt::format("at most {} are possible", max_index_bytes), "fewer --shards make it shorter");
}

// Numbers in a name count as numbers: layer 10 comes after layer 9.
std::string sort_key(const std::string& name) {
  constexpr size_t digits = 20;
  std::string key;
  for (size_t i = 0; i < name.size();) {
    size_t end = i;
    while (end < name.size() && name[end] >= '0' && name[end] <= '9') ++end;
    if (end > i && end - i < digits) key.append(digits - (end - i), '0');
    key.append(name, i, std::max(end - i, size_t{1}));
    i = std::max(end, i + 1);
  }
  return key;
}

// A name as one link of HDF5, in which a slash and names of dots are paths.
std::string escaped(const std::string& name) {
  const bool dots = name.find_first_not_of('.') == name.npos;
  std::string text;
  for (const char c : name)
    text += c == '/' ? "%2F" : c == '%' ? "%25" : c == '.' && dots ? "%2E" : std::string(1, c);
  return text;
}

}  // namespace

std::string link_of(const std::string& file, const std::string& name, bool listed) {
  return listed ? "tensors/" + escaped(name) : "unlisted/" + escaped(file) + "/" + escaped(name);
}

std::string link_of_file(const std::string& name) {
  return "files/" + (name.starts_with(templates_folder) ? escaped(name) : name);
}

std::vector<std::string> left_behind(const ModelFiles& files) {
  std::vector<std::string> names = files.names();
  std::erase_if(names, [&](const std::string& name) { return fs::is_regular_file(files.path(name)); });
  return names;
}

Packing packing_of(const ModelFiles& files, int shards) {
  WeightIndex index = read_index(files);
  Packing packing;
  Axes axes;
  if (!files.has("config.json"))
    throw Error(ExitCode::input, fmt::format("{} has no config.json", files.where()),
                "it is no model in the layout of Hugging Face", "look whether the download is complete");
  try {
    ModelConfig config = read_model_config(files);
    packing.architecture = config.architecture;
    WeightIndex settled = index;
    keep_language_model(settled, config);
    read_known_tensors(settled, config, *scheme_of(config));
    settle_head(config, settled);
    axes = axes_of(config, settled, shards);
  } catch (const Error& error) {
    packing.note = error.what();
  }
  std::vector<std::string> indexed;
  std::set<std::string> listed_empty;  // their file is not known
  for (const IndexedFile& file : index.files) indexed.push_back(file.path.filename().string());
  for (const std::string& name : files.names()) {
    if (!fs::is_regular_file(files.path(name))) continue;
    if (std::ranges::count(indexed, name) == 0) {
      packing.index.files[name] = {0, files.size(name), 0};
      continue;
    }
    const InputFile file = files.open(name);
    PackedTensors& packed = packing.index.safetensors[name];
    packed.size = file.size();
    packed.header.size = header_bytes(file);
    const auto number = static_cast<uint32_t>(std::ranges::find(indexed, name) - indexed.begin());
    for (auto& [tensor, stored] : read_safetensors_header(file)) {
      const auto found = index.tensors.find(tensor);
      const bool listed = found != index.tensors.end() &&
                          (found->second.extents.empty() ? listed_empty.insert(tensor).second
                                                         : found->second.extents[0].file == number);
      const auto axis = axes.find(plain_name(tensor));
      packed.tensors[tensor] =
          cut(stored.info, listed && axis != axes.end() ? axis->second : Axis::none, shards);
      packing.tensors.push_back({name, tensor, link_of(name, tensor, listed), std::move(stored)});
    }
  }
  check_limits(packing.index, files.where());
  std::ranges::stable_sort(packing.tensors, {},
                           [](const TensorToPack& tensor) { return sort_key(tensor.name); });
  return packing;
}

}  // namespace maniple
