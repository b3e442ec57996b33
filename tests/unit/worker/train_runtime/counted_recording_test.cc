// Samples of a window in the recording of the same steps.

#include "worker/train/counted_recording.h"

#include <cstdint>

#include "gmock/gmock.h"

namespace fsdp {
namespace {

using ::testing::HasSubstr;

constexpr std::int64_t kBegin = 5'000'000'000;  // of the recording
constexpr std::int64_t kSample = 100'000;
constexpr std::int64_t kLaunch = 50 * kSample;

// One step: 50 samples of a matmul, 50 of a norm, and after it 50 of nothing.
v1::RankProfile Profile() {
  v1::RankProfile profile;
  profile.set_begin_ns(kBegin);
  for (const char* text : {"", "matmul.mlp", "norm", "train"}) profile.add_strings(text);
  const auto add = [&](v1::ProfileTrack track, std::int64_t begin_ns, std::uint32_t family) {
    v1::ProfileSpan& span = *profile.add_spans();
    span.set_track(track);
    span.set_begin_ns(begin_ns);
    span.set_duration_ns(kLaunch);
    span.set_family(family);
  };
  add(v1::PROFILE_TRACK_COMPUTE, 0, 1);
  add(v1::PROFILE_TRACK_COMPUTE, kLaunch, 2);
  add(v1::PROFILE_TRACK_HOST, 0, 0);  // nothing of the device
  v1::ProfileStep& step = *profile.add_steps();
  step.set_duration_ns(2 * kLaunch);
  return profile;
}

// From before the step to after it; what comes first has a garbage length.
CounterReading Reading() {
  CounterReading reading;
  reading.begin_ns = kBegin - 10 * kSample;
  reading.end_ns = kBegin + 3 * kLaunch;
  for (std::int64_t at = reading.begin_ns; at < reading.end_ns; at += kSample) {
    CounterSample sample{at, at + kSample, 0, 0, 0};
    if (at >= kBegin && at < kBegin + kLaunch) sample = {at, at + kSample, 0.9, 0.2, 0.8};
    if (at >= kBegin + kLaunch) sample = {at, at + kSample, 0.1, 0.9, 0};
    reading.samples.push_back(sample);
  }
  return reading;
}

const MeasuredRatios& Of(const MeasuredTable& table, KernelFamily family) {
  return table[static_cast<std::size_t>(family)];
}

TEST(CountedRecordingTest, FamiliesAndTracksAreThoseOfTheSteps) {
  v1::RankProfile profile = Profile();
  const MeasuredTable measured = AddSamples(Reading(), 1 << 20, &profile);
  EXPECT_EQ(profile.counter_source(), v1::METRIC_SOURCE_PM_SAMPLING);
  EXPECT_NEAR(Of(measured, KernelFamily::kMatMulMlp).compute, 0.9, 1e-6);
  EXPECT_NEAR(Of(measured, KernelFamily::kMatMulMlp).tensor, 0.8, 1e-6);
  EXPECT_NEAR(Of(measured, KernelFamily::kNorm).memory, 0.9, 1e-6);
  EXPECT_EQ(Of(measured, KernelFamily::kMatMulMlp).samples, 50);
  EXPECT_EQ(Of(measured, KernelFamily::kOptimizer).samples, 0);
  ASSERT_EQ(profile.counters_size(), 3);
  const v1::ProfileCounter& hbm = profile.counters(1);
  EXPECT_EQ(hbm.name(), "hbm");
  EXPECT_EQ(hbm.unit(), "ratio");
  ASSERT_EQ(hbm.time_ns_size(), 100) << "the step's, none before or after it";
  EXPECT_EQ(hbm.time_ns(0), 0);
  EXPECT_EQ(hbm.values(0), 0.2);
  EXPECT_EQ(hbm.values(99), 0.9);
  EXPECT_TRUE(profile.notes().empty());
}

TEST(CountedRecordingTest, WhatDoesNotFitIsPutTogetherAndSaidSo) {
  v1::RankProfile profile = Profile();
  AddSamples(Reading(), 10 * 51, &profile);
  ASSERT_EQ(profile.counters(0).time_ns_size(), 10);
  EXPECT_NEAR(profile.counters(0).values(0), 0.9, 1e-9);
  EXPECT_EQ(profile.counters(0).time_ns(1), 10 * kSample);
  ASSERT_EQ(profile.notes_size(), 1);
  EXPECT_THAT(profile.notes(0), HasSubstr("means of 10 samples"));
}

TEST(CountedRecordingTest, AWindowThatEndsEarlySaysWhatItCovers) {
  v1::RankProfile profile = Profile();
  CounterReading reading = Reading();
  reading.end_ns = kBegin + kLaunch;
  reading.samples.resize(60);
  const MeasuredTable measured = AddSamples(reading, 1 << 20, &profile);
  EXPECT_EQ(Of(measured, KernelFamily::kMatMulMlp).samples, 50);
  EXPECT_EQ(Of(measured, KernelFamily::kNorm).samples, 0);
  ASSERT_EQ(profile.notes_size(), 1);
  EXPECT_THAT(profile.notes(0), HasSubstr("sampled for 5 ms of 10"));
}

TEST(CountedRecordingTest, LossesAndAnEmptyWindowAreNoted) {
  v1::RankProfile profile = Profile();
  CounterReading reading = Reading();
  reading.dropped = {{"overflow", 7}, {"edge", 0}};
  reading.end_ns = kBegin - kSample;
  const MeasuredTable measured = AddSamples(reading, 1 << 20, &profile);
  EXPECT_EQ(Of(measured, KernelFamily::kNorm).samples, 0);
  EXPECT_EQ(profile.counters_size(), 0);
  EXPECT_NE(profile.counter_source(), v1::METRIC_SOURCE_PM_SAMPLING);
  ASSERT_EQ(profile.notes_size(), 2);
  EXPECT_THAT(profile.notes(0), HasSubstr("lost 7 (overflow)"));
  EXPECT_THAT(profile.notes(1), HasSubstr("no sample"));
}

}  // namespace
}  // namespace fsdp
