// Any bytes as a config.json: refused with an Error, or a config whose sizes the decoder can rely on.
#include <kernels/support/check.hpp>
#include <runtime/checkpoint/generation_config.hpp>
#include <runtime/checkpoint/loading/model_config.hpp>

namespace {

template <typename Action>
void must_be_refused_or_work(Action action) {
  try {
    action();
  } catch (const maniple::Error& error) {
    if (error.code() != maniple::ExitCode::input) throw;
  }
}

void check(const maniple::ModelConfig& config) {
  maniple::require(config.num_layers() > 0 && config.hidden_size > 0 && config.vocab_size > 0,
                   "sizes are positive");
  maniple::require(config.head_dim > 0 && config.head_dim % 2 == 0,
                   "the rotation pairs the elements of a head");
  maniple::require(config.num_heads % config.num_kv_heads == 0, "kv heads divide heads");
  maniple::require(config.rms_norm_eps > 0 && config.rotaries[0].theta >= 1 && config.rotaries[0].factor >= 1,
                   "numbers are in range");
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* bytes, size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(bytes), size);
  must_be_refused_or_work([&] { check(maniple::parse_model_config(text, "config.json")); });
  must_be_refused_or_work([&] { maniple::parse_generation_config(text, "generation_config.json"); });
  return 0;
}
