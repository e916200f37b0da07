#include <runtime/collective_phase.hpp>
#include <runtime/device_choice.hpp>
#include <runtime/start/start.hpp>

namespace maniple {

AgreedJob agree(World& world, const EngineOptions& options, std::optional<DType> begun) {
  AgreedJob job;
  const BackendChoice backend = common_backend(world, options.backend);
  collective_phase(world, [&] { job.plan = plan_job(world.locations(), options, backend); });
  if (options.model.empty()) return job;
  job.model = share_model(world, options);
  begun = gather_values(world, begun).front();
  collective_phase(
      world, [&] { job.plan = plan_job(world.locations(), options, backend, &job.model->config, begun); });
  return job;
}

}  // namespace maniple
