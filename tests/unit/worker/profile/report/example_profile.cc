#include "tests/unit/worker/profile/report/example_profile.h"

namespace fsdp {
namespace {

constexpr std::int64_t kStepUs = 10000;
constexpr int kSteps = 2;
constexpr double kFlopsCeiling = 60e12;
constexpr double kBytesCeiling = 2.4e12;

struct Texts {
  std::string job, host, softmax, loss, note;
};

Texts TextsOf(ExampleNames names) {
  if (names == ExampleNames::kPlain) {
    return {"jobs/minillm-4k2m9x1c", "node-a", "softmax", "cross_entropy",
            "hardware counters are not permitted to this user"};
  }
  return {"jobs/minillm-<script>alert('x')</script>-ü", "node \"a\" & b\\c",
          "softmax 核 \xf0\x9f\x9a\x80", "<script>alert(\"loss\")</script>\n\x01",
          "counters: <b>not permitted</b>"};
}

void AddCompute(const Texts& texts, int step, RankBuilder* rank) {
  const std::int64_t begin = step * kStepUs;
  const auto add = [&](std::int64_t from, std::int64_t duration, const std::string& name,
                       const char* family, const char* shape, double flops, double bytes) {
    rank->Add({v1::PROFILE_TRACK_COMPUTE, begin + from, duration, name, family, shape, flops, bytes,
               step, 0});
  };
  add(300, 1000, "matmul", "matmul.qkv", "4096x3072x1024 bf16", 2.58e10, 3.9e7);
  add(1300, 2000, "attention.fwd", "attention.fwd", "16x256x64 bf16", 3.4e10, 6.7e7);
  add(1800, 500, texts.softmax, "attention.fwd", "", 0, 6.7e7);
  add(2000, 0, "mark", "attention.fwd", "", 0, 0);
  add(3500, 1000, "matmul", "matmul.mlp", "4096x4096x1024 bf16", 3.44e10, 5e7);
  add(4500, 1000, "matmul", "matmul.mlp", "4096x1024x4096 bf16", 3.44e10, 5e7);
  add(5500, 500, "rms_norm", "norm", "4096x1024 bf16", 1.6e7, 1e9);
  add(6000, 100, texts.loss, "loss", "4096x32000 f32", 0, 1e8);
  add(6100, 2000, "attention.bwd", "attention.bwd", "16x256x64 bf16", 8.5e10, 1.7e8);
  add(8900, 600, "adamw", "optimizer", "", 1e8, 1.2e9);
}

void AddCommunication(int step, std::int64_t late_us, RankBuilder* rank) {
  const std::int64_t begin = step * kStepUs + late_us;
  const std::int64_t sequence = step * 3;
  rank->Add({v1::PROFILE_TRACK_GATHER, begin, 1200 - late_us, "all_gather layers.0", "gather", "",
             0, 2.5e7, step, sequence + 1});
  rank->Add({v1::PROFILE_TRACK_GATHER, begin + 1000, 1000 - late_us, "all_gather layers.1",
             "gather", "", 0, 2.5e7, step, sequence + 2});
  rank->Add({v1::PROFILE_TRACK_SCATTER, begin + 7900, 1000 - late_us, "reduce_scatter layers.0",
             "scatter", "", 0, 2.5e7, step, sequence + 3});
  rank->Add({v1::PROFILE_TRACK_COPY, step * kStepUs + 4000, 100, "snapshot", "copy", "", 0, 1e8,
             step, 0});
}

void AddHost(int step, RankBuilder* rank) {
  const std::int64_t begin = step * kStepUs;
  rank->Add({v1::PROFILE_TRACK_HOST, begin, kStepUs, "step", "", "", 0, 0, step, 0});
  rank->Add({v1::PROFILE_TRACK_HOST, begin, 100, "data", "", "", 0, 0, step, 0});
  rank->Add({v1::PROFILE_TRACK_PHASE, begin, 100, "data", "", "", 0, 0, step, 0});
  rank->Add({v1::PROFILE_TRACK_PHASE, begin + 100, 8800, "compute", "", "", 0, 0, step, 0});
  rank->Add({v1::PROFILE_TRACK_PHASE, begin + 8900, 600, "optimizer", "", "", 0, 0, step, 0});
  rank->AddStep(step, begin, kStepUs);
  v1::StepPhases& phases =
      *rank->profile().mutable_steps(rank->profile().steps_size() - 1)->mutable_phases();
  phases.set_data_seconds(100e-6);
  phases.set_compute_seconds(7600e-6);
  phases.set_exposed_gather_seconds(200e-6);
  phases.set_exposed_scatter_seconds(800e-6);
  phases.set_optimizer_seconds(600e-6);
  phases.set_other_seconds(500e-6);
  phases.set_unattributed_seconds(200e-6);
  phases.set_overlapped_gather_seconds(1800e-6);
  phases.set_launch_gap_seconds(200e-6);
}

void AddCounters(v1::RankProfile* rank) {
  v1::ProfileCounter& memory = *rank->add_counters();
  memory.set_name("memory");
  memory.set_unit("bytes");
  v1::ProfileCounter& sm = *rank->add_counters();
  sm.set_name("sm");
  sm.set_unit("ratio");
  for (int i = 0; i < 40; ++i) {
    memory.add_time_ns(i * 500'000);
    memory.add_values(3e9 + 2e9 * (i % 20) / 20.0);
    sm.add_time_ns(i * 500'000);
    sm.add_values(i % 20 < 17 ? 0.62 : 0.05);
  }
}

// Of both steps. The time of softmax is in attention.fwd's.
void AddFamilies(bool has_roofs, v1::RankProfile* rank) {
  const auto add = [&](const char* family, double seconds, std::int64_t launches, double flops,
                       double bytes, v1::Bound bound, double savable, const char* remedy) {
    v1::FamilyVerdict& verdict = *rank->add_families();
    verdict.set_family(family);
    verdict.set_seconds(seconds * kSteps);
    verdict.set_launches(launches * kSteps);
    verdict.set_flops(flops * kSteps);
    verdict.set_bytes(bytes * kSteps);
    verdict.set_source(v1::METRIC_SOURCE_ANALYTIC);
    verdict.set_bound(v1::BOUND_UNSPECIFIED);
    if (!has_roofs && bound != v1::BOUND_COMMUNICATION) return;
    verdict.set_bound(bound);
    verdict.set_compute_ratio(flops / seconds / kFlopsCeiling);
    verdict.set_memory_ratio(bytes / seconds / kBytesCeiling);
    verdict.set_savable_seconds(savable * kSteps);
    verdict.set_remedy(remedy);
  };
  add("matmul.mlp", 2000e-6, 2, 6.88e10, 1e8, v1::BOUND_BALANCED, 850e-6, "");
  add("attention.fwd", 2000e-6, 3, 3.4e10, 1.34e8, v1::BOUND_BALANCED, 1430e-6, "");
  add("attention.bwd", 2000e-6, 1, 8.5e10, 1.7e8, v1::BOUND_COMPUTE, 580e-6,
      "sizes that are multiples of 64 or 128");
  add("matmul.qkv", 1000e-6, 1, 2.58e10, 3.9e7, v1::BOUND_BALANCED, 570e-6, "");
  add("gather", 2200e-6, 2, 0, 5e7, v1::BOUND_COMMUNICATION, 300e-6,
      "sharding.prefetch 1, precision.parameters bf16");
  add("scatter", 1000e-6, 1, 0, 2.5e7, v1::BOUND_COMMUNICATION, 800e-6, "precision.reduce bf16");
  add("optimizer", 600e-6, 1, 1e8, 1.2e9, v1::BOUND_MEMORY, 100e-6,
      "fuse with its neighbours, store in fewer bits & raise the batch");
  add("norm", 500e-6, 1, 1.6e7, 1e9, v1::BOUND_MEMORY, 83e-6,
      "fuse with its neighbours, store in fewer bits, or raise the batch");
  add("loss", 100e-6, 1, 0, 1e8, v1::BOUND_BALANCED, 58e-6, "");
}

v1::RankProfile ExampleRank(int number, const Texts& texts) {
  const bool is_last = number == 3;
  RankBuilder rank(number, 4);
  for (int step = 0; step < kSteps; ++step) {
    AddHost(step, &rank);
    AddCompute(texts, step, &rank);
    AddCommunication(step, is_last ? 500 : 0, &rank);
  }
  v1::RankProfile& profile = rank.profile();
  AddCounters(&profile);
  AddFamilies(!is_last, &profile);
  profile.set_job(texts.job);
  profile.set_host(texts.host);
  profile.set_begin_ns(5'000'000'000'000 - number * 700'000'000LL + number * 20'000LL);
  profile.set_end_ns(profile.begin_ns() + kSteps * kStepUs * 1000);
  profile.set_flops_ceiling(is_last ? 0 : kFlopsCeiling);
  profile.set_bytes_ceiling(is_last ? 0 : kBytesCeiling);
  profile.set_model_flops_per_step(8e11);
  profile.set_memory_peak_bytes(5'200'000'000 + number * 1'000'000);
  profile.set_spans_dropped(number == 1 ? 7 : 0);
  if (number == 0) profile.add_notes(texts.note);
  return profile;
}

}  // namespace

RankBuilder::RankBuilder(int rank, int world_size) {
  profile_.set_format(1);
  profile_.set_rank(rank);
  profile_.set_world_size(world_size);
  profile_.set_worker("worker-" + std::to_string(rank));
  profile_.set_device("NVIDIA H200");
  profile_.set_dtype("bf16");
  profile_.set_version("0.1.0");
  profile_.set_begin_ns(1'000'000'000);
  profile_.set_end_ns(1'000'000'000);
  profile_.mutable_begin_time()->set_seconds(1'790'000'000);
  profile_.set_timing(v1::PROFILE_TIMING_ACTIVITY);
  profile_.add_strings("");
}

std::uint32_t RankBuilder::Place(const std::string& text) {
  if (text.empty()) return 0;
  const auto [place, is_new] =
      places_.emplace(text, static_cast<std::uint32_t>(profile_.strings_size()));
  if (is_new) profile_.add_strings(text);
  return place->second;
}

RankBuilder& RankBuilder::Add(const ExampleSpan& span) {
  v1::ProfileSpan& to = *profile_.add_spans();
  to.set_track(span.track);
  to.set_begin_ns(span.begin_us * 1000);
  to.set_duration_ns(span.duration_us * 1000);
  to.set_name(Place(span.name));
  to.set_family(Place(span.family));
  to.set_shape(Place(span.shape));
  to.set_flops(span.flops);
  to.set_bytes(span.bytes);
  to.set_step(span.step);
  to.set_sequence(span.sequence);
  return *this;
}

RankBuilder& RankBuilder::AddStep(std::int64_t step, std::int64_t begin_us,
                                  std::int64_t duration_us) {
  v1::ProfileStep& to = *profile_.add_steps();
  to.set_step(step);
  to.set_begin_ns(begin_us * 1000);
  to.set_duration_ns(duration_us * 1000);
  if (profile_.steps_size() == 1) profile_.set_first_step(step);
  profile_.set_last_step(step);
  profile_.set_end_ns(profile_.begin_ns() + (begin_us + duration_us) * 1000);
  return *this;
}

v1::JobProfile ExampleProfile(ExampleNames names) {
  const Texts texts = TextsOf(names);
  v1::JobProfile profile;
  profile.set_job(texts.job);
  profile.set_profile("p-0001");
  for (const int rank : {0, 1, 3}) {
    *profile.add_ranks() = ExampleRank(rank, texts);
    v1::RankClock& clock = *profile.add_clocks();
    clock.set_rank(rank);
    clock.set_offset_ns(rank * 700'000'000LL);
    clock.set_uncertainty_ns(rank == 0 ? 0 : 4'000 * rank);
  }
  profile.add_missing("rank 2: its worker did not answer within 30s");
  return profile;
}

}  // namespace fsdp
