#include <layers/models/decoder.hpp>

namespace maniple {

// One class serves every architecture that model_config.hpp accepts. Add others here, by config.architecture.
std::unique_ptr<Model> make_model(const ModelConfig& config, const RankPlan& plan) {
  return std::make_unique<Decoder>(config, plan);
}

}  // namespace maniple
