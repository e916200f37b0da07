// Requests in, tokens out: one Engine on every rank of the job. Constructing it makes the rank's part of the
// model; rank 0 then serves requests while every rank (rank 0 too) carries out its plans.
#pragma once

#include <runtime/rank_model.hpp>
#include <runtime/service.hpp>

namespace maniple {

class Engine {
 public:
  // Collective, as RankModel. `activity` is kept up to date for a HealthMonitor that the caller runs; the references
  // must outlive the engine.
  Engine(World& world, const EngineOptions& options, const JobPlan& plan, SharedModel model,
         RankActivity& activity);

  const RankModel& model() const { return model_; }

  // Rank 0: serves the source as Service has it. The other ranks call run_worker(), which returns this rank's
  // times. Both return when rank 0 says stop.
  RunSummary run(RequestSource& source, CompletionSink& sink, const OnProgress& on_progress,
                 const std::atomic<int>& interrupt);
  RankTimes run_worker();

 private:
  SchedulerConfig scheduler_config() const;
  std::vector<RankTimes> gather_times(const WorkerTimes& times);

  World& world_;
  EngineOptions options_;
  const JobPlan& plan_;
  RankActivity& activity_;
  RankModel model_;
};

}  // namespace maniple
