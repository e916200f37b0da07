#include <kernels/support/number_text.hpp>
#include <layers/model_config.hpp>

#include <fmt/format.h>

#include <cmath>

namespace maniple {
namespace {

std::string shared_text(const ExpertsConfig& experts) {
  if (experts.shared_width == 0) return "";
  if (experts.shared_width % experts.width != 0)
    return fmt::format(", 1 shared of width {}", experts.shared_width);
  return fmt::format(", {} shared", experts.shared_width / experts.width);
}

std::string dense_text(const std::vector<LayerConfig>& layers) {
  const auto dense = std::ssize(layers) - std::ranges::count_if(layers, &LayerConfig::is_sparse),
             first = std::ranges::find_if(layers, &LayerConfig::is_sparse) - layers.begin();
  if (dense == 0) return "";
  if (dense != first) return fmt::format("; {} of {} layers dense", dense, layers.size());
  return dense == 1 ? "; first layer dense" : fmt::format("; first {} layers dense", dense);
}

}  // namespace

std::string experts_text(const ModelConfig& config) {
  const ExpertsConfig& experts = config.experts;
  const Router& router = experts.router;
  if (config.sparse_layers() == 0) return "";
  return fmt::format(
      "{}{}, {} a token{}{}", experts.count,
      router.groups > 1 ? fmt::format(" in {} groups ({} kept)", router.groups, router.kept_groups) : "",
      router.per_token, shared_text(experts), dense_text(config.layers));
}

std::string latent_text(const ModelConfig& config, DType cache) {
  if (!config.latent) return "";
  constexpr double usual = 2 * 8 * 128;  // keys and values of 8 heads
  const auto lanes = static_cast<double>(config.latent->row_lanes());
  const double bytes = lanes * static_cast<double>(config.num_layers()) * static_cast<double>(size_of(cache));
  return fmt::format("latent, {} lanes a token and layer ({} a token, 1/{:.1f} of 8 KV heads of 128)", lanes,
                     bytes_text(bytes), std::floor(10 * usual / lanes) / 10);
}

}  // namespace maniple
