#include <runtime/checkpoint/loading/known_tensors.hpp>
#include <runtime/checkpoint/loading/language_model.hpp>
#include <runtime/checkpoint/loading/own_head.hpp>
#include <runtime/checkpoint/loading/refused_models.hpp>
#include <runtime/checkpoint/quantization/unexplained.hpp>
#include <runtime/checkpoint/token_settings.hpp>
#include <runtime/collective_phase.hpp>
#include <runtime/shared_model.hpp>

namespace maniple {

namespace {

constexpr std::string_view tokenizer_name = "tokenizer.json", tiktoken_name = "tiktoken.model";

void set_quantize(ModelConfig& config, WeightFormat format) {
  if (!config.quantization.empty())
    throw Error(ExitCode::usage,
                fmt::format("`quantize` is for models in floating point, and this one is quantised ({})",
                            scheme_of(config)->description()),
                "its weights were rounded once", "leave it out: the checkpoint says how it is read");
  config.quantize = format;
}

// Reads the index already where the model is tied: what is stored decides whether it is. Errors are told when the weights are read.
void settle_head(SharedModel& model) try {
  if (!model.config.tie_word_embeddings) return;
  WeightIndex index = read_language_model(*model.files, model.config);
  if (std::string warning = settle_head(model.config, index); !warning.empty())
    model.warnings.push_back(std::move(warning));
  model.index = std::move(index);
} catch (const Error&) {
}

}  // namespace

SharedModel share_model(World& world, const EngineOptions& options) {
  constexpr std::string_view names[] = {"config.json", "generation_config.json"};
  SharedModel model;
  std::string config, generation_config = "{}", tied;  // a model may lack the second
  const auto parse = [&] {
    const std::filesystem::path folder =
        model.files ? std::filesystem::path(model.files->where()) : options.model;
    model.config = parse_model_config(config, (folder / names[0]).string());
    if (options.quantize) set_quantize(model.config, *options.quantize);
    model.generation_config = parse_generation_config(generation_config, (folder / names[1]).string());
  };
  collective_phase(world, [&] {
    if (world.rank() != 0) return;
    model.files.emplace(options.model);
    refuse_mistral_layout(*model.files);
    if (!model.files->has(names[0]))
      throw Error(ExitCode::input, fmt::format("{} has no {}", model.files->where(), names[0]),
                  "maniple reads models in the layout of Hugging Face: config.json and safetensors files (no "
                  "GGUF files, no adapters)",
                  "look whether the download is complete");
    config = with_settings_beside(*model.files, model.files->text(names[0]));
    if (model.files->has(names[1])) generation_config = model.files->text(names[1]);
    parse();
    model.warnings = model.generation_config.warnings;
    if (!options.random_weights) settle_head(model);
    if (model.config.tie_word_embeddings) tied = "tied";
  });
  for (std::string* text : {&config, &generation_config, &tied}) world.broadcast_bytes(*text, 0);
  if (world.rank() != 0) {
    parse();
    model.config.tie_word_embeddings = !tied.empty();
  }
  model.scheme = scheme_of(model.config);
  return model;
}

WeightIndex share_index(World& world, const SharedModel& model) {
  WeightIndex index;
  std::string bytes;
  collective_phase(world, [&] {
    if (!model.files) return;
    index = model.index ? *model.index : read_language_model(*model.files, model.config);
    read_known_tensors(index, model.config, *model.scheme);
    bytes = to_bytes(index);
  });
  world.broadcast_bytes(bytes, 0);
  return model.files ? index : index_from(bytes);
}

bool has_tokenizer(const ModelFiles& files) { return files.has(tokenizer_name) || files.has(tiktoken_name); }

Tokenizer read_tokenizer(const ModelFiles& files) {
  const bool ranked = !files.has(tokenizer_name) && files.has(tiktoken_name);
  const std::string_view name = ranked ? tiktoken_name : tokenizer_name;
  if (!files.has(name)) fail(ExitCode::input, "tokenizer: cannot read '{}'", files.where(name));
  const std::string text = files.text(name, uint64_t{1} << 30);
  const TokenSettings settings = read_token_settings(files);
  return ranked ? Tokenizer::from_tiktoken(text, files.where(name), settings)
                : Tokenizer::from_json(text, files.where(name), settings);
}

}  // namespace maniple
