#ifndef FSDPCTL_TESTS_UNIT_WORKER_PROFILE_REPORT_EXAMPLE_PROFILE_H_
#define FSDPCTL_TESTS_UNIT_WORKER_PROFILE_REPORT_EXAMPLE_PROFILE_H_

// Profiles made by hand, whose figures the tests know.

#include <cstdint>
#include <map>
#include <string>

#include "fsdp/v1/profile.pb.h"

namespace fsdp {

// A launch or phase; times in microseconds since the recording's begin.
struct ExampleSpan {
  v1::ProfileTrack track = v1::PROFILE_TRACK_COMPUTE;
  std::int64_t begin_us = 0;
  std::int64_t duration_us = 0;
  std::string name;
  std::string family;
  std::string shape;
  double flops = 0;
  double bytes = 0;
  std::int64_t step = 0;
  std::int64_t sequence = 0;
};

// A recording of one rank that passes ValidateRankProfile.
class RankBuilder {
 public:
  RankBuilder(int rank, int world_size);
  RankBuilder& Add(const ExampleSpan& span);
  RankBuilder& AddStep(std::int64_t step, std::int64_t begin_us, std::int64_t duration_us);
  v1::RankProfile& profile() { return profile_; }

 private:
  std::uint32_t Place(const std::string& text);
  v1::RankProfile profile_;
  std::map<std::string, std::uint32_t> places_;
};

enum class ExampleNames {
  kPlain,
  // Markup, quotes, control characters and several scripts in the texts that users give.
  kHostile,
};

// Two steps of 10 ms of a job of four ranks; rank 2 is missing. On every rank a step has
//   compute  qkv 0.3-1.3, attention.fwd 1.3-3.3 (softmax inside, 1.8-2.3), mlp 3.5-4.5 and 4.5-5.5,
//            norm 5.5-6.0, loss 6.0-6.1, attention.bwd 6.1-8.1, optimizer 8.9-9.5
//   gather   0.0-1.2 and 1.0-2.0, which overlap; scatter 7.9-8.9; copy 4.0-4.1
// Rank 3 comes 0.5 ms late to every collective, has no roofs and recorded with the least certain
// clock; rank 1 lost 7 spans. The ranks begin 20 us after each other on clocks that are 0.7 s
// apart.
v1::JobProfile ExampleProfile(ExampleNames names);

}  // namespace fsdp

#endif  // FSDPCTL_TESTS_UNIT_WORKER_PROFILE_REPORT_EXAMPLE_PROFILE_H_
