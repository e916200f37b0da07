#include <runtime/start/start.hpp>

namespace maniple {

Engine load(World& world, const EngineOptions& options, const AgreedJob& job, const RankPlace& place,
            RankActivity& activity) {
  return {world, options, job.plan, *job.model, make_backend(world, job.plan, place), activity};
}

}  // namespace maniple
