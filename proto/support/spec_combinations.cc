// What fields mean together: impossible and doubtful combinations.
#include <google/protobuf/descriptor.h>
#include <re2/re2.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "proto/support/spec.h"
#include "proto/support/spec_fields.h"
#include "proto/support/spec_names.h"
#include "proto/support/spec_validate.h"
#include "proto/support/status.h"
#include "proto/support/suggest.h"
#include "worker/plan/mixture_cycle.h"
#include "worker/plan/model_config.h"

namespace fsdp::spec {
namespace {

// "1, 2, 4, ..., 64": the divisors of `number`, shortened.
std::string Divisors(std::int64_t number, std::int64_t limit) {
  std::vector<std::string> divisors;
  for (std::int64_t i = 1; i <= std::min(number, limit) && divisors.size() < 12; ++i) {
    if (number % i == 0) divisors.push_back(absl::StrCat(i));
  }
  return absl::StrJoin(divisors, ", ");
}

std::string NearestDivisor(std::int64_t number, std::int64_t wanted) {
  for (std::int64_t distance = 0; distance < number; ++distance) {
    if (wanted > distance && number % (wanted - distance) == 0)
      return absl::StrCat(wanted - distance);
    if (number % (wanted + distance) == 0) return absl::StrCat(wanted + distance);
  }
  return "";
}

// ResolveModel's "spec.model.dim: 0 is outside 1..9; spec.model.numHeads: ..." as one finding for
// each field.
void AddModelStatus(const absl::Status& status, Findings* findings) {
  constexpr std::string_view kPrefix = "spec.model.";
  const std::string message = std::string(status.message());
  const std::vector<std::string> parts = absl::StrSplit(message, "; spec.model.");
  for (std::size_t i = 0; i < parts.size(); ++i) {
    const std::string part = i == 0 ? parts[i] : absl::StrCat(ToAbsl(kPrefix), parts[i]);
    const std::size_t colon = part.find(": ");
    if (!part.starts_with(kPrefix) || colon == std::string::npos) {
      findings->Error("spec.model", part);
    } else {
      findings->Error(part.substr(0, colon), part.substr(colon + 2));
    }
  }
}

// Without a preset every size must be given.
void CheckSizesGiven(const v1::ModelSpec& model, Findings* findings) {
  if (!model.preset().empty() || !model.config_path().empty()) return;
  const auto require = [&](bool given, const char* field, const std::string& message) {
    const std::string path = absl::StrCat("spec.model.", field);
    if (!given) findings->Error(path, message, {"", RangeWords(RuleOf(path)), ""});
  };
  const std::string message = "is required, unless a preset gives it";
  require(model.has_vocab_size(), "vocabSize", message);
  require(model.has_dim(), "dim", message);
  require(model.has_num_layers(), "numLayers", message);
  require(model.has_num_heads(), "numHeads", message);
  require(model.has_mlp_dim() || model.family() != v1::MODEL_FAMILY_LLAMA, "mlpDim",
          "is required for family llama");
}

void CheckHeads(const v1::ModelSpec& model, Findings* findings) {
  const std::int64_t dim = model.dim();
  const std::int64_t heads = model.num_heads();
  if (model.has_dim() && model.has_num_heads() && !model.has_head_dim() && dim > 0 && heads > 0 &&
      dim % heads != 0) {
    findings->Error("spec.model.numHeads",
                    absl::StrCat("must divide dim ", dim, ", unless headDim is given"),
                    {absl::StrCat(heads), Divisors(dim, 4096), NearestDivisor(dim, heads)});
  }
  const std::int64_t kv_heads = model.num_kv_heads();
  if (model.has_num_kv_heads() && heads > 0 && kv_heads > 0 && heads % kv_heads != 0) {
    findings->Error("spec.model.numKvHeads", absl::StrCat("must divide numHeads ", heads),
                    {absl::StrCat(kv_heads), Divisors(heads, heads),
                     NearestDivisor(heads, std::min(kv_heads, heads))});
  }
}

// Refuses what no device could hold, so that the byte counts of the plan stay far from overflow;
// what a given device holds is the plan's business.
void CheckSize(const ModelConfig& model, const v1::JobSpec& spec, Findings* findings) {
  constexpr double kPebibyte = 1125899906842624.0;
  constexpr double kBytesPerParameter = 20;  // master, moments, gradient, compute weights
  constexpr double kBytesPerActivation = 4;
  const double layers = model.num_layers;
  const double dim = static_cast<double>(model.dim);
  const double per_layer = dim * static_cast<double>(model.qkv_dim() + model.q_dim() +
                                                     model.mlp_in_dim() + model.mlp_dim);
  const double parameters = layers * per_layer + 2 * dim * static_cast<double>(model.vocab_size);
  const auto& train = spec.train();
  const double sequences =
      static_cast<double>(train.micro_batch() > 0 ? train.micro_batch() : train.global_batch());
  const double tokens = sequences * static_cast<double>(spec.data().sequence_length());
  const double widths = 4 * dim + static_cast<double>(model.qkv_dim() + 2 * model.mlp_in_dim());
  if (parameters * kBytesPerParameter > kPebibyte) {
    findings->Error(
        "spec.model",
        absl::StrFormat("has %.3g parameters: more than a pebibyte of training state", parameters));
  }
  if (tokens * layers * widths * kBytesPerActivation > kPebibyte &&
      !findings->HasErrorUnder("spec.train")) {
    findings->Error(
        train.micro_batch() > 0 ? "spec.train.microBatch" : "spec.train.globalBatch",
        absl::StrFormat("makes %.3g tokens in one forward: more than a pebibyte of activations",
                        tokens),
        {absl::StrCat(static_cast<std::int64_t>(sequences)), "", ""});
  }
}

// The resolved model against the data it is fed.
void CheckModelAndData(const ModelConfig& model, const v1::JobSpec& spec, Findings* findings) {
  const auto& data = spec.data();
  CheckTextVocabulary(data, model.vocab_size, findings);
  if (data.has_document_separator() && data.document_separator() >= model.vocab_size) {
    findings->Error(
        "spec.data.documentSeparator", "is not a token of the model",
        {absl::StrCat(data.document_separator()), absl::StrCat("0..", model.vocab_size - 1), ""});
  }
  if (data.reset_attention() && !model.causal) {
    findings->Error("spec.data.resetAttention", "needs a causal model",
                    {"true", "false, or model.mask causal", ""});
  }
  const bool is_next_token = data.targets() == v1::TARGET_KIND_NEXT_TOKEN;
  if (!model.causal && is_next_token) {
    const bool synthetic = data.source() == v1::DATA_SOURCE_SYNTHETIC;
    findings->Warning(
        "spec.data.targets",
        "with mask full every position sees the token it must predict: the loss will "
        "mean nothing",
        {"next_token", synthetic ? "targets independent, or mask causal" : "mask causal", ""});
  }
  if (model.max_positions > 0 && data.sequence_length() > model.max_positions) {
    findings->Error(
        "spec.data.sequenceLength",
        absl::StrCat("is longer than the model's maxPositions ", model.max_positions),
        {absl::StrCat(data.sequence_length()), absl::StrCat("1..", model.max_positions), ""});
  }
  CheckSize(model, spec, findings);
}

void CheckSchedule(const v1::JobSpec& spec, Findings* findings) {
  const auto& schedule = spec.optimizer().schedule();
  const std::int64_t max_steps = spec.limits().max_steps();
  if (max_steps > 0 && schedule.warmup_steps() > max_steps) {
    findings->Error("spec.optimizer.schedule.warmupSteps",
                    absl::StrCat("is more than limits.maxSteps ", max_steps),
                    {absl::StrCat(schedule.warmup_steps()), absl::StrCat("0..", max_steps), ""});
  }
  if (schedule.type() != v1::SCHEDULE_TYPE_CONSTANT) return;
  if (schedule.decay_steps() > 0) {
    findings->Error("spec.optimizer.schedule.decaySteps", "a constant schedule does not decay",
                    {absl::StrCat(schedule.decay_steps()), "type linear, cosine or wsd", ""});
  }
  if (schedule.min_lr_ratio() > 0) {
    findings->Error("spec.optimizer.schedule.minLrRatio", "a constant schedule does not decay",
                    {absl::StrCat(schedule.min_lr_ratio()), "type linear, cosine or wsd", ""});
  }
}

bool HasValidationData(const v1::DataSpec& data) {
  return data.validation_fraction() > 0 || !data.validation_path().empty();
}

void WarnIfRelative(std::string_view field, const std::string& path, Findings* findings) {
  if (path.empty() || path.front() == '/' || path.find("://") != std::string::npos) return;
  findings->Warning(field, "is relative: each worker looks for it in its own working folder",
                    {absl::StrCat("\"", Shorten(path), "\""), "an absolute path", ""});
}

using Parts = google::protobuf::RepeatedPtrField<v1::DataMixture>;

std::string PartField(std::string_view list, int index, std::string_view name) {
  return absl::StrCat("spec.data.", ToAbsl(list), "[", index, "].", ToAbsl(name));
}

// Reports tell them apart by name.
void CheckPartNames(const Parts& parts, std::string_view list, Findings* findings) {
  for (int i = 0; i < parts.size(); ++i) {
    const std::string name = EvaluationSetName(parts[i]);
    const auto first = std::find_if(parts.begin(), parts.end(),
                                    [&](const v1::DataMixture& other) {
                                      return EvaluationSetName(other) == name;
                                    }) -
                       parts.begin();
    if (first == i) continue;
    findings->Error(PartField(list, i, parts[i].name().empty() ? "path" : "name"),
                    absl::StrCat("is that of ", ToAbsl(list), "[", first, "] too"),
                    {absl::StrCat("\"", Shorten(name), "\""), "a name of its own", ""});
  }
}

void CheckEvaluationSets(const v1::DataSpec& data, Findings* findings) {
  if (data.evaluation_sets().empty()) return;
  if (data.source() == v1::DATA_SOURCE_SYNTHETIC) {
    findings->Error("spec.data.evaluationSets", "are files, synthetic data is none; remove them");
  }
  for (int i = 0; i < data.evaluation_sets_size(); ++i) {
    const double weight = data.evaluation_sets(i).weight();
    if (weight == 0) continue;
    findings->Error(PartField("evaluationSets", i, "weight"),
                    "each set is evaluated by itself, not drawn from; remove it",
                    {absl::StrCat(weight), "", ""});
  }
  CheckPartNames(data.evaluation_sets(), "evaluationSets", findings);
}

void CheckMixture(const v1::DataSpec& data, Findings* findings) {
  if (data.mixture().empty()) return;
  if (data.source() == v1::DATA_SOURCE_SYNTHETIC) {
    findings->Error("spec.data.mixture", "synthetic data is not mixed; remove it");
  }
  if (!data.path().empty()) {
    findings->Error("spec.data.mixture", "path is given too; keep one of them");
  }
  if (findings->HasErrorUnder("spec.data.mixture")) return;
  std::vector<double> weights;
  for (const v1::DataMixture& part : data.mixture()) weights.push_back(part.weight());
  for (int i = 0; i < data.mixture_size(); ++i) {
    const auto at = static_cast<std::size_t>(i);
    if (MixtureCycle::IsTooSmall(weights, at)) {
      findings->Error(
          PartField("mixture", i, "weight"),
          absl::StrCat("is less than 1 in ", MixtureCycle::kMaxLength, " of the weights' sum"),
          {absl::StrCat(weights[at]), "a larger weight, or no such source", ""});
    }
  }
  CheckPartNames(data.mixture(), "mixture", findings);
}

void CheckDocuments(const v1::DataSpec& data, Findings* findings) {
  if (data.source() == v1::DATA_SOURCE_SYNTHETIC) {
    constexpr std::string_view kNone = "synthetic data has no documents; remove it";
    if (data.mask_document_ends()) {
      findings->Error("spec.data.maskDocumentEnds", std::string(kNone), {"true", "", ""});
    }
    if (data.reset_attention()) {
      findings->Error("spec.data.resetAttention", std::string(kNone), {"true", "", ""});
    }
  }
  if (data.reset_positions() && !data.reset_attention()) {
    findings->Error("spec.data.resetPositions", "is for resetAttention: true; give both",
                    {"true", "", ""});
  }
  if (!data.has_document_separator()) return;
  const Findings::Detail value = {absl::StrCat(data.document_separator()), "", ""};
  if (data.source() == v1::DATA_SOURCE_TEXT) return;  // CheckText
  if (!data.mask_document_ends() && !data.reset_attention()) {
    findings->Error("spec.data.documentSeparator",
                    "is for maskDocumentEnds: true and resetAttention: true; give one of them too",
                    value);
  }
}

// What asks for validation where there is nothing to validate on.
void CheckNoValidation(const v1::JobSpec& spec, Findings* findings) {
  const auto& train = spec.train();
  constexpr std::string_view kNoData = "there is no validation data";
  const std::string remedy = "set data.validationFraction or data.validationPath";
  const bool has_sets = !spec.data().evaluation_sets().empty();
  if (train.evaluate_every_steps() > 0 && !has_sets) {
    findings->Error("spec.train.evaluateEverySteps", std::string(kNoData),
                    {absl::StrCat(train.evaluate_every_steps()), remedy, ""});
  }
  if (train.evaluate_sequences() > 0 && !has_sets) {
    findings->Error("spec.train.evaluateSequences", std::string(kNoData),
                    {absl::StrCat(train.evaluate_sequences()), remedy, ""});
  }
  if (spec.checkpoint().keep_best() && !has_sets) {
    findings->Error("spec.checkpoint.keepBest", std::string(kNoData), {"true", remedy, ""});
  }
}

void CheckBestBy(const v1::JobSpec& spec, Findings* findings) {
  const std::string& set = spec.checkpoint().best_by();
  if (set.empty()) return;
  const std::string value = absl::StrCat("\"", Shorten(set), "\"");
  std::vector<std::string> names;
  for (const v1::DataMixture& known : spec.data().evaluation_sets()) {
    names.push_back(EvaluationSetName(known));
  }
  if (std::find(names.begin(), names.end(), set) == names.end()) {
    findings->Error(
        "spec.checkpoint.bestBy", "is none of data.evaluationSets",
        {value, names.empty() ? "a set that data.evaluationSets has" : absl::StrJoin(names, ", "),
         Suggest(set, names)});
  } else if (!spec.checkpoint().keep_best()) {
    findings->Error("spec.checkpoint.bestBy", "says nothing without keepBest: give both",
                    {value, "", ""});
  }
}

void CheckNumericPolicy(const v1::JobSpec& spec, Findings* findings) {
  const auto& train = spec.train();
  if (train.spike_sigma() == 0 && train.on_spike() != v1::NON_FINITE_POLICY_STOP) {
    findings->Error("spec.train.onSpike", "says nothing without spikeSigma: give both",
                    {ShortEnumName(*v1::NonFinitePolicy_descriptor(), train.on_spike()), "", ""});
  }
  if (!spec.checkpoint().dir().empty() && spec.checkpoint().every_steps() > 0) return;
  const auto check = [&](const char* path, v1::NonFinitePolicy policy) {
    if (policy != v1::NON_FINITE_POLICY_ROLLBACK) return;
    findings->Error(path, "needs a checkpoint to go back to: set checkpoint.dir and everySteps",
                    {"rollback", "", ""});
  };
  check("spec.train.onNonFinite", train.on_non_finite());
  check("spec.train.onSpike", train.on_spike());
}

void CheckCheckpoint(const v1::JobSpec& spec, Findings* findings) {
  const auto& checkpoint = spec.checkpoint();
  if (checkpoint.dir().empty()) {
    const std::string message = "needs checkpoint.dir";
    if (checkpoint.every_steps() > 0) {
      findings->Error("spec.checkpoint.everySteps", message,
                      {absl::StrCat(checkpoint.every_steps()), "", ""});
    }
    if (checkpoint.keep_every_steps() > 0) {
      findings->Error("spec.checkpoint.keepEverySteps", message,
                      {absl::StrCat(checkpoint.keep_every_steps()), "", ""});
    }
    if (checkpoint.keep_best())
      findings->Error("spec.checkpoint.keepBest", message, {"true", "", ""});
  }
  if (!checkpoint.resume_from().empty() && !spec.model().init_from().empty()) {
    findings->Error("spec.checkpoint.resumeFrom",
                    "model.initFrom is given too; resuming brings the weights: keep one");
  }
}

void CheckFailurePolicy(const v1::FailurePolicy& policy, Findings* findings) {
  if (policy.backoff_initial_seconds() > policy.backoff_max_seconds()) {
    findings->Error("spec.failurePolicy.backoffInitialSeconds",
                    absl::StrCat("is more than backoffMaxSeconds ", policy.backoff_max_seconds()),
                    {absl::StrCat(policy.backoff_initial_seconds()), "", ""});
  }
  for (int i = 0; i < policy.rules_size(); ++i) {
    const auto& rule = policy.rules(i);
    const re2::RE2 pattern(rule.log_regex(), re2::RE2::Quiet);
    if (!pattern.ok()) {
      findings->Error(absl::StrCat("spec.failurePolicy.rules[", i, "].logRegex"),
                      absl::StrCat("is no regular expression (RE2): ", pattern.error()),
                      {absl::StrCat("\"", Shorten(rule.log_regex()), "\""), "", ""});
    }
    if (rule.exit_codes().empty() && rule.signals().empty() && rule.causes().empty() &&
        rule.phases().empty() && rule.log_regex().empty()) {
      findings->Error(absl::StrCat("spec.failurePolicy.rules[", i, "]"),
                      "matches every failure; give exitCodes, signals, causes, phases or logRegex");
    }
  }
}

}  // namespace

void CheckModel(const v1::TrainingJob& job, Findings* findings) {
  const auto& model = job.spec().model();
  if (!job.spec().has_model()) return;
  if (!model.preset().empty() && !model.config_path().empty()) {
    findings->Error("spec.model", "preset and configPath are both given; keep one");
    return;
  }
  if (model.preset().empty() && model.config_path().empty() &&
      model.family() == v1::MODEL_FAMILY_UNSPECIFIED) {
    findings->Error(
        "spec.model.family", "is required, unless a preset or a config.json names it",
        {"", absl::StrJoin(AllowedNames(*v1::ModelFamily_descriptor(), "spec.model.family"), ", "),
         ""});
  }
  if (!model.preset().empty()) {
    const std::vector<std::string> presets = PresetNames();
    if (std::find(presets.begin(), presets.end(), model.preset()) == presets.end()) {
      findings->Error("spec.model.preset", "is not a known preset",
                      {absl::StrCat("\"", Shorten(model.preset()), "\""),
                       absl::StrJoin(presets, ", "), NearestName(model.preset(), presets)});
      return;
    }
  }
  if (!model.config_path().empty() && ::access(model.config_path().c_str(), R_OK) != 0) {
    findings->Warning("spec.model.configPath",
                      absl::StrCat("\"", model.config_path(),
                                   "\" cannot be read here, so the model is not checked; the "
                                   "coordinator and every rank must be able to"));
    return;
  }
  CheckSizesGiven(model, findings);
  CheckHeads(model, findings);
  if (findings->HasErrorUnder("spec.model")) return;
  const absl::StatusOr<ModelConfig> config = ResolveModel(model);
  if (!config.ok()) {
    AddModelStatus(config.status(), findings);
  } else if (job.spec().has_data()) {
    CheckModelAndData(*config, job.spec(), findings);
  }
}

void CheckData(const v1::TrainingJob& job, Findings* findings) {
  const auto& data = job.spec().data();
  if (!job.spec().has_data()) return;
  const bool synthetic = data.source() == v1::DATA_SOURCE_SYNTHETIC;
  const bool reads_files =
      data.source() == v1::DATA_SOURCE_TOKENS || data.source() == v1::DATA_SOURCE_TEXT;
  if (reads_files && data.path().empty() && data.mixture().empty()) {
    findings->Error("spec.data.path",
                    "is required, unless mixture is given or source is synthetic");
  }
  CheckMixture(data, findings);
  CheckEvaluationSets(data, findings);
  CheckDocuments(data, findings);
  CheckText(data, findings);
  if (synthetic && !data.path().empty()) {
    findings->Error("spec.data.path", "synthetic data is not read from a path; remove it",
                    {absl::StrCat("\"", Shorten(data.path()), "\""), "", ""});
  }
  if (synthetic && data.validation_fraction() > 0) {
    findings->Error("spec.data.validationFraction",
                    "synthetic data has no validation split; remove it",
                    {absl::StrCat(data.validation_fraction()), "", ""});
  }
  if (synthetic && !data.validation_path().empty()) {
    findings->Error("spec.data.validationPath", "synthetic data has no validation split; remove it",
                    {absl::StrCat("\"", Shorten(data.validation_path()), "\""), "", ""});
  }
  if (data.validation_fraction() > 0 && !data.validation_path().empty()) {
    findings->Error("spec.data.validationFraction", "validationPath is given too; keep one of them",
                    {absl::StrCat(data.validation_fraction()), "", ""});
  }
  if (!synthetic && data.source() != v1::DATA_SOURCE_UNSPECIFIED &&
      data.targets() == v1::TARGET_KIND_INDEPENDENT) {
    findings->Error("spec.data.targets", "only synthetic data has independent targets",
                    {"independent", "next_token", ""});
  }
  if (data.validation_path() == data.path() && !data.path().empty()) {
    findings->Warning("spec.data.validationPath", "is the training data itself",
                      {absl::StrCat("\"", Shorten(data.path()), "\""), "", ""});
  }
}

void CheckTraining(const v1::TrainingJob& job, Findings* findings) {
  const auto& spec = job.spec();
  const auto& train = spec.train();
  if (spec.has_train() && train.global_batch() == 0 && train.global_batch_tokens() == 0) {
    findings->Error("spec.train.globalBatch", "is required, unless globalBatchTokens is given",
                    {"", RangeWords(RuleOf("spec.train.globalBatch")), ""});
  }
  if (train.global_batch() != 0 && train.global_batch_tokens() != 0) {
    findings->Error("spec.train.globalBatchTokens", "globalBatch is given too; keep one of them",
                    {absl::StrCat(train.global_batch_tokens()), "", ""});
  }
  const std::int64_t global_batch = train.global_batch();
  const double most = RuleOf("spec.train.globalBatch").max;
  if (static_cast<double>(global_batch) > most &&
      !findings->HasErrorUnder("spec.train.globalBatch")) {
    findings->Error("spec.train.globalBatchTokens",
                    absl::StrCat("makes ", global_batch, " sequences a step"),
                    {"", absl::StrCat("at most ", most, " sequences"), ""});
  }
  if (global_batch > 0 && train.micro_batch() > global_batch) {
    findings->Error("spec.train.microBatch",
                    absl::StrCat("is more than globalBatch ", global_batch),
                    {absl::StrCat(train.micro_batch()), absl::StrCat("1..", global_batch), ""});
  }
  if (spec.has_data() && !HasValidationData(spec.data())) CheckNoValidation(spec, findings);
  if (spec.precision().reduce() == v1::PRECISION_D_TYPE_BF16 &&
      spec.precision().parameters() == v1::PRECISION_D_TYPE_FP32) {
    findings->Error("spec.precision.reduce", "fp32 parameters need fp32 gradients",
                    {"bf16", "fp32, or parameters bf16", "fp32"});
  }
  if (train.deterministic() && spec.resources().device() == v1::DEVICE_TYPE_CUDA) {
    findings->Error("spec.train.deterministic", "not in this release on cuda; leave it out",
                    {"true", "false, or device cpu, which is always deterministic", ""});
  }
  CheckNumericPolicy(spec, findings);
  CheckSchedule(spec, findings);
}

void CheckLimits(const v1::TrainingJob& job, Findings* findings) {
  const auto& spec = job.spec();
  const auto& limits = spec.limits();
  std::vector<std::string> given;
  if (limits.max_steps() != 0) given.emplace_back("maxSteps");
  if (limits.max_tokens() != 0) given.emplace_back("maxTokens");
  if (limits.max_passes() != 0) given.emplace_back("maxPasses");
  if (given.size() > 1) {
    findings->Error("spec.limits",
                    absl::StrCat(absl::StrJoin(given, " and "), " are given; keep exactly one"));
  }
  if (given.empty()) {
    findings->Error("spec.limits", "must say when the job ends",
                    {"", "exactly one of maxSteps, maxTokens, maxPasses", ""});
  }
  if (limits.max_passes() != 0 && spec.data().source() == v1::DATA_SOURCE_SYNTHETIC) {
    findings->Error("spec.limits.maxPasses", "synthetic data has no end; use maxSteps or maxTokens",
                    {absl::StrCat(limits.max_passes()), "", ""});
  }
}

void CheckOperation(const v1::TrainingJob& job, Findings* findings) {
  const auto& spec = job.spec();
  CheckCheckpoint(spec, findings);
  CheckBestBy(spec, findings);
  CheckResources(spec, findings);
  CheckFailurePolicy(spec.failure_policy(), findings);
  WarnIfRelative("spec.data.path", spec.data().path(), findings);
  for (int i = 0; i < spec.data().mixture_size(); ++i) {
    WarnIfRelative(PartField("mixture", i, "path"), spec.data().mixture(i).path(), findings);
  }
  for (int i = 0; i < spec.data().evaluation_sets_size(); ++i) {
    WarnIfRelative(PartField("evaluationSets", i, "path"), spec.data().evaluation_sets(i).path(),
                   findings);
  }
  WarnIfRelative("spec.data.validationPath", spec.data().validation_path(), findings);
  if (spec.data().tokenizer() != kBytesTokenizer) {
    WarnIfRelative("spec.data.tokenizer", spec.data().tokenizer(), findings);
  }
  WarnIfRelative("spec.data.cacheDir", spec.data().cache_dir(), findings);
  WarnIfRelative("spec.model.configPath", spec.model().config_path(), findings);
  WarnIfRelative("spec.model.initFrom", spec.model().init_from(), findings);
  WarnIfRelative("spec.checkpoint.dir", spec.checkpoint().dir(), findings);
  WarnIfRelative("spec.checkpoint.resumeFrom", spec.checkpoint().resume_from(), findings);
}

}  // namespace fsdp::spec
