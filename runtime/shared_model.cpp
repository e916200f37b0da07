#include <runtime/checkpoint/loading/known_tensors.hpp>
#include <runtime/checkpoint/quantization/scheme.hpp>
#include <runtime/collective_phase.hpp>
#include <runtime/shared_model.hpp>

namespace maniple {

namespace {

void set_quantize(ModelConfig& config, WeightFormat format) {
  if (!config.quantization.empty())
    throw Error(ExitCode::usage,
                fmt::format("`quantize` is for models in floating point, and this one is quantised ({})",
                            scheme_of(config)->description()),
                "its weights were rounded once", "leave it out: the checkpoint says how it is read");
  config.quantize = format;
}

}  // namespace

SharedModel share_model(World& world, const std::filesystem::path& path,
                        std::optional<WeightFormat> quantize) {
  constexpr std::string_view names[] = {"config.json", "generation_config.json"};
  SharedModel model;
  std::string config, generation_config = "{}";  // a model may lack it
  const auto parse = [&] {
    model.config = parse_model_config(config, (path / names[0]).string());
    if (quantize) set_quantize(model.config, *quantize);
    model.generation_config = parse_generation_config(generation_config, (path / names[1]).string());
  };
  collective_phase(world, [&] {
    if (world.rank() != 0) return;
    model.files.emplace(path);
    if (!model.files->has(names[0]))
      throw Error(ExitCode::input, fmt::format("{} has no {}", model.files->where(), names[0]),
                  "maniple reads models in the layout of Hugging Face: config.json and safetensors files (no "
                  "GGUF files, no adapters)",
                  "look whether the download is complete");
    config = model.files->text(names[0]);
    if (model.files->has(names[1])) generation_config = model.files->text(names[1]);
    parse();
  });
  world.broadcast_bytes(config, 0);
  world.broadcast_bytes(generation_config, 0);
  if (world.rank() != 0) parse();
  return model;
}

WeightIndex share_index(World& world, const SharedModel& model) {
  WeightIndex index;
  std::string bytes;
  collective_phase(world, [&] {
    if (!model.files) return;
    index = read_index(*model.files);
    read_known_tensors(index, model.config);
    bytes = to_bytes(index);
  });
  world.broadcast_bytes(bytes, 0);
  return model.files ? index : index_from(bytes);
}

Tokenizer read_tokenizer(const ModelFiles& files) {
  constexpr std::string_view name = "tokenizer.json";
  if (!files.has(name)) fail(ExitCode::input, "tokenizer: cannot read '{}'", files.where(name));
  return Tokenizer::from_json(files.text(name, uint64_t{1} << 30), files.where(name));
}

}  // namespace maniple
