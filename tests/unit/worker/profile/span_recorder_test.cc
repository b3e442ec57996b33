// Recordings of steps, the peaks that utilisation is relative to, what a family could save, and the
// collectives' totals.

#include "worker/profile/span_recorder.h"

#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "proto/support/profile_options.h"
#include "proto/support/recording_pieces.h"
#include "tests/fakes/fake_clock.h"
#include "worker/profile/device_peaks.h"

namespace fsdp {
namespace {

using ::testing::HasSubstr;

// As it will be read.
v1::RankProfile Taken(SpanRecorder& recorder) {
  return JoinRecordingPieces(RecordingPiece(recorder.Take())).value();
}

constexpr std::int64_t kBegin = 1'000'000;

LaunchWork MatMul() {
  return {KernelFamily::kMatMulMlp, "matmul", 12, 34, {64, 32, 16}, DType::kBf16};
}

TEST(SpanRecorder, LaunchesBecomeSpansWithNamesOnce) {
  SpanRecorder recorder(kBegin, 1 << 20);
  recorder.SetStep(7);
  recorder.OnLaunch(MatMul(), kBegin + 500, kBegin + 900);
  recorder.OnLaunch(MatMul(), kBegin + 100, kBegin + 200);
  recorder.AddCounter("memory", "bytes", kBegin + 50, 4096);
  recorder.AddCounter("memory", "bytes", kBegin + 90, 5000);
  const v1::RankProfile profile = Taken(recorder);
  ASSERT_EQ(profile.spans_size(), 2);
  // In the order of their begins.
  const v1::ProfileSpan& span = profile.spans(0);
  EXPECT_EQ(span.begin_ns(), 100);
  EXPECT_EQ(span.duration_ns(), 100);
  EXPECT_EQ(span.step(), 7);
  EXPECT_EQ(span.track(), v1::PROFILE_TRACK_COMPUTE);
  EXPECT_EQ(profile.strings(static_cast<int>(span.name())), "matmul");
  EXPECT_EQ(profile.strings(static_cast<int>(span.family())), "matmul.mlp");
  EXPECT_EQ(profile.strings(static_cast<int>(span.shape())), "64x32x16 bf16");
  EXPECT_EQ(span.flops(), 12);
  EXPECT_EQ(span.bytes(), 34);
  EXPECT_EQ(profile.strings_size(), 4) << "the empty one, and three names for two spans";
  ASSERT_EQ(profile.counters_size(), 1);
  EXPECT_EQ(profile.counters(0).values_size(), 2);
  EXPECT_EQ(profile.spans_dropped(), 0);
}

TEST(SpanRecorder, WhatDoesNotFitIsCountedAndTheRecordingStaysBelowItsLimit) {
  constexpr std::int64_t kLimit = 2000;
  SpanRecorder recorder(kBegin, kLimit);
  for (int i = 0; i < 500; ++i) recorder.OnLaunch(MatMul(), kBegin + 10 * i, kBegin + 10 * i + 5);
  const v1::RankProfile profile = Taken(recorder);
  EXPECT_GT(profile.spans_size(), 20);
  EXPECT_EQ(profile.spans_size() + profile.spans_dropped(), 500);
  EXPECT_LE(static_cast<std::int64_t>(profile.ByteSizeLong()), kLimit + 64);
}

TEST(SpanRecorder, CollectivesComeFromTheFlightRecorderOnce) {
  FakeClock clock;
  FlightRecorder flights(clock, /*capacity=*/4);
  const auto run = [&](const char* operation, const char* unit, const char* communicator) {
    const std::int64_t sequence = flights.Enqueue(operation, unit, communicator, 100, "bf16");
    flights.Start(sequence);
    clock.Advance(absl::Milliseconds(2));
    flights.Finish(sequence, true);
  };
  run("all_gather", "embed", "gather");
  const std::int64_t before = flights.last_sequence();
  run("all_gather", "layers.0", "gather");
  run("reduce_scatter", "layers.0", "scatter");
  const std::int64_t pending = flights.Enqueue("all_gather", "head", "gather", 100, "bf16");
  flights.Start(pending);
  SpanRecorder recorder(0, 1 << 20);
  const std::int64_t last = recorder.AddCollectives(flights, before);
  EXPECT_EQ(last, 3);
  flights.Finish(pending, true);
  EXPECT_EQ(recorder.AddCollectives(flights, last), 4);
  v1::RankProfile profile = Taken(recorder);
  ASSERT_EQ(profile.spans_size(), 3);
  EXPECT_EQ(profile.strings(static_cast<int>(profile.spans(0).name())), "all_gather layers.0");
  EXPECT_EQ(profile.spans(0).sequence(), 2);
  EXPECT_EQ(profile.spans(0).duration_ns(), 2'000'000);
  EXPECT_EQ(profile.spans(2).track(), v1::PROFILE_TRACK_SCATTER);
  // Six more than the ring holds: two of them are gone.
  for (int i = 0; i < 6; ++i) run("all_reduce", "step_stats", "gather");
  recorder.AddCollectives(flights, 4);
  profile = Taken(recorder);
  EXPECT_EQ(profile.spans_size(), 4);
  EXPECT_EQ(profile.spans_dropped(), 2);
}

TEST(FlightRecorder, TotalsAreByOperationAndOfWhatWentWell) {
  FakeClock clock;
  FlightRecorder flights(clock);
  for (const bool ok : {true, true, false}) {
    const std::int64_t sequence = flights.Enqueue("all_gather", "embed", "gather", 100, "f32");
    flights.Start(sequence);
    clock.Advance(absl::Milliseconds(5));
    flights.Finish(sequence, ok);
  }
  const auto totals = flights.Totals();
  ASSERT_EQ(totals.size(), 1U);
  EXPECT_EQ(totals.at("all_gather").count, 2);
  EXPECT_EQ(totals.at("all_gather").bytes, 200);
  EXPECT_DOUBLE_EQ(totals.at("all_gather").seconds, 0.01);
}

TEST(DevicePeaks, OfTheDatasheetByNameElseWhatWasMeasured) {
  EXPECT_EQ(PeakFlops("NVIDIA H200", true, 7e14), 989.4e12);
  EXPECT_EQ(PeakFlops("NVIDIA H100 PCIe", true, 7e14), 756e12);
  EXPECT_EQ(PeakFlops("NVIDIA H100 80GB HBM3", true, 7e14), 989.4e12);
  EXPECT_EQ(PeakFlops("NVIDIA A100-SXM4-80GB", false, 7e14), 19.5e12);
  EXPECT_EQ(PeakFlops("NVIDIA L40S", true, 1), 362e12);
  EXPECT_EQ(PeakFlops("NVIDIA L40", true, 1), 1) << "is no L4";
  EXPECT_EQ(PeakFlops("NVIDIA A100", true, 1), 312e12) << "is no A10";
  EXPECT_EQ(PeakFlops("AMD EPYC (2 threads)", true, 3e11), 3e11);
}

TEST(Judge, WhatCouldBeSavedIsAboveTheNearerRoof) {
  const Ceilings ceilings{100, 10};
  // 2 s, of which the FLOPs need 1 s and the bytes 1.5 s.
  FamilyTotals totals{2, 1, 100, 15};
  EXPECT_DOUBLE_EQ(Judge(KernelFamily::kNorm, totals, ceilings).savable_seconds, 0.5);
  EXPECT_DOUBLE_EQ(Judge(KernelFamily::kNorm, totals, {}).savable_seconds, 0);
  // Faster than a ceiling that was measured badly: nothing is saved.
  EXPECT_DOUBLE_EQ(Judge(KernelFamily::kNorm, {1, 1, 100, 15}, ceilings).savable_seconds, 0);
  EXPECT_EQ(Judge(KernelFamily::kNorm, totals, {}).bound, v1::BOUND_UNSPECIFIED);
  totals.exposed_seconds = 0.25;
  EXPECT_DOUBLE_EQ(Judge(KernelFamily::kGather, totals, ceilings).savable_seconds, 0.25);
  // The step's sums are waited for behind the last scatters, and are none of them.
  totals.exposed_seconds = 3;
  EXPECT_DOUBLE_EQ(Judge(KernelFamily::kScatter, totals, ceilings).savable_seconds, 2);
}

TEST(Judge, WhatCountersMeasuredIsJudgedInPlaceOfWhatWasCounted) {
  const Ceilings ceilings{100, 10};
  // Counted: far below both roofs. Measured: HBM is busy and the multiprocessors are not.
  const FamilyTotals totals{2, 1, 1, 1};
  const MeasuredRatios measured{50, 0.1, 0.92, 0};
  const Verdict verdict = Judge(KernelFamily::kNorm, totals, ceilings, {}, measured);
  EXPECT_EQ(verdict.bound, v1::BOUND_MEMORY);
  EXPECT_DOUBLE_EQ(verdict.compute_ratio, 0.1);
  EXPECT_DOUBLE_EQ(verdict.memory_ratio, 0.92);
  EXPECT_EQ(Judge(KernelFamily::kNorm, totals, ceilings).bound, v1::BOUND_BALANCED);
  MeasuredTable table{};
  table[static_cast<std::size_t>(KernelFamily::kNorm)] = {50, 0.1, 0.92, 0.5};
  FamilyTable families{};
  families[static_cast<std::size_t>(KernelFamily::kNorm)] = totals;
  families[static_cast<std::size_t>(KernelFamily::kLoss)] = totals;
  google::protobuf::RepeatedPtrField<v1::FamilyVerdict> verdicts;
  AppendVerdicts(families, ceilings, {}, table, &verdicts);
  ASSERT_EQ(verdicts.size(), 2);
  for (const v1::FamilyVerdict& family : verdicts) {
    const bool norm = family.family() == "norm";
    EXPECT_EQ(family.source(), norm ? v1::METRIC_SOURCE_PM_SAMPLING : v1::METRIC_SOURCE_ANALYTIC);
    EXPECT_EQ(family.samples(), norm ? 50 : 0);
    EXPECT_EQ(family.tensor_ratio(), norm ? 0.5 : 0);
  }
}

TEST(ProfileOptions, DefaultsAndLimits) {
  v1::ProfileOptions options;
  auto checked = CheckProfileOptions(options, 100);
  ASSERT_TRUE(checked.ok());
  EXPECT_EQ(checked->steps(), 5);
  EXPECT_EQ(checked->max_bytes(), (std::int64_t{256} << 20) / 100);
  options.add_ranks(3);
  options.add_ranks(1);
  options.add_ranks(3);
  checked = CheckProfileOptions(options, 4);
  ASSERT_TRUE(checked.ok());
  EXPECT_THAT(checked->ranks(), ::testing::ElementsAre(1, 3));
  EXPECT_EQ(checked->max_bytes(), std::int64_t{20} << 20);
  const auto refusal = [](const v1::ProfileOptions& bad) {
    return std::string(CheckProfileOptions(bad, 3).status().message());
  };
  EXPECT_THAT(refusal(options), HasSubstr("ranks has 3: the job has ranks 0 to 2"));
  options.Clear();
  options.set_steps(1001);
  EXPECT_THAT(refusal(options), HasSubstr("steps is 1001: use 1 to 1000"));
  options.set_steps(-1);
  EXPECT_THAT(refusal(options), HasSubstr("steps is -1"));
  options.Clear();
  options.set_max_bytes((64 << 20) + 1);
  EXPECT_THAT(refusal(options), HasSubstr("max_bytes"));
}

}  // namespace
}  // namespace fsdp
