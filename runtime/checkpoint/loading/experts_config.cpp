#include <runtime/checkpoint/loading/architecture.hpp>

#include <fmt/format.h>

#include <algorithm>

namespace maniple {
namespace {

constexpr std::string_view counts[] = {"num_local_experts", "num_experts"};  // both mean the same

// The field that says how many experts there are.
std::string_view count_field(const ExpertFields& family, const JsonFields& fields) {
  if (std::ranges::count(counts, family.count) == 0) return family.count;
  return fields.find(counts[0]) ? counts[0] : counts[1];
}

int64_t expert_count(const ModelConfig& config, const ExpertFields& family, const JsonFields& fields) {
  // Far above any model; each is listed with its tensors.
  const int64_t most = std::min<int64_t>(1 << 12, (1 << 17) / config.num_layers());
  const std::string_view name = count_field(family, fields);
  const int64_t count = fields.integer_or(name, family.default_count, 0, most);
  for (const std::string_view other : counts)
    if (fields.integer_or(other, count, 0, most) != count)
      fields.refuse(other, fmt::format("what {} says ({})", name, count));
  return count;
}

void set_groups(Router& router, const ExpertFields& family, int64_t experts, const JsonFields& fields) {
  const bool sigmoid = router.scoring == RouterScoring::sigmoid;
  const std::string_view all = sigmoid ? "noaux_tc" : "greedy",
                         grouped = sigmoid ? all : "group_limited_greedy";
  const std::string method = fields.text_or("topk_method", all);
  if (method != all && method != grouped)
    fields.refuse("topk_method", sigmoid ? "\"noaux_tc\"" : "\"greedy\", \"group_limited_greedy\"");
  if (method != grouped) return;
  if (!sigmoid && !fields.find("n_group")) fields.refuse("n_group", "a number, with this topk_method");
  router.groups = fields.integer_or("n_group", family.default_groups, 1, 1 << 12);
  router.kept_groups = fields.integer_or("topk_group", family.default_kept, 1, 1 << 12);
  router.group_score = sigmoid && router.groups > 1 ? GroupScore::top2 : GroupScore::max;
  const int64_t group = experts / router.groups, fewest = router.group_score == GroupScore::top2 ? 2 : 1;
  if (group * router.groups != experts || group < fewest)
    fields.refuse("n_group",
                  fmt::format("a divisor of the {} experts, {} or more in a group", experts, fewest));
  if (router.kept_groups > router.groups)
    fields.refuse("topk_group", fmt::format("1 to {}, the number of groups", router.groups));
  if (router.per_token > router.kept_groups * group)
    fields.refuse("num_experts_per_tok", fmt::format("1 to {}, the experts of the {} groups that are kept",
                                                     router.kept_groups * group, router.kept_groups));
}

Router router_of(const ExpertFields& family, int64_t experts, const JsonFields& fields) {
  Router router{.scoring = family.scoring, .epsilon = family.epsilon};
  const std::string scoring = family.scoring == RouterScoring::sigmoid ? "sigmoid" : "softmax";
  if (fields.text_or("scoring_func", scoring) != scoring)
    fields.refuse("scoring_func", fmt::format("\"{}\" for this architecture", scoring));
  constexpr int64_t most = 1 << 16;
  router.per_token = family.default_per_token > 0
                         ? fields.integer_or("num_experts_per_tok", family.default_per_token, 1, most)
                         : fields.integer("num_experts_per_tok", 1, most);
  if (router.per_token > experts)
    fields.refuse("num_experts_per_tok", fmt::format("1 to {}, the number of experts", experts));
  router.normalise =
      family.normalise.empty() || fields.boolean_or(family.normalise, family.default_normalise);
  if (router.normalise && !family.may_normalise)
    fields.refuse(family.normalise, "false for this architecture");
  if (!family.scale.empty())
    router.scale = static_cast<float>(fields.number_or(family.scale, family.default_scale, 1e-6, 1e6));
  set_groups(router, family, experts, fields);
  return router;
}

int64_t shared_width(const ExpertFields& family, int64_t width, const JsonFields& fields) {
  constexpr int64_t most = 1 << 24;
  if (family.shared.empty()) return 0;
  if (family.shared.ends_with("_size"))
    return fields.integer_or(family.shared, family.default_shared, 0, most);
  return width * fields.integer_or(family.shared, family.default_shared, 0, most / width);
}

ExpertsConfig experts_of(const ModelConfig& config, const ExpertFields& family, const JsonFields& fields) {
  ExpertsConfig experts{.count = expert_count(config, family, fields), .names = family.names};
  if (experts.count == 0) {
    if (family.dense != DenseLayers::between) fields.refuse(count_field(family, fields), "1 or more");
    return {};
  }
  experts.router = router_of(family, experts.count, fields);
  experts.width = fields.integer_or(family.width, family.default_width, 1, 1 << 24);
  experts.shared_width = shared_width(family, experts.width, fields);
  return experts;
}

void make_dense(ModelConfig& config, const ExpertFields& family, int64_t width, const JsonFields& fields) {
  const int64_t count = config.num_layers();
  const auto dense = [&](int64_t layer) { config.layers[static_cast<size_t>(layer)].dense_width = width; };
  if (family.dense == DenseLayers::between) {
    const int64_t every = fields.integer_or("decoder_sparse_step", 1, 1, 1 << 16);
    for (int64_t layer = 0; layer < count; ++layer)
      if ((layer + 1) % every != 0) dense(layer);
    if (!fields.find("mlp_only_layers")) return;
    for (const int64_t layer : fields.sizes("mlp_only_layers")) {
      if (layer >= count)
        fields.refuse("mlp_only_layers",
                      fmt::format("layers of 0 to {} (num_hidden_layers is {})", count - 1, count));
      dense(layer);
    }
  } else if (const nlohmann::json* types = fields.find("mlp_layer_types")) {
    if (!types->is_array() || std::ssize(*types) != count)
      fields.refuse("mlp_layer_types", fmt::format("\"dense\" or \"sparse\" of each of {} layers", count));
    for (int64_t layer = 0; layer < count; ++layer) {
      const nlohmann::json& type = (*types)[static_cast<size_t>(layer)];
      if (type != "dense" && type != "sparse") fields.refuse("mlp_layer_types", "\"dense\", \"sparse\"");
      if (type == "dense") dense(layer);
    }
  } else if (family.dense == DenseLayers::first) {
    const int64_t first = fields.integer_or("first_k_dense_replace", family.default_dense, 0, 10'000);
    for (int64_t layer = 0; layer < std::min(first, count); ++layer) dense(layer);
  }
}

}  // namespace

void set_layers(ModelConfig& config, const Architecture& architecture, const JsonFields& fields) {
  const int64_t width =
      fields.integer_or("intermediate_size", architecture.defaults.intermediate_size, 1, 1 << 24);
  if (architecture.experts) config.experts = experts_of(config, *architecture.experts, fields);
  if (config.experts.count > 0)
    make_dense(config, *architecture.experts, width, fields);
  else
    for (LayerConfig& layer : config.layers) layer.dense_width = width;
}

}  // namespace maniple
