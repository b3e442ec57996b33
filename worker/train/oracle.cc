#include "worker/train/oracle.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "proto/support/status.h"
#include "worker/train/engine.h"
#include "worker/train/tool_flags.h"
#include "worker/train/trainer_errors.h"

namespace fsdp {
namespace {

constexpr double kLossTolerance = 2e-5;
constexpr double kGradientTolerance = 1e-5;
constexpr double kGradNormTolerance = 1e-3;
constexpr double kFinalTolerance = 1e-4;
constexpr double kBf16Least = 0.2, kBf16Most = 1.5;

// Squared norms of a difference and of what it is measured by.
struct Distance {
  double difference = 0;
  double reference = 0;

  [[nodiscard]] double relative() const {
    if (difference == 0) return 0;
    return std::sqrt(difference / std::max(reference, 1e-300));
  }
};

struct RowSpan {
  std::int64_t begin = 0, end = 0;
};

// Rows of a parameter that shift all scores of a query alike: the softmax cancels them (where rope
// does not turn them), and Adam makes steps of the rounding that is left.
RowSpan KeyBiasRows(const ModelConfig& model, const ParameterSpec& parameter) {
  if (parameter.role == ParameterRole::kKBias) return {0, parameter.rows()};
  if (parameter.role == ParameterRole::kQkvBias && model.packed_qkv) {
    return {model.q_dim(), model.q_dim() + model.kv_dim()};
  }
  return {};
}

class OracleRun {
 public:
  OracleRun(const OracleFile& oracle, const OracleOptions& options, LocalRank& rank)
      : oracle_(oracle), options_(options), rank_(rank) {
    for (const UnitSpec& unit : UnitsOf(oracle.model)) {
      for (const ParameterSpec& parameter : unit.parameters) parameters_.push_back(parameter);
    }
  }

  absl::StatusOr<OracleReport> Run() {
    RETURN_IF_ERROR(Prepare());
    for (std::int64_t step = 1; step <= oracle_.steps; ++step) {
      RETURN_IF_ERROR(Step(step));
      if (step == 1) RETURN_IF_ERROR(CompareGradients());
    }
    RETURN_IF_ERROR(CompareFinal());
    Judge();
    return report_;
  }

 private:
  absl::Status Prepare() {
    PlanInput input;
    input.model = oracle_.model;
    input.world_size = options_.world_size;
    input.sequence_length = oracle_.sequence_length;
    input.global_batch = oracle_.batch;
    input.micro_batch = options_.micro_batch;
    input.parameter_dtype = options_.parameter_dtype;
    input.reduce_dtype = options_.reduce_dtype;
    input.recompute = options_.recompute;
    input.reshard_after_forward = options_.reshard_after_forward;
    input.prefetch = options_.prefetch;
    input.num_communicators = options_.num_communicators;
    ASSIGN_OR_RETURN(const Plan plan, Engine::PlanFor(input, rank_.device));
    EngineOptions engine;
    engine.optimizer = oracle_.optimizer;
    ASSIGN_OR_RETURN(engine_,
                     Engine::Create(plan, engine, rank_.device, rank_.gather, rank_.scatter));
    report_.file = oracle_.path;
    report_.precision = options_.parameter_dtype == DType::kBf16 ? "bf16" : "fp32";
    report_.world_size = options_.world_size;
    report_.communicator = rank_.gather == nullptr ? "none" : rank_.gather->kind();
    report_.steps = oracle_.steps;
    // Zeroes the moments; the weights follow.
    RETURN_IF_ERROR(engine_->InitializeWeights(0));
    ASSIGN_OR_RETURN(const std::vector<ShardTensor> weights, engine_->OpenWeights());
    for (const ShardTensor& tensor : weights) {
      const std::vector<float>& values = oracle_.initial.at(tensor.name);
      RETURN_IF_ERROR(rank_.device.Copy(
          tensor.master.data, values.data() + tensor.row_begin * tensor.row_elements(),
          static_cast<std::size_t>(tensor.master.size_bytes()), rank_.device.compute()));
    }
    RETURN_IF_ERROR(rank_.device.Synchronize(rank_.device.compute()));
    return engine_->WeightsChanged();
  }

  absl::Status Step(std::int64_t step) {
    const std::int64_t length = oracle_.sequence_length;
    const SequenceRange share = engine_->plan().split.Share(rank_.rank);
    const auto part = [&](const std::vector<std::int32_t>& all) {
      return std::span<const std::int32_t>(all).subspan(
          static_cast<std::size_t>(((step - 1) * oracle_.batch + share.begin) * length),
          static_cast<std::size_t>(share.count * length));
    };
    StepInput input{step, oracle_.optimizer.lr, part(oracle_.tokens), part(oracle_.targets)};
    ASSIGN_OR_RETURN(const StepResult result, engine_->Step(input));
    const auto at = static_cast<std::size_t>(step - 1);
    const auto relative = [](double ours, double theirs) {
      const double error = std::abs(ours - theirs) / std::max(std::abs(theirs), 1e-30);
      return std::isnan(error) ? HUGE_VAL : error;
    };
    report_.losses.push_back(result.loss);
    report_.loss_error = std::max(report_.loss_error, relative(result.loss, oracle_.loss_fp32[at]));
    report_.grad_norm_error =
        std::max(report_.grad_norm_error, relative(result.grad_norm, oracle_.grad_norm_fp32[at]));
    valid_tokens_ = static_cast<double>(result.valid_tokens);
    return absl::OkStatus();
  }

  // Distances of this rank's rows of every parameter, key biases left out on request, and (last) of
  // all parameters with every row.
  absl::StatusOr<std::vector<Distance>> Distances(
      const std::vector<ShardTensor>& tensors,
      const std::map<std::string, std::vector<float>>& expected, double scale,
      bool skip_key_biases) {
    std::vector<Distance> distances(tensors.size() + 1);
    std::vector<float> values;
    for (std::size_t i = 0; i < tensors.size(); ++i) {
      const ShardTensor& tensor = tensors[i];
      values.resize(static_cast<std::size_t>(tensor.master.size));
      RETURN_IF_ERROR(rank_.device.Copy(values.data(), tensor.master.data,
                                        values.size() * sizeof(float), rank_.device.compute()));
      RETURN_IF_ERROR(rank_.device.Synchronize(rank_.device.compute()));
      const RowSpan skip = skip_key_biases ? KeyBiasRows(oracle_.model, parameters_[i]) : RowSpan{};
      const std::int64_t row = tensor.row_elements();
      const float* reference = expected.at(tensor.name).data() + tensor.row_begin * row;
      for (std::size_t j = 0; j < values.size(); ++j) {
        const double theirs = reference[j];
        const double difference = scale * static_cast<double>(values[j]) - theirs;
        const std::int64_t at = tensor.row_begin + static_cast<std::int64_t>(j) / row;
        const bool skipped = at >= skip.begin && at < skip.end;
        for (const std::size_t k : {i, tensors.size()}) {
          if (k == i && skipped) continue;
          distances[k].difference += difference * difference;
          distances[k].reference += theirs * theirs;
        }
      }
    }
    RETURN_IF_ERROR(SumOverRanks(distances));
    return distances;
  }

  absl::Status SumOverRanks(std::vector<Distance>& distances) {
    if (rank_.scatter == nullptr) return absl::OkStatus();
    const std::size_t bytes = distances.size() * sizeof(Distance);
    Device& device = rank_.device;
    ASSIGN_OR_RETURN(const auto memory, device.Allocate(bytes));
    Stream& stream = device.scatter();
    RETURN_IF_ERROR(device.Copy(memory->data(), distances.data(), bytes, stream));
    RETURN_IF_ERROR(rank_.scatter->AllReduce(
        {memory->data(), DType::kF64, static_cast<std::int64_t>(bytes / sizeof(double))}, stream));
    RETURN_IF_ERROR(device.Copy(distances.data(), memory->data(), bytes, stream));
    return device.Synchronize(stream);
  }

  absl::Status CompareGradients() {
    const double scale = valid_tokens_ > 0 ? 1 / valid_tokens_ : 0;
    ASSIGN_OR_RETURN(const std::vector<Distance> distances,
                     Distances(engine_->gradient_tensors(), oracle_.first_gradient, scale,
                               /*skip_key_biases=*/false));
    Worst(distances, report_.gradient_error, report_.worst_gradient);
    return absl::OkStatus();
  }

  absl::Status CompareFinal() {
    ASSIGN_OR_RETURN(const std::vector<ShardTensor> weights, engine_->OpenWeights());
    ASSIGN_OR_RETURN(const std::vector<Distance> distances,
                     Distances(weights, oracle_.final, 1, /*skip_key_biases=*/true));
    Worst(distances, report_.final_tensor_error, report_.worst_final);
    report_.final_error = distances.back().relative();
    return absl::OkStatus();
  }

  void Worst(const std::vector<Distance>& distances, double& error, std::string& name) const {
    error = 0;
    for (std::size_t i = 0; i < parameters_.size(); ++i) {
      const double relative = distances[i].relative();
      if (!name.empty() && !(relative > error) && !std::isnan(relative)) continue;
      error = std::isnan(relative) ? HUGE_VAL : relative;
      name = parameters_[i].name;
    }
  }

  void Limit(const char* what, double value, double limit, const std::string& where = "") {
    if (value <= limit) return;
    report_.failures.push_back(absl::StrFormat("%s %.3g%s is beyond %.3g", what, value,
                                               where.empty() ? "" : " (" + where + ")", limit));
  }

  void Judge() {
    if (options_.parameter_dtype == DType::kBf16) {
      JudgeBf16();
      return;
    }
    Limit("loss error", report_.loss_error, kLossTolerance);
    Limit("gradient error", report_.gradient_error, kGradientTolerance, report_.worst_gradient);
    Limit("grad norm error", report_.grad_norm_error, kGradNormTolerance);
    Limit("final weights error", report_.final_error, kFinalTolerance);
    Limit("final tensor error", report_.final_tensor_error, kFinalTolerance, report_.worst_final);
  }

  void JudgeBf16() {
    double ours = 0, theirs = 0;
    for (std::size_t i = 0; i < report_.losses.size(); ++i) {
      ours += std::pow(report_.losses[i] - oracle_.loss_fp32[i], 2);
      theirs += std::pow(double{oracle_.loss_bf16[i]} - oracle_.loss_fp32[i], 2);
    }
    const auto steps = static_cast<double>(report_.losses.size());
    report_.bf16_rms = std::sqrt(ours / steps);
    report_.peer_bf16_rms = std::sqrt(theirs / steps);
    Limit("bf16 rms", report_.bf16_rms, kBf16Most * report_.peer_bf16_rms);
    if (report_.bf16_rms < kBf16Least * report_.peer_bf16_rms) {
      report_.failures.push_back(absl::StrFormat("bf16 rms %.3g is below %.3g: this is not bf16",
                                                 report_.bf16_rms,
                                                 kBf16Least * report_.peer_bf16_rms));
    }
    // How far bf16 weights drift is published, not judged; but numbers they are.
    if (!std::isfinite(report_.final_error)) {
      report_.failures.push_back("the final weights, ours or the expected, are not finite");
    }
  }

  const OracleFile& oracle_;
  const OracleOptions& options_;
  LocalRank& rank_;
  std::vector<ParameterSpec> parameters_;
  std::unique_ptr<Engine> engine_;
  double valid_tokens_ = 0;
  OracleReport report_;
};

struct OracleCommand {
  std::string file;
  OracleOptions options;
};

absl::StatusOr<OracleCommand> ParseCommand(std::span<const std::string> arguments,
                                           const LocalBackend& backend) {
  ASSIGN_OR_RETURN(const ToolFlags flags,
                   ToolFlags::Parse(arguments,
                                    {"local-ranks", "communicator", "device", "precision", "reduce",
                                     "micro-batch", "recompute", "prefetch", "communicators"},
                                    {"no-reshard", "json"}));
  if (flags.positional().size() != 1) {
    return absl::InvalidArgumentError("oracle needs exactly one FILE");
  }
  OracleCommand command;
  command.file = flags.positional()[0];
  OracleOptions& options = command.options;
  ASSIGN_OR_RETURN(const std::int64_t ranks, flags.Integer("local-ranks", 1, 1, 256));
  ASSIGN_OR_RETURN(options.micro_batch, flags.Integer("micro-batch", 0, 0, 1 << 20));
  ASSIGN_OR_RETURN(const std::int64_t prefetch, flags.Integer("prefetch", 1, 0, 1));
  ASSIGN_OR_RETURN(const std::int64_t communicators, flags.Integer("communicators", 2, 1, 2));
  ASSIGN_OR_RETURN(const std::string precision,
                   flags.Choice("precision", "fp32", {"fp32", "bf16"}));
  ASSIGN_OR_RETURN(const std::string reduce, flags.Choice("reduce", "fp32", {"fp32", "bf16"}));
  ASSIGN_OR_RETURN(
      const std::string recompute,
      flags.Choice("recompute", "auto", {"keep", "none", "selective", "full", "auto"}));
  ASSIGN_OR_RETURN(options.communicator,
                   ParseCommunicatorKind(flags.Text("communicator", DefaultCommunicator(backend))));
  options.world_size = static_cast<int>(ranks);
  RETURN_IF_ERROR(CheckCommunicator(options.communicator, options.world_size, backend));
  options.prefetch = static_cast<int>(prefetch);
  options.num_communicators = static_cast<int>(communicators);
  options.parameter_dtype = precision == "bf16" ? DType::kBf16 : DType::kF32;
  options.reduce_dtype = reduce == "bf16" ? DType::kBf16 : DType::kF32;
  options.reshard_after_forward = !flags.Has("no-reshard");
  options.recompute = recompute == "keep"        ? v1::RECOMPUTE_POLICY_KEEP
                      : recompute == "none"      ? v1::RECOMPUTE_POLICY_NONE
                      : recompute == "selective" ? v1::RECOMPUTE_POLICY_SELECTIVE
                      : recompute == "full"      ? v1::RECOMPUTE_POLICY_FULL
                                                 : v1::RECOMPUTE_POLICY_AUTO;
  return command;
}

}  // namespace

const char kOracleUsage[] =
    R"(Usage: fsdp-trainer oracle FILE [FLAGS]

Replays the training that FILE (safetensors: config, weights, batches, expected results) records,
prints one JSON line of relative errors, and exits with 0 only within tolerance.

  --local-ranks N                       ranks on this machine (1)
  --communicator gloo|in_process|nccl   how they talk (gloo; nccl with --device cuda)
  --device cpu|cuda                     (cpu)
  --precision fp32|bf16                 of parameters and activations (fp32)
  --reduce fp32|bf16                    of gradients on their way (fp32)
  --micro-batch N                       sequences at a time; 0 is the rank's whole share (0)
  --recompute keep|none|selective|full|auto  (auto)
  --prefetch 0|1                        units gathered ahead (1)
  --communicators 1|2                   gather and scatter share one, or have one each (2)
  --no-reshard                          keep gathered weights for backward

Exit codes: 0 within tolerance, 20 beyond it, 2 usage or no such file, 10 a file that is damaged or
no oracle's, 1, 3 and 12 to 14 as fsdp-trainer --help says.
)";

std::string OracleReport::ToJson() const {
  // JSON has no infinity.
  const auto number = [](double value) -> nlohmann::json {
    return std::isfinite(value) ? nlohmann::json(value) : nlohmann::json("inf");
  };
  nlohmann::ordered_json json;
  json["file"] = file;
  json["precision"] = precision;
  json["communicator"] = communicator;
  json["world"] = world_size;
  json["steps"] = steps;
  json["loss_error"] = number(loss_error);
  json["gradient_error"] = number(gradient_error);
  json["worst_gradient"] = worst_gradient;
  json["grad_norm_error"] = number(grad_norm_error);
  json["final_error"] = number(final_error);
  json["final_tensor_error"] = number(final_tensor_error);
  json["worst_final"] = worst_final;
  if (precision == "bf16") {
    json["bf16_rms"] = number(bf16_rms);
    json["peer_bf16_rms"] = number(peer_bf16_rms);
  }
  if (!losses.empty()) {
    json["first_loss"] = number(losses.front());
    json["last_loss"] = number(losses.back());
  }
  json["failures"] = failures;
  json["passed"] = passed();
  return json.dump();
}

absl::StatusOr<OracleReport> RunOracle(const OracleFile& oracle, const OracleOptions& options,
                                       const LocalBackend& backend) {
  OracleReport report;
  const LocalRanksOptions ranks{options.world_size, options.communicator,
                                options.num_communicators};
  RETURN_IF_ERROR(RunLocalRanks(ranks, backend, [&](LocalRank& rank) -> absl::Status {
    OracleRun run(oracle, options, rank);
    ASSIGN_OR_RETURN(OracleReport mine, run.Run());
    if (rank.rank == 0) report = std::move(mine);
    return absl::OkStatus();
  }));
  return report;
}

int OracleMain(std::span<const std::string> arguments, const LocalBackend& backend) {
  const absl::StatusOr<OracleCommand> command = ParseCommand(arguments, backend);
  if (!command.ok()) {
    std::fprintf(stderr, "oracle: %s\n", std::string(command.status().message()).c_str());
    return static_cast<int>(TrainerExit::kUsage);
  }
  const absl::StatusOr<OracleFile> oracle = OracleFile::Load(command->file);
  if (!oracle.ok()) {
    std::fprintf(stderr, "oracle: %s\n", std::string(oracle.status().message()).c_str());
    return static_cast<int>(absl::IsNotFound(oracle.status()) ? TrainerExit::kUsage
                                                              : TrainerExit::kData);
  }
  const absl::StatusOr<OracleReport> report = RunOracle(*oracle, command->options, backend);
  if (!report.ok()) {
    std::fprintf(stderr, "oracle: %s\n", std::string(report.status().message()).c_str());
    return static_cast<int>(ExitOf(report.status()));
  }
  std::printf("%s\n", report->ToJson().c_str());
  return static_cast<int>(report->passed() ? TrainerExit::kDone : TrainerExit::kBeyondTolerance);
}

}  // namespace fsdp
