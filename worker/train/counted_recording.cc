#include "worker/train/counted_recording.h"

#include <algorithm>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "worker/profile/counters/sample_attribution.h"

namespace fsdp {
namespace {

// Of three counters: a time of at most 9 bytes and a double each.
constexpr std::int64_t kBytesPerSample = 3 * 17;

constexpr double kNearlyAll = 0.95;

std::vector<KernelInterval> LaunchesOf(const v1::RankProfile& profile) {
  std::map<std::string, KernelFamily> families;
  for (int i = 0; i < kNumKernelFamilies; ++i) {
    const auto family = static_cast<KernelFamily>(i);
    families[NameOf(family)] = family;
  }
  std::vector<KernelInterval> launches;
  for (const v1::ProfileSpan& span : profile.spans()) {
    if (span.track() == v1::PROFILE_TRACK_HOST || span.track() == v1::PROFILE_TRACK_PHASE) continue;
    const auto found = families.find(profile.strings(static_cast<int>(span.family())));
    const std::int64_t begin_ns = profile.begin_ns() + span.begin_ns();
    launches.push_back({begin_ns, begin_ns + span.duration_ns(),
                        found == families.end() ? std::nullopt : std::optional(found->second)});
  }
  return launches;
}

// `group` samples become one.
void AddTracks(std::span<const CounterSample> samples, std::size_t group,
               v1::RankProfile* profile) {
  struct Track {
    const char* name;
    double CounterSample::* value;
  };
  for (const Track& track : {Track{"sm", &CounterSample::sm}, Track{"hbm", &CounterSample::hbm},
                             Track{"tensor", &CounterSample::tensor}}) {
    v1::ProfileCounter& counter = *profile->add_counters();
    counter.set_name(track.name);
    counter.set_unit("ratio");
    for (std::size_t at = 0; at < samples.size(); at += group) {
      const std::span<const CounterSample> some =
          samples.subspan(at, std::min(group, samples.size() - at));
      double sum = 0;
      for (const CounterSample& sample : some) sum += sample.*track.value;
      counter.add_time_ns(some.front().begin_ns - profile->begin_ns());
      counter.add_values(sum / static_cast<double>(some.size()));
    }
  }
}

}  // namespace

MeasuredTable AddSamples(const CounterReading& reading, std::int64_t max_bytes,
                         v1::RankProfile* profile) {
  if (profile->steps().empty()) return {};
  const v1::ProfileStep& last = *profile->steps().rbegin();
  const std::vector<KernelInterval> launches = LaunchesOf(*profile);
  const std::int64_t first_ns = profile->begin_ns() + profile->steps(0).begin_ns();
  const std::int64_t last_ns = profile->begin_ns() + last.begin_ns() + last.duration_ns();
  const SampledWindow window{std::max(reading.begin_ns, first_ns),
                             std::min(reading.end_ns, last_ns), launches, reading.samples};
  SampleAttribution attribution;
  attribution.Add(window);

  // The first sample has a garbage length; the others count where they are whole.
  std::vector<CounterSample> samples;
  for (std::size_t i = 1; i < reading.samples.size(); ++i) {
    const CounterSample& sample = reading.samples[i];
    if (sample.begin_ns >= window.begin_ns && sample.end_ns <= window.end_ns) {
      samples.push_back(sample);
    }
  }
  std::vector<std::string> lost;
  for (const auto& [reason, count] : reading.dropped) {
    if (count > 0) lost.push_back(absl::StrCat(count, " (", reason, ")"));
  }
  if (!lost.empty()) {
    profile->add_notes(absl::StrCat("hardware counters: lost ", absl::StrJoin(lost, ", ")));
  }
  if (samples.empty()) {
    profile->add_notes("hardware counters: no sample lies within the recorded steps");
    return {};
  }
  // A window has room for so many samples.
  if (window.end_ns - window.begin_ns < kNearlyAll * static_cast<double>(last_ns - first_ns)) {
    profile->add_notes(absl::StrFormat("hardware counters: sampled for %.0f ms of %.0f",
                                       static_cast<double>(window.end_ns - window.begin_ns) * 1e-6,
                                       static_cast<double>(last_ns - first_ns) * 1e-6));
  }
  const auto most =
      static_cast<std::size_t>(std::max<std::int64_t>(1, max_bytes / kBytesPerSample));
  const std::size_t group = (samples.size() + most - 1) / most;
  if (group > 1) {
    profile->add_notes(absl::StrCat("hardware counters: means of ", group, " samples each"));
  }
  AddTracks(samples, group, profile);
  profile->set_counter_source(v1::METRIC_SOURCE_PM_SAMPLING);

  return MeasuredOf(attribution.Solve());
}

}  // namespace fsdp
