#ifndef FSDPCTL_WORKER_PROFILE_SPAN_RECORDER_H_
#define FSDPCTL_WORKER_PROFILE_SPAN_RECORDER_H_

// What a rank does in the steps that are being recorded, as spans of a RankProfile: launches,
// collectives, phases, the trainer's own work. Bounded: what does not fit is counted and left out.
//
// Thread rule: the step thread.

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <utility>

#include "fsdp/v1/profile.pb.h"
#include "worker/profile/family_recorder.h"
#include "worker/profile/flight_recorder.h"

namespace fsdp {

class SpanRecorder final : public LaunchObserver {
 public:
  struct Span {
    v1::ProfileTrack track = v1::PROFILE_TRACK_UNSPECIFIED;
    std::int64_t begin_ns = 0;  // of CLOCK_MONOTONIC, as all times here
    std::int64_t end_ns = 0;
    std::string_view name;
    std::string_view family = {};
    std::string_view shape = {};
    double flops = 0;
    double bytes = 0;
    std::int64_t sequence = 0;
  };

  // `begin_ns`: what the recording's times count from. `max_bytes`: of the recording, serialized.
  SpanRecorder(std::int64_t begin_ns, std::int64_t max_bytes);

  // What is added from now on belongs to this step.
  void SetStep(std::int64_t step) { step_ = step; }
  void Add(const Span& span);
  void AddCounter(const std::string& name, const std::string& unit, std::int64_t time_ns,
                  double value);
  // The units whose gathers and scatters a step's schedule has. What else ranks exchange (what they
  // agree on between steps) is no work of a family: its spans have "agreement" instead. Empty: all
  // collectives are the schedule's.
  void SetUnits(std::set<std::string, std::less<>> units) { units_ = std::move(units); }
  // Of the compute stream.
  void OnLaunch(const LaunchWork& work, std::int64_t begin_ns, std::int64_t end_ns) override;
  // Those of `recorder` that have finished and come after `after`; returns the last sequence that
  // was looked at. What the ring has overwritten meanwhile counts as dropped.
  std::int64_t AddCollectives(const FlightRecorder& recorder, std::int64_t after);

  // What came since the last call, as a piece of recording_pieces.h: its strings go on with those
  // of the pieces before it. What was dropped is counted from the beginning.
  v1::RankProfile Take();

 private:
  std::uint32_t Intern(std::string_view text);
  [[nodiscard]] std::string_view FamilyOf(const CollectiveEntry& entry) const;
  // Whether `bytes` more still fit.
  bool Reserve(std::int64_t bytes);

  const std::int64_t begin_ns_;
  const std::int64_t max_bytes_;
  std::int64_t bytes_ = 0;
  std::int64_t step_ = 0;
  v1::RankProfile profile_;
  int num_strings_taken_ = 0;
  std::map<std::string, std::uint32_t, std::less<>> strings_;
  std::map<std::string, int, std::less<>> counters_;
  std::set<std::string, std::less<>> units_;
};

// "4096x3072x1024 bf16".
std::string ShapeText(const LaunchWork& work);

}  // namespace fsdp

#endif  // FSDPCTL_WORKER_PROFILE_SPAN_RECORDER_H_
