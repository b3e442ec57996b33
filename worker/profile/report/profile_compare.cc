#include "worker/profile/report/profile_compare.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <map>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "worker/profile/report/collective_skew.h"
#include "worker/profile/report/report_text.h"
#include "worker/profile/report/span_times.h"
#include "worker/profile/report/step_anatomy.h"

namespace fsdp {
namespace report {
namespace {

constexpr const char* kNoFamily = "not in a family";
// Relative differences below this are called none.
constexpr double kSame = 0.01;
// Of a step.
constexpr double kWorthNaming = 0.005;

// Means of one rank and step.
struct StepShares {
  double step_seconds = 0;
  std::map<std::string, FamilyShare> families;
  // Families that are not on the compute track.
  std::set<std::string> beside_compute;
};

// What every family takes of the steps of one rank. Compute counts by self time; a gather counts as
// far as nothing computed, a scatter as far as neither was, a copy as far as none of them was: so
// the shares and the rest are the step.
void AddRank(const v1::RankProfile& rank, StepShares* shares) {
  const IntervalSet steps = StepTimes(rank);
  shares->step_seconds += Seconds(steps.length_ns());
  IntervalSet busy;
  for (const v1::ProfileTrack track : {v1::PROFILE_TRACK_COMPUTE, v1::PROFILE_TRACK_GATHER,
                                       v1::PROFILE_TRACK_SCATTER, v1::PROFILE_TRACK_COPY}) {
    const bool is_compute = track == v1::PROFILE_TRACK_COMPUTE;
    std::map<std::string, std::vector<Interval>> of_family;
    for (const SpanTime& time : SelfTimes(rank, track, steps)) {
      std::string name = StringAt(rank, time.span->family());
      if (name.empty()) name = TrackText(track);
      FamilyShare& family = shares->families[name];
      ++family.calls;
      family.busy_seconds += Seconds(time.self_ns);
      family.flops += time.span->flops();
      family.bytes += time.span->bytes();
      if (is_compute) {
        family.seconds += Seconds(time.self_ns);
      } else {
        of_family[name].push_back({time.span->begin_ns(), EndOf(*time.span)});
      }
    }
    if (is_compute) busy = BusyTimes(rank, track, steps);
    for (auto& [name, intervals] : of_family) {
      const IntervalSet exposed = IntervalSet(std::move(intervals)).Intersection(steps).Minus(busy);
      shares->families[name].seconds += Seconds(exposed.length_ns());
      shares->beside_compute.insert(name);
      busy = busy.Union(exposed);
    }
  }
}

StepShares SharesOf(const v1::JobProfile& profile) {
  StepShares shares;
  double rank_steps = 0;
  for (const auto& rank : profile.ranks()) {
    AddRank(rank, &shares);
    rank_steps += std::max(1, rank.steps_size());
  }
  if (rank_steps == 0) return shares;
  shares.step_seconds /= rank_steps;
  double in_families = 0;
  for (auto& [name, family] : shares.families) {
    for (double* value :
         {&family.seconds, &family.busy_seconds, &family.calls, &family.flops, &family.bytes}) {
      *value /= rank_steps;
    }
    in_families += family.seconds;
  }
  shares.families[kNoFamily].seconds += shares.step_seconds - in_families;
  return shares;
}

bool Differs(double before, double after) {
  return std::abs(after - before) > kSame * std::max(std::abs(before), std::abs(after));
}

// "18 % slower", "2.4 times as fast".
std::string PaceText(double before, double after) {
  const double ratio = after / before;
  if (ratio >= 2) return absl::StrFormat("%.1f times as long", ratio);
  if (ratio <= 0.5) return absl::StrFormat("%.1f times as fast", 1 / ratio);
  return absl::StrFormat("%.0f %% %s", std::abs(ratio - 1) * 100, ratio > 1 ? "slower" : "faster");
}

// Why: calls, then work per call, then time per call.
std::string ReasonText(const FamilyShare& before, const FamilyShare& after) {
  std::vector<std::string> reasons;
  const bool calls_differ = Differs(before.calls, after.calls);
  reasons.push_back(calls_differ ? absl::StrCat(CallsText(after.calls), " instead of ",
                                                CallsText(before.calls), " calls")
                                 : "same calls");
  const auto per_call = [](double amount, const FamilyShare& of) { return amount / of.calls; };
  const double before_each = per_call(before.busy_seconds, before);
  const double after_each = per_call(after.busy_seconds, after);
  if (before_each > 0 && Differs(before_each, after_each)) {
    reasons.push_back(absl::StrCat(PaceText(before_each, after_each), " each"));
  }
  const auto amount = [&](const char* what, double of_before, double of_after) {
    const double from = per_call(of_before, before), to = per_call(of_after, after);
    if (from > 0 && to > 0 && Differs(from, to)) {
      reasons.push_back(absl::StrFormat("%.2f times the %s each", to / from, what));
    }
  };
  amount("FLOPs", before.flops, after.flops);
  amount("bytes", before.bytes, after.bytes);
  return absl::StrJoin(reasons, ", ");
}

std::string Hidden(const FamilyShare& share) {
  return PercentText(share.busy_seconds > 0 ? 1 - share.seconds / share.busy_seconds : 0);
}

std::string SentenceOf(const Contribution& one) {
  const double difference = one.difference_seconds;
  const std::string more =
      absl::StrCat(TimeText(std::abs(difference)), difference >= 0 ? " more" : " less");
  const std::string name = CleanText(one.name);
  if (one.name == kNoFamily) {
    return absl::StrCat("Time in which no family ran (gaps, host) is ", more);
  }
  if (one.before.calls == 0) return absl::StrCat(name, " takes ", more, ": it is new");
  if (one.after.calls == 0) return absl::StrCat(name, " takes ", more, ": it is gone");
  std::string sentence = absl::StrCat(name, one.is_exposed_time ? " is exposed " : " takes ", more,
                                      ": ", ReasonText(one.before, one.after));
  if (one.is_exposed_time) {
    absl::StrAppend(&sentence, ", ", Hidden(one.after), " of it hidden instead of ",
                    Hidden(one.before));
  }
  return sentence;
}

std::vector<Contribution> Contributions(const StepShares& before, const StepShares& after) {
  std::map<std::string, Contribution> by_name;
  for (const auto& [name, share] : before.families) by_name[name].before = share;
  for (const auto& [name, share] : after.families) by_name[name].after = share;
  std::vector<Contribution> contributions;
  for (auto& [name, one] : by_name) {
    one.name = name;
    one.is_exposed_time = before.beside_compute.count(name) + after.beside_compute.count(name) > 0;
    one.difference_seconds = one.after.seconds - one.before.seconds;
    one.sentence = SentenceOf(one);
    contributions.push_back(std::move(one));
  }
  std::stable_sort(contributions.begin(), contributions.end(), [](const auto& a, const auto& b) {
    return std::abs(a.difference_seconds) > std::abs(b.difference_seconds);
  });
  return contributions;
}

std::map<std::string, double> PhaseMeans(const v1::JobProfile& profile) {
  std::map<std::string, double> means;
  const std::vector<RankAnatomy> anatomies = Anatomies(profile);
  for (const RankAnatomy& rank : anatomies) {
    for (const PhaseField& phase : SummedPhases()) {
      means[phase.label] += (rank.phases.*phase.get)() / static_cast<double>(anatomies.size());
    }
  }
  return means;
}

std::vector<PhaseDifference> Phases(const v1::JobProfile& before, const v1::JobProfile& after) {
  std::map<std::string, double> of_before = PhaseMeans(before), of_after = PhaseMeans(after);
  std::vector<PhaseDifference> phases;
  for (const PhaseField& phase : SummedPhases()) {
    phases.push_back({phase.label, of_before[phase.label], of_after[phase.label]});
  }
  std::stable_sort(phases.begin(), phases.end(), [](const auto& a, const auto& b) {
    return std::abs(a.after_seconds - a.before_seconds) >
           std::abs(b.after_seconds - b.before_seconds);
  });
  return phases;
}

struct Lateness {
  double seconds = 0;  // a step
  std::int64_t times_last = 0;
  std::int64_t collectives = 0;
};

std::map<std::int32_t, Lateness> LatenessOf(const v1::JobProfile& profile) {
  std::map<std::int32_t, int> steps;
  for (const auto& rank : profile.ranks()) steps[rank.rank()] = std::max(1, rank.steps_size());
  std::map<std::int32_t, Lateness> lateness;
  for (const RankLateness& rank : BuildSkewReport(profile).ranks) {
    const double total = rank.mean_seconds * static_cast<double>(rank.collectives);
    lateness[rank.rank] = {total / steps[rank.rank], rank.times_last, rank.collectives};
  }
  return lateness;
}

std::vector<LateRank> LateRanks(const v1::JobProfile& before, const v1::JobProfile& after,
                                double step_seconds) {
  const std::map<std::int32_t, Lateness> of_before = LatenessOf(before);
  std::vector<LateRank> late;
  for (const auto& [rank, now] : LatenessOf(after)) {
    const auto then = of_before.find(rank);
    // A rank that one of them lacks has nothing to be compared with.
    if (then == of_before.end()) continue;
    const bool worse = now.seconds > then->second.seconds;
    const Lateness& worst = worse ? now : then->second;
    // Never last beyond what the clocks are uncertain: nobody knows.
    if (worst.times_last == 0) continue;
    if (std::abs(now.seconds - then->second.seconds) < kWorthNaming * step_seconds) continue;
    late.push_back(
        {rank, then->second.seconds, now.seconds,
         absl::StrCat("Rank ", rank, " comes ", TimeText(now.seconds),
                      " a step late to the collectives instead of ", TimeText(then->second.seconds),
                      ": last in ", now.times_last, " of ", now.collectives)});
  }
  std::stable_sort(late.begin(), late.end(), [](const LateRank& a, const LateRank& b) {
    return std::abs(a.after_seconds - a.before_seconds) >
           std::abs(b.after_seconds - b.before_seconds);
  });
  return late;
}

// A fact of all ranks, each value once.
template <typename Get>
std::string FactOf(const v1::JobProfile& profile, const Get& get) {
  std::set<std::string> values;
  for (const auto& rank : profile.ranks()) values.insert(get(rank));
  return absl::StrJoin(values, ", ");
}

std::set<std::string> ShapesOf(const v1::JobProfile& profile) {
  std::set<std::string> shapes;
  for (const auto& rank : profile.ranks()) {
    for (const auto& span : rank.spans()) {
      if (span.track() == v1::PROFILE_TRACK_COMPUTE) shapes.insert(StringAt(rank, span.shape()));
    }
  }
  return shapes;
}

std::vector<std::string> Warnings(const v1::JobProfile& before, const v1::JobProfile& after) {
  std::vector<std::string> warnings;
  const auto fact = [&](const char* what, const auto& get) {
    const std::string a = FactOf(before, get), b = FactOf(after, get);
    if (a == b) return;
    warnings.push_back(absl::StrCat("different ", what, ": ", CleanText(a), " and ", CleanText(b)));
  };
  using R = v1::RankProfile;
  if (before.job() != after.job()) {
    warnings.push_back(
        absl::StrCat("different jobs: ", CleanText(before.job()), " and ", CleanText(after.job())));
  }
  fact("world sizes", [](const R& rank) { return absl::StrCat(rank.world_size()); });
  fact("devices", [](const R& rank) { return rank.device(); });
  fact("dtypes", [](const R& rank) { return rank.dtype(); });
  fact("versions", [](const R& rank) { return rank.version(); });
  fact("ways of timing", [](const R& rank) { return TimingText(rank.timing()); });
  fact("model FLOPs a step", [](const R& rank) { return RateText(rank.model_flops_per_step()); });
  if (before.ranks_size() != after.ranks_size()) {
    warnings.push_back(absl::StrCat("different numbers of recordings: ", before.ranks_size(),
                                    " and ", after.ranks_size()));
  }
  if (ShapesOf(before) != ShapesOf(after)) {
    warnings.emplace_back("different shapes: the launches do not do the same work");
  }
  std::int64_t dropped = 0;
  for (const auto* profile : {&before, &after}) {
    for (const auto& rank : profile->ranks()) dropped += rank.spans_dropped();
  }
  if (dropped > 0) {
    warnings.push_back(absl::StrCat(dropped,
                                    " spans did not fit into the recordings; their time "
                                    "counts as in no family"));
  }
  return warnings;
}

}  // namespace
}  // namespace report

Comparison Compare(const v1::JobProfile& before, const v1::JobProfile& after) {
  const report::StepShares of_before = report::SharesOf(before);
  const report::StepShares of_after = report::SharesOf(after);
  Comparison comparison;
  comparison.before_seconds = of_before.step_seconds;
  comparison.after_seconds = of_after.step_seconds;
  comparison.contributions = report::Contributions(of_before, of_after);
  comparison.phases = report::Phases(before, after);
  comparison.late_ranks =
      report::LateRanks(before, after, std::max(of_before.step_seconds, of_after.step_seconds));
  comparison.warnings = report::Warnings(before, after);
  return comparison;
}

}  // namespace fsdp
