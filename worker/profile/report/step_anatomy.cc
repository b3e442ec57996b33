#include "worker/profile/report/step_anatomy.h"

#include <algorithm>

#include "worker/profile/report/rank_clock.h"
#include "worker/profile/report/span_times.h"

namespace fsdp::report {
namespace {

using P = v1::StepPhases;

RankAnatomy AnatomyOf(const v1::RankProfile& rank) {
  RankAnatomy anatomy;
  anatomy.rank = &rank;
  const auto num_steps = static_cast<double>(rank.steps_size());
  for (const auto& step : rank.steps()) {
    anatomy.step_seconds += Seconds(step.duration_ns()) / num_steps;
    for (const auto* phases : {&SummedPhases(), &InnerPhases()}) {
      for (const PhaseField& phase : *phases) {
        const double mean = (step.phases().*phase.get)() / num_steps;
        (anatomy.phases.*phase.set)((anatomy.phases.*phase.get)() + mean);
      }
    }
  }
  const double possible = rank.flops_ceiling() * anatomy.step_seconds;
  if (possible <= 0) return anatomy;
  anatomy.mfu = rank.model_flops_per_step() / std::max(1, rank.world_size()) / possible;
  double flops = 0;
  for (const auto& family : rank.families()) flops += family.flops();
  anatomy.hfu = flops / num_steps / possible;
  return anatomy;
}

}  // namespace

const std::vector<PhaseField>& SummedPhases() {
  static const auto& phases = *new std::vector<PhaseField>{
      {"data", &P::data_seconds, &P::set_data_seconds},
      {"compute", &P::compute_seconds, &P::set_compute_seconds},
      {"exposed gather", &P::exposed_gather_seconds, &P::set_exposed_gather_seconds},
      {"exposed scatter", &P::exposed_scatter_seconds, &P::set_exposed_scatter_seconds},
      {"optimizer", &P::optimizer_seconds, &P::set_optimizer_seconds},
      {"checkpoint", &P::checkpoint_seconds, &P::set_checkpoint_seconds},
      {"evaluate", &P::evaluate_seconds, &P::set_evaluate_seconds},
      {"other", &P::other_seconds, &P::set_other_seconds},
      {"unattributed", &P::unattributed_seconds, &P::set_unattributed_seconds},
  };
  return phases;
}

const std::vector<PhaseField>& InnerPhases() {
  static const auto& phases = *new std::vector<PhaseField>{
      {"overlapped gather", &P::overlapped_gather_seconds, &P::set_overlapped_gather_seconds},
      {"overlapped scatter", &P::overlapped_scatter_seconds, &P::set_overlapped_scatter_seconds},
      {"launch gaps", &P::launch_gap_seconds, &P::set_launch_gap_seconds},
      {"host idle", &P::host_idle_seconds, &P::set_host_idle_seconds},
  };
  return phases;
}

std::vector<RankAnatomy> Anatomies(const v1::JobProfile& profile) {
  std::vector<RankAnatomy> anatomies;
  for (const AlignedRank& rank : AlignRanks(profile)) {
    if (rank.profile->steps_size() > 0) anatomies.push_back(AnatomyOf(*rank.profile));
  }
  return anatomies;
}

}  // namespace fsdp::report
