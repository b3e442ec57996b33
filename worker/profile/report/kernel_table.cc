#include "worker/profile/report/kernel_table.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <map>
#include <tuple>
#include <utility>

#include "worker/profile/report/rank_clock.h"
#include "worker/profile/report/report_text.h"
#include "worker/profile/report/span_times.h"

namespace fsdp {
namespace report {
namespace {

constexpr std::array kLaunchTracks = {v1::PROFILE_TRACK_COMPUTE, v1::PROFILE_TRACK_GATHER,
                                      v1::PROFILE_TRACK_SCATTER, v1::PROFILE_TRACK_COPY};

// Rows while they are filled, by what makes them one row.
class Tables {
 public:
  void Add(const v1::RankProfile& rank) {
    const IntervalSet steps = StepTimes(rank);
    const IntervalSet compute = BusyTimes(rank, v1::PROFILE_TRACK_COMPUTE, steps);
    report_.coverage.push_back(Coverage(rank, steps, compute));
    for (const v1::ProfileTrack track : kLaunchTracks) {
      for (const SpanTime& time : SelfTimes(rank, track, steps)) {
        AddKernel(rank, time);
        if (track != v1::PROFILE_TRACK_COMPUTE) continue;
        report_.coverage.back().family_seconds += Seconds(time.self_ns);
      }
    }
    SetDifference(&report_.coverage.back());
    for (const auto& span : rank.spans()) AddCollective(rank, span, steps, compute);
    for (const auto& verdict : rank.families()) AddFamily(verdict);
    ++report_.num_ranks;
    report_.step_seconds += Seconds(steps.length_ns());
    report_.spans_dropped += rank.spans_dropped();
    rank_steps_ += std::max(1, rank.steps_size());
  }

  KernelReport Take() {
    report_.rank_steps = std::max<std::int64_t>(1, rank_steps_);
    for (auto& [name, family] : families_) {
      FinishFamily(&family);
      report_.families.push_back(family.row);
    }
    for (auto& [key, row] : kernels_) {
      const auto family = families_.find(row.family);
      if (family != families_.end()) row.bound = family->second.row.bound;
      report_.kernels.push_back(std::move(row));
    }
    for (auto& [name, row] : collectives_) report_.collectives.push_back(std::move(row));
    const auto sort = [](auto* rows, auto member) {
      std::stable_sort(rows->begin(), rows->end(),
                       [member](const auto& a, const auto& b) { return a.*member > b.*member; });
    };
    sort(&report_.kernels, &KernelRow::self_seconds);
    sort(&report_.families, &FamilyRow::seconds);
    sort(&report_.collectives, &CollectiveRow::exposed_seconds);
    return std::move(report_);
  }

 private:
  struct Family {
    FamilyRow row;
    std::map<v1::Bound, double> bound_seconds;
    std::map<v1::Bound, int> bound_ranks;
    std::map<v1::Bound, std::string> remedies;
    // Sums of ratio times seconds, and the seconds of the ranks that have ratios.
    double compute = 0, memory = 0, tensor = 0;
    double judged_seconds = 0;
  };

  // All but the families.
  static CoverageRow Coverage(const v1::RankProfile& rank, const IntervalSet& steps,
                              const IntervalSet& compute) {
    CoverageRow row;
    row.rank = rank.rank();
    row.step_seconds = Seconds(steps.length_ns());
    const IntervalSet gaps = steps.Minus(compute);
    row.gap_seconds = Seconds(gaps.length_ns());
    for (const Interval& gap : gaps.intervals()) {
      row.longest_gap_seconds =
          std::max(row.longest_gap_seconds, Seconds(gap.end_ns - gap.begin_ns));
    }
    const IntervalSet communication = BusyTimes(rank, v1::PROFILE_TRACK_GATHER, steps)
                                          .Union(BusyTimes(rank, v1::PROFILE_TRACK_SCATTER, steps));
    row.communication_seconds = Seconds(communication.length_ns());
    row.exposed_seconds = Seconds(communication.Minus(compute).length_ns());
    return row;
  }

  static void SetDifference(CoverageRow* row) {
    if (row->step_seconds <= 0) return;
    row->difference_ratio =
        std::abs(row->family_seconds + row->gap_seconds - row->step_seconds) / row->step_seconds;
  }

  void AddKernel(const v1::RankProfile& rank, const SpanTime& time) {
    const v1::ProfileSpan& span = *time.span;
    const std::string& name = StringAt(rank, span.name());
    const std::string& family = StringAt(rank, span.family());
    const std::string& shape = StringAt(rank, span.shape());
    KernelRow& row = kernels_[{name, family, shape, span.track()}];
    if (row.calls == 0) {
      row.name = name;
      row.family = family;
      row.shape = shape;
      row.track = span.track();
    }
    ++row.calls;
    row.self_seconds += Seconds(time.self_ns);
    row.flops += span.flops();
    row.bytes += span.bytes();
    const bool is_communication =
        span.track() == v1::PROFILE_TRACK_GATHER || span.track() == v1::PROFILE_TRACK_SCATTER;
    // The roofs are of the device; a collective's bytes go over the wire.
    if (is_communication) return;
    if (rank.flops_ceiling() <= 0 && rank.bytes_ceiling() <= 0) return;
    const auto seconds_at = [](double amount, double ceiling) {
      return ceiling > 0 ? amount / ceiling : 0;
    };
    row.judged_seconds += Seconds(time.self_ns);
    row.roof_seconds += std::max(seconds_at(span.flops(), rank.flops_ceiling()),
                                 seconds_at(span.bytes(), rank.bytes_ceiling()));
  }

  void AddCollective(const v1::RankProfile& rank, const v1::ProfileSpan& span,
                     const IntervalSet& steps, const IntervalSet& compute) {
    if (span.track() != v1::PROFILE_TRACK_GATHER && span.track() != v1::PROFILE_TRACK_SCATTER) {
      return;
    }
    const std::int64_t length_ns = steps.LengthWithin(span.begin_ns(), EndOf(span));
    CollectiveRow& row = collectives_[StringAt(rank, span.name())];
    if (row.calls == 0) row.name = StringAt(rank, span.name());
    ++row.calls;
    row.seconds += Seconds(length_ns);
    row.exposed_seconds += Seconds(length_ns - compute.LengthWithin(span.begin_ns(), EndOf(span)));
    row.bytes += span.bytes();
  }

  void AddFamily(const v1::FamilyVerdict& verdict) {
    Family& family = families_[verdict.family()];
    FamilyRow& row = family.row;
    row.family = verdict.family();
    ++row.num_ranks;
    row.seconds += verdict.seconds();
    row.launches += verdict.launches();
    row.flops += verdict.flops();
    row.bytes += verdict.bytes();
    row.samples += verdict.samples();
    row.savable_seconds += verdict.savable_seconds();
    // The least that any rank's figures stand on.
    if (row.num_ranks == 1 || verdict.source() < row.source) row.source = verdict.source();
    family.compute += verdict.compute_ratio() * verdict.seconds();
    family.memory += verdict.memory_ratio() * verdict.seconds();
    family.tensor += verdict.tensor_ratio() * verdict.seconds();
    if (verdict.compute_ratio() > 0 || verdict.memory_ratio() > 0) {
      family.judged_seconds += verdict.seconds();
    }
    family.bound_seconds[verdict.bound()] += verdict.seconds();
    ++family.bound_ranks[verdict.bound()];
    family.remedies.emplace(verdict.bound(), verdict.remedy());
  }

  static void FinishFamily(Family* family) {
    FamilyRow& row = family->row;
    if (family->bound_seconds.size() > 1) family->bound_seconds.erase(v1::BOUND_UNSPECIFIED);
    const auto most =
        std::max_element(family->bound_seconds.begin(), family->bound_seconds.end(),
                         [](const auto& a, const auto& b) { return a.second < b.second; });
    row.bound = most->first;
    row.ranks_agreeing = family->bound_ranks[row.bound];
    row.remedy = family->remedies[row.bound];
    if (family->judged_seconds <= 0) return;
    row.compute_ratio = family->compute / family->judged_seconds;
    row.memory_ratio = family->memory / family->judged_seconds;
    row.tensor_ratio = family->tensor / family->judged_seconds;
  }

  KernelReport report_;
  std::int64_t rank_steps_ = 0;
  std::map<std::tuple<std::string, std::string, std::string, v1::ProfileTrack>, KernelRow> kernels_;
  std::map<std::string, Family> families_;
  std::map<std::string, CollectiveRow> collectives_;
};

}  // namespace
}  // namespace report

KernelReport BuildKernelReport(const v1::JobProfile& profile) {
  report::Tables tables;
  for (const report::AlignedRank& rank : report::AlignRanks(profile)) tables.Add(*rank.profile);
  return tables.Take();
}

}  // namespace fsdp
