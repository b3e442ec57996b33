#include "worker/train/bench.h"

#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <fstream>
#include <nlohmann/json.hpp>
#include <numeric>
#include <sstream>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "proto/support/status.h"
#include "worker/device/philox.h"
#include "worker/train/engine.h"
#include "worker/train/oracle_file.h"
#include "worker/train/tool_flags.h"
#include "worker/train/tool_model.h"
#include "worker/train/trainer_errors.h"
#include "worker/train/weights_checksum.h"

namespace fsdp {
namespace {

// Since this process was started, to the clock tick (10 ms).
double SecondsSinceProcessStart() {
  std::ifstream stat("/proc/self/stat");
  std::ifstream uptime("/proc/uptime");
  std::string text((std::istreambuf_iterator<char>(stat)), std::istreambuf_iterator<char>());
  double up = 0;
  uptime >> up;
  // Field 22 is the start time; fields are counted after the name, which may hold spaces.
  std::istringstream fields(text.substr(std::min(text.size(), text.rfind(')') + 1)));
  std::string field;
  for (int i = 3; i <= 22; ++i) fields >> field;
  const double started = std::atof(field.c_str()) / static_cast<double>(sysconf(_SC_CLK_TCK));
  return up - started;
}

std::int64_t PeakResidentBytes() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return usage.ru_maxrss * 1024;
}

void FillTokens(std::uint64_t key, std::int64_t vocab, std::vector<std::int32_t>& out) {
  for (std::size_t i = 0; i < out.size(); i += 4) {
    const PhiloxBlock bits = PhiloxAt(key, i / 4);
    for (std::size_t lane = 0; lane < 4 && i + lane < out.size(); ++lane) {
      out[i + lane] = static_cast<std::int32_t>(bits[lane] % static_cast<std::uint64_t>(vocab));
    }
  }
}

void AddPhases(const v1::StepPhases& from, double weight, v1::StepPhases& to) {
  const auto* descriptor = v1::StepPhases::descriptor();
  const auto* reflection = v1::StepPhases::GetReflection();
  for (int i = 0; i < descriptor->field_count(); ++i) {
    const auto* field = descriptor->field(i);
    reflection->SetDouble(
        &to, field, reflection->GetDouble(to, field) + weight * reflection->GetDouble(from, field));
  }
}

class BenchRun {
 public:
  BenchRun(const BenchOptions& options, const LocalBackend& backend, LocalRank& rank)
      : options_(options), backend_(backend), rank_(rank) {}

  absl::StatusOr<BenchReport> Run() {
    RETURN_IF_ERROR(Prepare());
    const std::int64_t total = options_.warmup + options_.steps;
    FamilyTable before{};
    auto begin = std::chrono::steady_clock::now();
    for (std::int64_t step = 1; step <= total; ++step) {
      if (step == options_.warmup + 1) {
        RETURN_IF_ERROR(TakeLast());
        before = engine_->families();
        begin = std::chrono::steady_clock::now();
      }
      RETURN_IF_ERROR(Step(step));
      RETURN_IF_ERROR(SaveAfter(step));
    }
    RETURN_IF_ERROR(TakeLast());
    const std::chrono::duration<double> wall = std::chrono::steady_clock::now() - begin;
    report_.wall_seconds = wall.count();
    if (checkpoints_ != nullptr) {
      ASSIGN_OR_RETURN(report_.checkpoints, checkpoints_->Finish());
    }
    Finish(before);
    if (options_.checksum) {
      ASSIGN_OR_RETURN(report_.checksum, WeightsChecksum(*engine_, rank_.device));
    }
    if (options_.floor) {
      FamilyTable step = report_.families;
      for (FamilyTotals& totals : step) totals.bytes /= static_cast<double>(options_.steps);
      ASSIGN_OR_RETURN(report_.floor, MeasureFloor(*engine_, rank_.device, step));
    }
    return report_;
  }

 private:
  absl::Status Prepare() {
    PlanInput input;
    input.model = options_.model;
    input.world_size = options_.world_size;
    input.sequence_length = options_.sequence_length;
    input.global_batch = options_.batch * options_.accumulate * options_.world_size;
    input.micro_batch = options_.batch;
    input.parameter_dtype = options_.parameter_dtype;
    input.reduce_dtype = options_.reduce_dtype;
    input.recompute = options_.recompute;
    input.prefetch = options_.prefetch;
    input.logits_chunk_bytes = options_.logits_chunk_mib << 20;
    input.num_communicators = options_.num_communicators;
    input.reshard_after_forward = options_.reshard_after_forward;
    input.async_checkpoint = options_.checkpoint_every > 0 && options_.checkpoint_async;
    if (backend_.memory_bytes) input.device_memory_bytes = backend_.memory_bytes(rank_.device);
    if (options_.device_memory_gb > 0) {
      input.device_memory_bytes = options_.device_memory_gb * 1'000'000'000;
    }
    ASSIGN_OR_RETURN(const Plan plan, Engine::PlanFor(input, rank_.device));
    ASSIGN_OR_RETURN(report_.attention, Engine::AttentionFor(plan, rank_.device));
    EngineOptions engine;
    engine.synchronous = options_.synchronous;
    engine.time_families = options_.time_families;
    engine.graphs = options_.graphs;
    ASSIGN_OR_RETURN(engine_,
                     Engine::Create(plan, engine, rank_.device, rank_.gather, rank_.scatter));
    RETURN_IF_ERROR(engine_->InitializeWeights(options_.seed));
    if (options_.checkpoint_every > 0) {
      ASSIGN_OR_RETURN(checkpoints_,
                       BenchCheckpoints::Create(options_.checkpoint_directory, *engine_, rank_));
    }
    report_.options = options_;
    report_.options.recompute = plan.input.recompute;
    report_.parameters = plan.parameters;
    report_.planned_bytes = plan.total_bytes;
    report_.model_flops_per_rank_step = plan.model_flops_per_step / options_.world_size;
    tokens_.resize(
        static_cast<std::size_t>(plan.split.Share(rank_.rank).count * options_.sequence_length));
    targets_.resize(tokens_.size());
    return absl::OkStatus();
  }

  absl::Status Step(std::int64_t step) {
    const auto key = (options_.seed << 32) +
                     static_cast<std::uint64_t>(step * 2 * options_.world_size + 2 * rank_.rank);
    FillTokens(key, options_.model.vocab_size, tokens_);
    FillTokens(key + 1, options_.model.vocab_size, targets_);
    const auto begin = std::chrono::steady_clock::now();
    ASSIGN_OR_RETURN(const StepResult result, engine_->Step({step, 3e-4, tokens_, targets_}));
    Take(result);
    if (step > 1) return absl::OkStatus();
    RETURN_IF_ERROR(rank_.device.Synchronize(rank_.device.compute()));
    const std::chrono::duration<double> first = std::chrono::steady_clock::now() - begin;
    report_.first_step_seconds = first.count();
    report_.start_to_first_step_seconds = SecondsSinceProcessStart();
    return absl::OkStatus();
  }

  absl::Status SaveAfter(std::int64_t step) {
    if (checkpoints_ == nullptr || step <= options_.warmup) return absl::OkStatus();
    return checkpoints_->AfterStep(step, (step - options_.warmup) % options_.checkpoint_every == 0);
  }

  // The step that is still on its way.
  absl::Status TakeLast() {
    if (options_.synchronous) return absl::OkStatus();
    ASSIGN_OR_RETURN(const StepResult last, engine_->Flush());
    Take(last);
    return absl::OkStatus();
  }

  void Take(const StepResult& result) {
    if (result.step == 0) return;
    report_.losses.push_back(result.loss);
    if (result.step <= options_.warmup) return;
    report_.step_seconds.push_back(result.step_seconds);
    AddPhases(result.phases, 1.0 / static_cast<double>(options_.steps), report_.phases);
    report_.launch_gap_seconds += result.launch_gap_seconds / static_cast<double>(options_.steps);
  }

  void Finish(const FamilyTable& before) {
    report_.families = Difference(engine_->families(), before);
    report_.peak_bytes = static_cast<std::int64_t>(rank_.device.allocated_bytes());
    report_.device_bytes =
        backend_.used_bytes ? backend_.used_bytes(rank_.device) : PeakResidentBytes();
    report_.predicted_seconds = ToProto(engine_->plan()).predicted_step_seconds();
  }

  const BenchOptions& options_;
  const LocalBackend& backend_;
  LocalRank& rank_;
  std::unique_ptr<Engine> engine_;
  std::unique_ptr<BenchCheckpoints> checkpoints_;
  std::vector<std::int32_t> tokens_, targets_;
  BenchReport report_;
};

double Rounded(double value, int digits) {
  const double scale = std::pow(10.0, digits);
  return std::round(value * scale) / scale;
}

nlohmann::ordered_json PhasesJson(const v1::StepPhases& phases) {
  nlohmann::ordered_json json;
  const auto* descriptor = v1::StepPhases::descriptor();
  for (int i = 0; i < descriptor->field_count(); ++i) {
    const auto* field = descriptor->field(i);
    const double seconds = v1::StepPhases::GetReflection()->GetDouble(phases, field);
    if (seconds != 0) json[field->name()] = seconds;
  }
  return json;
}

nlohmann::ordered_json FamiliesJson(const FamilyTable& families, std::int64_t steps) {
  nlohmann::ordered_json json;
  for (int i = 0; i < kNumKernelFamilies; ++i) {
    const FamilyTotals& totals = families[static_cast<std::size_t>(i)];
    if (totals.launches == 0) continue;
    const auto each = static_cast<double>(steps);
    json[NameOf(static_cast<KernelFamily>(i))] = {
        {"ms", Rounded(totals.seconds / each * 1e3, 3)},
        {"launches", static_cast<double>(totals.launches) / each},
        {"gflop", Rounded(totals.flops / each / 1e9, 3)},
        {"GB", Rounded(totals.bytes / each / 1e9, 3)}};
  }
  return json;
}

nlohmann::ordered_json FloorJson(const StepFloor& floor, double step_seconds) {
  return {{"ms", Rounded(floor.Seconds() * 1e3, 3)},
          {"step_over_floor", Rounded(step_seconds / floor.Seconds(), 4)},
          {"matmul_ms", Rounded(floor.matmul_seconds * 1e3, 3)},
          {"attention_ms", Rounded(floor.attention_seconds * 1e3, 3)},
          {"other_GB", Rounded(floor.bytes / 1e9, 3)},
          {"copy_TBps", Rounded(floor.copy_bytes_per_second / 1e12, 3)}};
}

double Mean(const std::vector<double>& seconds) {
  return std::accumulate(seconds.begin(), seconds.end(), 0.0) /
         static_cast<double>(std::max<std::size_t>(seconds.size(), 1));
}

nlohmann::ordered_json CheckpointsJson(const CheckpointFigures& figures, bool async) {
  const double gigabytes = static_cast<double>(figures.size_bytes) / 1e9;
  const double durable = Mean(figures.durable_seconds);
  const auto longest =
      std::max_element(figures.blocking_seconds.begin(), figures.blocking_seconds.end());
  return {
      {"async", async},
      {"saves", figures.durable_seconds.size()},
      {"GB", Rounded(gigabytes, 6)},
      {"blocking_s", Rounded(Mean(figures.blocking_seconds), 4)},
      {"longest_blocking_s", longest == figures.blocking_seconds.end() ? 0 : Rounded(*longest, 4)},
      {"durable_s", Rounded(durable, 3)},
      {"GBps", durable > 0 ? Rounded(gigabytes / durable, 3) : 0}};
}

v1::RecomputePolicy RecomputeFrom(const std::string& name) {
  if (name == "keep") return v1::RECOMPUTE_POLICY_KEEP;
  if (name == "none") return v1::RECOMPUTE_POLICY_NONE;
  if (name == "selective") return v1::RECOMPUTE_POLICY_SELECTIVE;
  return name == "full" ? v1::RECOMPUTE_POLICY_FULL : v1::RECOMPUTE_POLICY_AUTO;
}

}  // namespace

absl::StatusOr<BenchOptions> ParseBenchOptions(std::span<const std::string> arguments,
                                               const LocalBackend& backend) {
  std::vector<std::string> valued = {"model",      "batch",  "seq",       "steps", "warmup",
                                     "accumulate", "layers", "vocab",     "dim",   "heads",
                                     "precision",  "reduce", "recompute", "seed"};
  const std::vector<std::string> of_ranks = {
      "device",   "local-ranks",  "communicator",   "communicators",    "nccl-registration",
      "prefetch", "logits-chunk", "checkpoint-dir", "checkpoint-every", "device-memory"};
  valued.insert(valued.end(), of_ranks.begin(), of_ranks.end());
  ASSIGN_OR_RETURN(const ToolFlags flags,
                   ToolFlags::Parse(arguments, valued,
                                    {"json", "async", "no-reshard", "time-families", "no-graphs",
                                     "floor", "deterministic", "checksum", "checkpoint-async"}));
  if (!flags.positional().empty()) {
    return absl::InvalidArgumentError("bench takes no argument " + flags.positional()[0]);
  }
  BenchOptions options;
  ASSIGN_OR_RETURN(options.model, ModelFromFlags(flags));
  ASSIGN_OR_RETURN(options.batch, flags.Integer("batch", options.batch, 1, 1 << 20));
  ASSIGN_OR_RETURN(options.sequence_length,
                   flags.Integer("seq", options.sequence_length, 1, 1 << 20));
  ASSIGN_OR_RETURN(options.steps, flags.Integer("steps", options.steps, 1, 1 << 20));
  ASSIGN_OR_RETURN(options.warmup, flags.Integer("warmup", options.warmup, 0, 1 << 20));
  ASSIGN_OR_RETURN(options.accumulate, flags.Integer("accumulate", 1, 1, 1 << 16));
  ASSIGN_OR_RETURN(const std::string precision,
                   flags.Choice("precision", "bf16", {"fp32", "bf16"}));
  ASSIGN_OR_RETURN(const std::string reduce, flags.Choice("reduce", "fp32", {"fp32", "bf16"}));
  ASSIGN_OR_RETURN(
      const std::string recompute,
      flags.Choice("recompute", "auto", {"keep", "none", "selective", "full", "auto"}));
  ASSIGN_OR_RETURN(const std::int64_t ranks, flags.Integer("local-ranks", 1, 1, 256));
  ASSIGN_OR_RETURN(const std::int64_t prefetch, flags.Integer("prefetch", 1, 0, 1));
  ASSIGN_OR_RETURN(options.logits_chunk_mib, flags.Integer("logits-chunk", 0, 0, 1 << 20));
  ASSIGN_OR_RETURN(const std::int64_t communicators, flags.Integer("communicators", 2, 1, 2));
  ASSIGN_OR_RETURN(const std::int64_t seed,
                   flags.Integer("seed", 0, 0, (std::int64_t{1} << 31) - 1));
  ASSIGN_OR_RETURN(options.device_memory_gb, flags.Integer("device-memory", 0, 1, 1 << 20));
  ASSIGN_OR_RETURN(options.communicator,
                   ParseCommunicatorKind(flags.Text("communicator", DefaultCommunicator(backend))));
  ASSIGN_OR_RETURN(options.registration, ParseBufferRegistration(flags.Text(
                                             "nccl-registration", NameOf(kDefaultRegistration))));
  options.checkpoint_directory = flags.Text("checkpoint-dir", "");
  ASSIGN_OR_RETURN(options.checkpoint_every, flags.Integer("checkpoint-every", 0, 1, 1 << 20));
  options.checkpoint_async = flags.Has("checkpoint-async");
  const bool saves = !options.checkpoint_directory.empty();
  if (saves != flags.Has("checkpoint-every") || (options.checkpoint_async && !saves)) {
    return absl::InvalidArgumentError(
        "--checkpoint-dir DIR and --checkpoint-every N go together, and --checkpoint-async with "
        "both");
  }
  options.parameter_dtype = precision == "bf16" ? DType::kBf16 : DType::kF32;
  options.reduce_dtype = reduce == "bf16" ? DType::kBf16 : DType::kF32;
  options.recompute = RecomputeFrom(recompute);
  options.world_size = static_cast<int>(ranks);
  RETURN_IF_ERROR(CheckCommunicator(options.communicator, options.world_size, backend));
  options.prefetch = static_cast<int>(prefetch);
  options.num_communicators = static_cast<int>(communicators);
  options.synchronous = !flags.Has("async");
  options.time_families = flags.Has("time-families");
  options.graphs = !flags.Has("no-graphs");
  options.floor = flags.Has("floor");
  options.deterministic = flags.Has("deterministic");
  options.checksum = flags.Has("checksum");
  options.seed = static_cast<std::uint64_t>(seed);
  options.reshard_after_forward = !flags.Has("no-reshard");
  return options;
}

const char kBenchUsage[] =
    R"(Usage: fsdp-trainer bench --model NAME|FILE [FLAGS]

Times training steps on random tokens and prints one JSON line. NAME is a preset (fsdpctl plan
--list-presets), FILE a peer's config.json.
Example: fsdp-trainer bench --model llama-tiny --batch 2 --seq 64 --steps 10

  --batch B --seq T                     sequences of a rank's micro-batch (8), and their length (1024)
  --steps N --warmup W                  timed steps (20), and steps before them (5)
  --accumulate A                        micro-batches a step (1)
  --layers L --vocab V --dim D --heads H   instead of the model's
  --precision fp32|bf16                 of parameters and activations (bf16)
  --reduce fp32|bf16                    of gradients on their way (fp32)
  --recompute keep|none|selective|full|auto  (auto)
  --local-ranks N                       ranks on this machine (1)
  --communicator gloo|in_process|nccl   how they talk (gloo; nccl with --device cuda)
  --nccl-registration none|local|window|window-ce   how NCCL gets at the arena: by way of its own
                                        buffers, straight from the peers', at equal offsets, and
                                        gathers by copy engines (none)
  --communicators 1|2 --prefetch 0|1 --no-reshard   as spec.sharding
  --device-memory GB                    what a rank may take, in 10^9 bytes (the device's own)
  --logits-chunk MIB                    largest piece of the logits (0: the plan's)
  --device cpu|cuda                     (cpu)
  --async                               do not wait for each step's loss
  --deterministic                       bit-identical reruns
  --seed N                              of weights and tokens (0)
  --time-families                       "families" with ms each, by events around every launch, and
                                        "gaps_ms" between them: together the step, about 1 us a
                                        launch longer and without graphs
  --no-graphs                           cuda: launch every operation by itself; the same work
  --floor                               "floor": what the step cannot go below (one rank): its own
                                        matmuls and attention replayed alone, over a second each,
                                        and all other bytes at the rate of a copy; and step / floor
  --checkpoint-dir DIR --checkpoint-every N [--checkpoint-async]   save after every N timed steps, as
                                        spec.checkpoint; "checkpoint": how long a save kept steps
                                        from running, and until its manifest was on disk. The newest
                                        stays in DIR. Compare "wall_ms", which has all between steps
  --checksum                            "checksum": CRC-32C of rank 0's master weights, m and v
                                        after the last step
  --json                                accepted: the line is JSON anyhow

"attention" names the kernels that attend; "predicted_ms" is the step time that fsdpctl plan predicts (one H200, bf16; 0 elsewhere).
Exit codes: 0 done, 2 usage, 1, 3 and 10 to 14 as fsdp-trainer --help says.
)";

double BenchReport::MedianSeconds() const {
  if (step_seconds.empty()) return 0;
  std::vector<double> sorted = step_seconds;
  std::sort(sorted.begin(), sorted.end());
  const std::size_t middle = sorted.size() / 2;
  return sorted.size() % 2 == 1 ? sorted[middle] : (sorted[middle - 1] + sorted[middle]) / 2;
}

std::string BenchReport::ToJson() const {
  const double median = MedianSeconds();
  const double fastest =
      step_seconds.empty() ? 0 : *std::min_element(step_seconds.begin(), step_seconds.end());
  const double mean = Mean(step_seconds);
  const auto tokens =
      static_cast<double>(options.batch * options.accumulate * options.sequence_length);
  nlohmann::ordered_json json;
  json["model"] = options.model.name;
  json["fsdp"] = options.world_size > 1;
  json["compile"] = false;
  json["ac"] = options.recompute == v1::RECOMPUTE_POLICY_FULL;
  json["world"] = options.world_size;
  json["batch"] = options.batch;
  json["seq"] = options.sequence_length;
  json["params_M"] = Rounded(static_cast<double>(parameters) / 1e6, 1);
  json["step_ms"] = Rounded(median * 1e3, 2);
  json["min_ms"] = Rounded(fastest * 1e3, 2);
  json["mean_ms"] = Rounded(mean * 1e3, 3);
  json["wall_ms"] = Rounded(wall_seconds / static_cast<double>(options.steps) * 1e3, 3);
  json["tok_s_gpu"] = median > 0 ? std::round(tokens / median) : 0;
  json["tflops"] = median > 0 ? Rounded(model_flops_per_rank_step / median / 1e12, 3) : 0;
  json["peak_GB"] = Rounded(static_cast<double>(peak_bytes) / 1e9, 3);
  json["reserved_GB"] = Rounded(static_cast<double>(peak_bytes) / 1e9, 3);
  json["first_step_s"] = Rounded(first_step_seconds, 3);
  nlohmann::ordered_json few = nlohmann::ordered_json::array();
  for (std::size_t i = 0; i < losses.size(); ++i) {
    if (i < 3 || i + 1 == losses.size()) few.push_back(Rounded(losses[i], 4));
  }
  json["losses"] = few;
  json["start_to_first_step_s"] = Rounded(start_to_first_step_seconds, 2);
  json["device_GB"] = Rounded(static_cast<double>(device_bytes) / 1e9, 3);
  json["planned_GB"] = Rounded(static_cast<double>(planned_bytes) / 1e9, 3);
  json["predicted_ms"] = Rounded(predicted_seconds * 1e3, 2);
  if (options.communicator == CommunicatorKind::kNccl) {
    json["nccl_registration"] = NameOf(options.registration);
  }
  json["accumulate"] = options.accumulate;
  json["precision"] = options.parameter_dtype == DType::kBf16 ? "bf16" : "fp32";
  std::string policy = v1::RecomputePolicy_Name(options.recompute).substr(17);
  std::transform(policy.begin(), policy.end(), policy.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  json["recompute"] = policy;
  json["attention"] = {{"forward", attention.forward}, {"backward", attention.backward}};
  json["phases"] = PhasesJson(phases);
  json["families"] = FamiliesJson(families, options.steps);
  if (options.time_families) json["gaps_ms"] = Rounded(launch_gap_seconds * 1e3, 3);
  if (checksum) json["checksum"] = absl::StrFormat("%08x", *checksum);
  if (checkpoints) json["checkpoint"] = CheckpointsJson(*checkpoints, options.checkpoint_async);
  if (floor) json["floor"] = FloorJson(*floor, median);
  return json.dump();
}

absl::StatusOr<BenchReport> RunBenchRank(const BenchOptions& options, const LocalBackend& backend,
                                         LocalRank& rank) {
  return BenchRun(options, backend, rank).Run();
}

absl::StatusOr<BenchReport> RunBench(const BenchOptions& options, const LocalBackend& backend) {
  BenchReport report;
  const LocalRanksOptions ranks{options.world_size, options.communicator, options.num_communicators,
                                options.deterministic, options.registration};
  RETURN_IF_ERROR(RunLocalRanks(ranks, backend, [&](LocalRank& rank) -> absl::Status {
    ASSIGN_OR_RETURN(BenchReport mine, RunBenchRank(options, backend, rank));
    if (rank.rank == 0) report = std::move(mine);
    return absl::OkStatus();
  }));
  return report;
}

int BenchMain(std::span<const std::string> arguments, const LocalBackend& backend) {
  const absl::StatusOr<BenchOptions> options = ParseBenchOptions(arguments, backend);
  if (!options.ok()) {
    std::fprintf(stderr, "bench: %s\n", std::string(options.status().message()).c_str());
    return static_cast<int>(TrainerExit::kUsage);
  }
  const absl::StatusOr<BenchReport> report = RunBench(*options, backend);
  if (!report.ok()) {
    std::fprintf(stderr, "bench: %s\n", std::string(report.status().message()).c_str());
    return static_cast<int>(ExitOf(report.status()));
  }
  std::printf("%s\n", report->ToJson().c_str());
  return static_cast<int>(TrainerExit::kDone);
}

}  // namespace fsdp
