// Requests in, tokens out: one Engine on every rank of the job. The constructor makes the rank's part of the
// model. Rank 0 then serves requests, while every rank (rank 0 too) runs its step plans.
#pragma once

#include <runtime/rank_model.hpp>
#include <runtime/service.hpp>

namespace maniple {

class Engine {
 public:
  // Collective, throws as RankModel. Keeps `activity` up to date for the caller's HealthMonitor. The
  // references must outlive the engine. runtime/start/load makes one.
  Engine(World& world, const EngineOptions& options, const JobPlan& plan, const SharedModel& model,
         Backend backend, RankActivity& activity);

  const RankModel& model() const { return model_; }

  // Rank 0 calls run(), which serves the source (Service::run). The other ranks call run_worker(), which
  // returns this rank's times when rank 0 has sent the stop command.
  // observer: may be null.
  RunSummary run(RequestSource& source, CompletionSink& sink, const OnProgress& on_progress,
                 const std::atomic<int>& interrupt, RunObserver* observer = nullptr);
  RankTimes run_worker();

 private:
  SchedulerConfig scheduler_config() const;
  void gather(const WorkerTimes& times, RunSummary& summary);  // what the ranks know of it

  World& world_;
  const EngineOptions& options_;
  const JobPlan& plan_;
  RankActivity& activity_;
  RankModel model_;
};

}  // namespace maniple
