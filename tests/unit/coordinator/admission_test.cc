// What admission says of memory, in numbers that a user can act on.

#include "coordinator/admission/admission.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "proto/support/spec.h"

namespace fsdp::coordinator {
namespace {

using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr std::int64_t kGiB = std::int64_t{1} << 30;

v1::TrainingJob Llama8b(int ranks) {
  SpecOptions options;
  options.sets = {"resources.devicesPerNode=" + std::to_string(ranks)};
  return LoadJob(R"({apiVersion: fsdp.v1, kind: TrainingJob, metadata: {name: a}, spec: {
      model: {preset: llama8b}, data: {source: synthetic, sequenceLength: 8192},
      train: {globalBatch: 8, recompute: selective}, resources: {device: cuda},
      limits: {maxSteps: 1}}})",
                 options)
      .job;
}

TEST(AdmissionTest, WhatNoDeviceHoldsIsToldTheRanksThatDo) {
  const auto refused = SpecAdmission().Admit(Llama8b(1), {{80 * kGiB, 80 * kGiB}});
  EXPECT_EQ(refused.status().code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(std::string(refused.status().message()),
              HasSubstr("; remedies: 4 ranks (recompute none), 3 ranks (selective), 2 ranks "
                        "(full); spec.data.sequenceLength below 8192"));
}

// It fits on the larger devices alone, of which there are too few: it may wait for more, or be
// submitted so that the others do.
TEST(AdmissionTest, AJobThatWaitsForLargeDevicesIsToldWhatWouldFitTheSmallOnes) {
  const auto waits = SpecAdmission().Admit(Llama8b(2), {{139 * kGiB, 80 * kGiB, 80 * kGiB}});
  ASSERT_TRUE(waits.ok()) << waits.status();
  EXPECT_THAT(
      waits->warnings,
      Contains(HasSubstr("which 1 of 3 known devices have: it waits for more of them; would "
                         "fit any of them with 4 ranks (recompute none), 3 ranks "
                         "(selective), 2 ranks (full)")));
  const auto tiny = SpecAdmission().Admit(Llama8b(2), {{139 * kGiB, kGiB}});
  ASSERT_TRUE(tiny.ok()) << tiny.status();
  EXPECT_THAT(tiny->warnings, Contains(HasSubstr("it waits for more of them")));
  EXPECT_THAT(tiny->warnings, Not(Contains(HasSubstr("would fit any"))));
}

}  // namespace
}  // namespace fsdp::coordinator
