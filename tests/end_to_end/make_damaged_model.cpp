// make_damaged_model MODEL TARGET DAMAGE: writes a model.safetensors with one error into TARGET. DAMAGE nan:TENSOR:N or inf:TENSOR:N: the
// N-th number of a tensor is none (e4m3 has no infinity).
#include <runtime/checkpoint/safetensors.hpp>
#include <support/safetensors_writer.hpp>

#include <cstring>
#include <functional>
#include <iostream>
#include <map>

namespace maniple {
namespace {

namespace fs = std::filesystem;
using Tensors = std::vector<TensorToWrite>;

Tensors read_all(const fs::path& path) {
  const InputFile file(path);
  Tensors tensors;
  for (const auto& [name, stored] : read_safetensors_header(file)) {
    const TensorInfo& info = stored.info;
    TensorToWrite& tensor =
        tensors.emplace_back(name, info.stored_type, info.shape, std::vector<std::byte>(info.byte_size));
    file.read(stored.offset, tensor.bytes);
  }
  return tensors;
}

TensorToWrite& named(Tensors& tensors, const std::string& ending) {
  for (TensorToWrite& tensor : tensors)
    if (tensor.name.ends_with(ending)) return tensor;
  throw std::runtime_error("no tensor " + ending);
}

// Damages that leave a well-formed file.
const std::map<std::string, std::function<void(Tensors&)>> wrong_tensors = {
    {"missing",
     [](Tensors& tensors) {
       std::erase_if(tensors,
                     [](const auto& tensor) { return tensor.name == "model.layers.1.mlp.up_proj.weight"; });
     }},
    {"renamed",
     [](Tensors& tensors) {
       for (TensorToWrite& tensor : tensors)
         if (tensor.name.starts_with("model.layers.")) tensor.name.replace(0, 12, "transformer.h");
     }},
    {"extra",
     [](Tensors& tensors) {
       tensors.push_back({"model.layers.7.mlp.gate.weight", "BF16", {2}, std::vector<std::byte>(4)});
     }},
    {"misshapen",
     [](Tensors& tensors) {
       std::swap(named(tensors, "layers.0.mlp.down_proj.weight").shape[0],
                 named(tensors, "layers.0.mlp.down_proj.weight").shape[1]);
     }},
    {"mistyped", [](Tensors& tensors) { named(tensors, "layers.0.mlp.down_proj.weight").dtype = "I16"; }},
};

std::string nested(size_t depth) {
  return R"({"a":)" + std::string(depth, '[') + std::string(depth, ']') + "}";
}

// Headers that a reader must not trust; 16 bytes of data follow each.
const std::map<std::string, std::string> hostile_headers = {
    {"deep", nested(1'000'000)},
    {"not-json", "certainly not JSON"},
    {"beyond", R"({"a":{"dtype":"BF16","shape":[8],"data_offsets":[1099511627776,1099511627792]}})"},
    {"backward", R"({"a":{"dtype":"BF16","shape":[8],"data_offsets":[16,0]}})"},
    {"overlap",
     R"({"a":{"dtype":"BF16","shape":[8],"data_offsets":[0,16]},"b":{"dtype":"BF16","shape":[8],"data_offsets":[0,16]}})"},
    {"product", R"({"a":{"dtype":"F32","shape":[4611686018427387904,4],"data_offsets":[0,16]}})"},
};

struct NumberThatIsNone {
  size_t bytes;
  uint32_t nan, infinity;
};
const std::map<std::string, NumberThatIsNone> not_finite = {{"F32", {4, 0x7fc00000, 0xff800000}},
                                                            {"BF16", {2, 0x7fc0, 0xff80}},
                                                            {"F16", {2, 0x7e00, 0xfc00}},
                                                            {"F8_E4M3", {1, 0x7f, 0xff}}};

void replace_number(Tensors& tensors, const std::string& damage) {
  const size_t colon = damage.rfind(':');
  TensorToWrite& tensor = named(tensors, damage.substr(4, colon - 4));
  const auto& [bytes, nan, infinity] = not_finite.at(tensor.dtype);
  const uint32_t bits = damage.starts_with("nan") ? nan : infinity;
  std::memcpy(&tensor.bytes.at(bytes * std::stoul(damage.substr(colon + 1))), &bits, bytes);
}

void write_damaged(const fs::path& model, const fs::path& target, const std::string& damage) {
  const fs::path to = target / "model.safetensors";
  if (const auto header = hostile_headers.find(damage); header != hostile_headers.end())
    return write_raw_safetensors(to, header->second, std::string(16, '\0'));
  Tensors tensors = read_all(model / "model.safetensors");
  if (damage.starts_with("nan:") || damage.starts_with("inf:"))
    replace_number(tensors, damage);
  else
    wrong_tensors.at(damage)(tensors);
  write_safetensors(to, tensors);
}

}  // namespace
}  // namespace maniple

int main(int count, char** arguments) {
  if (count != 4) return 64;
  try {
    maniple::write_damaged(arguments[1], arguments[2], arguments[3]);
  } catch (const std::exception& error) {
    std::cerr << arguments[3] << ": " << error.what() << '\n';
    return 1;
  }
}
