#include <cmath>
#include <cstdint>
#include <set>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "proto/support/status.h"
#include "worker/profile/report/job_profile_io.h"
#include "worker/profile/report/report_text.h"

namespace fsdp {
namespace report {
namespace {

constexpr std::int32_t kFormat = 1;
// A recording: 30 days. Sums of times and offsets stay far inside of 64 bits.
constexpr std::int64_t kMaxTimeNs = std::int64_t{30} * 86400 * 1'000'000'000;
// A host's monotonic clock: 36 years.
constexpr std::int64_t kMaxClockNs = std::int64_t{1} << 60;
constexpr std::int32_t kMaxWorld = 1 << 20;
constexpr std::int64_t kMaxCount = std::int64_t{1} << 50;

// The first thing that is wrong.
class Check {
 public:
  [[nodiscard]] const absl::Status& status() const { return status_; }
  [[nodiscard]] bool ok() const { return status_.ok(); }

  template <typename Value>
  void Fail(const std::string& field, const Value& value, const std::string& what) {
    if (ok()) {
      status_ = absl::InvalidArgumentError(absl::StrCat(field, ": ", value, " ", what));
    }
  }
  void Range(const std::string& field, std::int64_t value, std::int64_t low, std::int64_t high) {
    if (value < low || value > high) {
      Fail(field, value, absl::StrCat("is not between ", low, " and ", high));
    }
  }
  void Amount(const std::string& field, double value) {
    if (!std::isfinite(value) || value < 0) Fail(field, value, "is not a finite number from 0 up");
  }
  void Finite(const std::string& field, double value) {
    if (!std::isfinite(value)) Fail(field, value, "is not finite");
  }

 private:
  absl::Status status_;
};

void CheckSpan(const v1::RankProfile& rank, const v1::ProfileSpan& span, Check* check) {
  if (!v1::ProfileTrack_IsValid(span.track()) || span.track() == v1::PROFILE_TRACK_UNSPECIFIED) {
    check->Fail("track", static_cast<int>(span.track()), "is not a track that this release knows");
  }
  check->Range("begin_ns", span.begin_ns(), 0, kMaxTimeNs);
  check->Range("duration_ns", span.duration_ns(), 0, kMaxTimeNs);
  const auto index = [&](const char* field, std::uint32_t value) {
    if (value != 0 && value >= static_cast<std::uint32_t>(rank.strings_size())) {
      check->Fail(field, value, absl::StrCat("is beyond the ", rank.strings_size(), " strings"));
    }
  };
  index("name", span.name());
  index("family", span.family());
  index("shape", span.shape());
  check->Amount("flops", span.flops());
  check->Amount("bytes", span.bytes());
  check->Range("step", span.step(), 0, kMaxCount);
  check->Range("sequence", span.sequence(), 0, kMaxCount);
}

void CheckCounter(const v1::ProfileCounter& counter, Check* check) {
  if (counter.time_ns_size() != counter.values_size()) {
    check->Fail("values", counter.values_size(),
                absl::StrCat("values are not as many as the ", counter.time_ns_size(), " times"));
  }
  std::int64_t last_ns = 0;
  for (int i = 0; i < counter.time_ns_size() && check->ok(); ++i) {
    check->Range(absl::StrCat("time_ns[", i, "]"), counter.time_ns(i), last_ns, kMaxTimeNs);
    check->Finite(absl::StrCat("values[", i, "]"), counter.values(i));
    last_ns = counter.time_ns(i);
  }
}

void CheckStep(const v1::ProfileStep& step, Check* check) {
  check->Range("step", step.step(), 0, kMaxCount);
  check->Range("begin_ns", step.begin_ns(), 0, kMaxTimeNs);
  check->Range("duration_ns", step.duration_ns(), 0, kMaxTimeNs);
  const v1::StepPhases& phases = step.phases();
  for (const double seconds :
       {phases.data_seconds(), phases.compute_seconds(), phases.exposed_gather_seconds(),
        phases.exposed_scatter_seconds(), phases.optimizer_seconds(), phases.checkpoint_seconds(),
        phases.evaluate_seconds(), phases.other_seconds(), phases.unattributed_seconds(),
        phases.overlapped_gather_seconds(), phases.overlapped_scatter_seconds(),
        phases.launch_gap_seconds(), phases.host_idle_seconds()}) {
    check->Finite("phases", seconds);
  }
}

void CheckFamily(const v1::FamilyVerdict& family, Check* check) {
  check->Amount("seconds", family.seconds());
  check->Range("launches", family.launches(), 0, kMaxCount);
  check->Amount("flops", family.flops());
  check->Amount("bytes", family.bytes());
  check->Amount("compute_ratio", family.compute_ratio());
  check->Amount("memory_ratio", family.memory_ratio());
  check->Amount("tensor_ratio", family.tensor_ratio());
  check->Range("samples", family.samples(), 0, kMaxCount);
  check->Amount("savable_seconds", family.savable_seconds());
}

void CheckFacts(const v1::RankProfile& rank, Check* check) {
  if (rank.format() != kFormat) {
    check->Fail("format", rank.format(),
                absl::StrCat("is not ", kFormat,
                             ", which this release reads; use the release that "
                             "recorded it"));
  }
  check->Range("world_size", rank.world_size(), 1, kMaxWorld);
  check->Range("rank", rank.rank(), 0, std::int64_t{rank.world_size()} - 1);
  check->Range("begin_ns", rank.begin_ns(), 0, kMaxClockNs);
  check->Range("end_ns", rank.end_ns(), rank.begin_ns(), rank.begin_ns() + kMaxTimeNs);
  check->Range("spans_dropped", rank.spans_dropped(), 0, kMaxCount);
  check->Amount("flops_ceiling", rank.flops_ceiling());
  check->Amount("bytes_ceiling", rank.bytes_ceiling());
  check->Amount("model_flops_per_step", rank.model_flops_per_step());
  check->Range("memory_peak_bytes", rank.memory_peak_bytes(), 0, std::int64_t{1} << 60);
  if (rank.strings_size() > 0 && !rank.strings(0).empty()) {
    check->Fail("strings[0]", CleanText(rank.strings(0)), "is not empty");
  }
}

// `check_one` of each, until one fails; its field is "name[i].field".
template <typename Rows, typename CheckOne>
absl::Status CheckEach(const char* name, const Rows& rows, const CheckOne& check_one) {
  for (int i = 0; i < rows.size(); ++i) {
    Check check;
    check_one(rows.Get(i), &check);
    if (check.ok()) continue;
    return absl::InvalidArgumentError(absl::StrCat(name, "[", i, "].", check.status().message()));
  }
  return absl::OkStatus();
}

absl::Status CheckClocks(const v1::JobProfile& profile) {
  std::set<std::int32_t> seen;
  return CheckEach("clocks", profile.clocks(), [&](const v1::RankClock& clock, Check* check) {
    check->Range("offset_ns", clock.offset_ns(), -kMaxClockNs, kMaxClockNs);
    check->Range("uncertainty_ns", clock.uncertainty_ns(), 0, kMaxTimeNs);
    if (!seen.insert(clock.rank()).second) check->Fail("rank", clock.rank(), "has two clocks");
  });
}

}  // namespace
}  // namespace report

absl::Status ValidateRankProfile(const v1::RankProfile& rank) {
  report::Check facts;
  report::CheckFacts(rank, &facts);
  RETURN_IF_ERROR(facts.status());
  RETURN_IF_ERROR(report::CheckEach(
      "spans", rank.spans(),
      [&](const auto& span, report::Check* check) { report::CheckSpan(rank, span, check); }));
  RETURN_IF_ERROR(report::CheckEach("counters", rank.counters(), report::CheckCounter));
  RETURN_IF_ERROR(report::CheckEach("steps", rank.steps(), report::CheckStep));
  return report::CheckEach("families", rank.families(), report::CheckFamily);
}

absl::Status ValidateProfile(const v1::JobProfile& profile) {
  std::set<std::int32_t> seen;
  for (int i = 0; i < profile.ranks_size(); ++i) {
    const std::string field = absl::StrCat("ranks[", i, "].");
    const absl::Status status = ValidateRankProfile(profile.ranks(i));
    if (!status.ok()) {
      return absl::InvalidArgumentError(absl::StrCat(field, status.message()));
    }
    if (!seen.insert(profile.ranks(i).rank()).second) {
      return absl::InvalidArgumentError(
          absl::StrCat(field, "rank: ", profile.ranks(i).rank(), " has two recordings"));
    }
  }
  return report::CheckClocks(profile);
}

}  // namespace fsdp
