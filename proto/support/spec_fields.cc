#include "proto/support/spec_fields.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <string>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_replace.h"
#include "proto/support/spec_names.h"

namespace fsdp::spec {
namespace {

constexpr double kMaxSteps = 1e12;
constexpr double kMaxTokens = 9e15;  // exact in a double, which the JSON form may pass through
constexpr double kMaxSequences = 1 << 24;
constexpr double kYearSeconds = 366.0 * 86400;
constexpr double kDaySeconds = 86400;
constexpr double kMaxRestarts = 1e6;

constexpr std::string_view kPresets = "the preset's; required without one";

constexpr auto kRules = std::to_array<FieldRule>({
    {.path = "apiVersion", .required = true, .form = TextForm::kConstant, .constant = "fsdp.v1"},
    {.path = "kind", .required = true, .form = TextForm::kConstant, .constant = "TrainingJob"},
    {.path = "metadata", .required = true},
    {.path = "metadata.name", .required = true, .max_size = 63, .form = TextForm::kName},
    {.path = "metadata.labels", .max_size = 32},
    {.path = "metadata.labels{}", .max_size = 63, .form = TextForm::kLabel},
    {.path = "spec", .required = true},
    {.path = "spec.queue", .default_value = "default", .max_size = 63, .form = TextForm::kName},
    {.path = "spec.priority", .min = -1000, .max = 1000, .default_value = "0"},

    {.path = "spec.model", .required = true},
    {.path = "spec.model.family", .default_note = kPresets},
    {.path = "spec.model.vocabSize", .min = 1, .max = 1 << 24, .default_note = kPresets},
    {.path = "spec.model.dim", .min = 1, .max = 1 << 17, .default_note = kPresets},
    {.path = "spec.model.numLayers", .min = 1, .max = 4096, .default_note = kPresets},
    {.path = "spec.model.numHeads", .min = 1, .max = 4096, .default_note = kPresets},
    {.path = "spec.model.numKvHeads", .min = 1, .max = 4096, .default_note = "numHeads"},
    {.path = "spec.model.headDim", .min = 1, .max = 4096, .default_note = "dim / numHeads"},
    {.path = "spec.model.mlpDim",
     .min = 1,
     .max = 1 << 20,
     .default_note = "4 x dim (minillm, gpt2); required for llama"},
    {.path = "spec.model.maxPositions",
     .min = 1,
     .max = 1 << 24,
     .default_note = "the preset's, or 1024 (gpt2)"},
    {.path = "spec.model.normEps",
     .min = 0,
     .max = 0.1,
     .above_min = true,
     .default_note = "the family's"},
    {.path = "spec.model.ropeTheta",
     .min = 1,
     .max = 1e12,
     .default_note = "the preset's, or 10000"},
    {.path = "spec.model.ropeScaling.type", .required = true},
    {.path = "spec.model.ropeScaling.factor", .min = 1, .max = 1e6, .required = true},
    {.path = "spec.model.ropeScaling.lowFreqFactor",
     .min = 0,
     .max = 1e6,
     .default_note = "1 (llama3)"},
    {.path = "spec.model.ropeScaling.highFreqFactor",
     .min = 0,
     .max = 1e6,
     .default_note = "4 (llama3)"},
    {.path = "spec.model.ropeScaling.originalMaxPositions",
     .min = 1,
     .max = 1 << 30,
     .default_note = "8192 (llama3); required (yarn)"},
    {.path = "spec.model.ropeScaling.betaFast", .min = 0, .max = 1e6, .default_note = "32 (yarn)"},
    {.path = "spec.model.ropeScaling.betaSlow", .min = 0, .max = 1e6, .default_note = "1 (yarn)"},
    {.path = "spec.model.ropeScaling.attentionFactor",
     .min = 0,
     .max = 1e6,
     .default_note = "0.1 ln(factor) + 1 (yarn)"},
    {.path = "spec.model.qkNorm", .default_note = "the preset's, or false"},
    {.path = "spec.model.mask", .default_note = "full for minillm, causal for the others"},
    {.path = "spec.model.initFrom", .default_note = "random, from train.seed"},

    {.path = "spec.data", .required = true},
    {.path = "spec.data.source", .required = true},
    {.path = "spec.data.tokenDtype", .default_value = "uint16"},
    {.path = "spec.data.sequenceLength", .min = 1, .max = 1 << 20, .required = true},
    {.path = "spec.data.validationFraction", .min = 0, .max = 0.5, .default_value = "0"},
    {.path = "spec.data.shuffle", .default_value = "true"},
    {.path = "spec.data.targets", .default_value = "next_token"},
    {.path = "spec.data.tokenizer", .default_note = "bytes"},
    {.path = "spec.data.mixture", .max_size = 64},
    {.path = "spec.data.mixture[].name", .default_note = "the path", .max_size = 256},
    {.path = "spec.data.mixture[].path", .required = true},
    {.path = "spec.data.mixture[].weight",
     .min = 0,
     .max = 1e9,
     .above_min = true,
     .required = true},
    {.path = "spec.data.resetAttention", .default_value = "false"},
    {.path = "spec.data.evaluationSets", .max_size = 64},
    {.path = "spec.data.evaluationSets[].name", .default_note = "the path", .max_size = 256},
    {.path = "spec.data.evaluationSets[].path", .required = true},
    {.path = "spec.data.evaluationSets[].weight", .min = 0, .max = 1e9},
    {.path = "spec.data.resetPositions", .default_value = "false"},
    {.path = "spec.data.maskDocumentEnds", .default_value = "false"},
    {.path = "spec.data.documentSeparator",
     .min = 0,
     .max = (1 << 24) - 1,
     .default_note = "the tokenizer's; of token files none"},
    {.path = "spec.data.textField", .default_note = "text", .max_size = 256},
    {.path = "spec.data.cacheDir", .default_note = "the worker's state directory"},

    {.path = "spec.train", .required = true},
    {.path = "spec.train.globalBatch", .min = 1, .max = kMaxSequences},
    {.path = "spec.train.microBatch",
     .min = 1,
     .max = kMaxSequences,
     .default_note = "the rank's whole share of globalBatch"},
    {.path = "spec.train.globalBatchTokens", .min = 1, .max = kMaxTokens},
    {.path = "spec.train.seed", .default_value = "0"},
    {.path = "spec.train.evaluateEverySteps", .min = 0, .max = kMaxSteps, .default_value = "0"},
    {.path = "spec.train.evaluateSequences", .min = 0, .max = kMaxSteps, .default_value = "0"},
    {.path = "spec.train.recompute", .default_value = "auto"},
    {.path = "spec.train.deterministic", .default_value = "false"},
    {.path = "spec.train.onNonFinite", .default_value = "stop"},
    {.path = "spec.train.spikeSigma", .min = 0, .max = 1e6, .default_value = "0"},
    {.path = "spec.train.onSpike", .default_value = "stop"},
    {.path = "spec.train.maxConsecutiveSkips", .min = 1, .max = 1e6, .default_value = "10"},
    {.path = "spec.train.maxRollbacks", .min = 1, .max = 1e6, .default_value = "3"},

    {.path = "spec.optimizer.name", .default_value = "adamw"},
    {.path = "spec.optimizer.lr",
     .min = 0,
     .max = 1000,
     .above_min = true,
     .default_value = "0.0003"},
    {.path = "spec.optimizer.beta1", .min = 0, .max = 1, .below_max = true, .default_value = "0.9"},
    {.path = "spec.optimizer.beta2",
     .min = 0,
     .max = 1,
     .below_max = true,
     .default_value = "0.999"},
    {.path = "spec.optimizer.eps", .min = 0, .max = 1, .above_min = true, .default_value = "1e-08"},
    {.path = "spec.optimizer.weightDecay", .min = 0, .max = 1000, .default_value = "0.01"},
    {.path = "spec.optimizer.gradClip", .min = 0, .max = 1e9, .default_value = "0"},
    {.path = "spec.optimizer.decayVectors", .default_value = "true"},
    {.path = "spec.optimizer.schedule.type", .default_value = "constant"},
    {.path = "spec.optimizer.schedule.warmupSteps",
     .min = 0,
     .max = kMaxSteps,
     .default_value = "0"},
    {.path = "spec.optimizer.schedule.decaySteps",
     .min = 0,
     .max = kMaxSteps,
     .default_value = "0"},
    {.path = "spec.optimizer.schedule.minLrRatio", .min = 0, .max = 1, .default_value = "0"},

    {.path = "spec.precision.parameters", .default_value = "bf16"},
    {.path = "spec.precision.reduce", .default_value = "fp32"},

    {.path = "spec.sharding.reshardAfterForward", .default_value = "true"},
    {.path = "spec.sharding.prefetch", .min = 0, .max = 1, .default_value = "1"},
    {.path = "spec.sharding.communicators", .min = 1, .max = 2, .default_value = "2"},

    {.path = "spec.checkpoint.everySteps", .min = 0, .max = kMaxSteps, .default_value = "0"},
    {.path = "spec.checkpoint.keepLast", .min = 0, .max = 1e6, .default_value = "2"},
    {.path = "spec.checkpoint.keepEverySteps", .min = 0, .max = kMaxSteps, .default_value = "0"},
    {.path = "spec.checkpoint.keepBest", .default_value = "false"},
    {.path = "spec.checkpoint.inMemoryEverySteps",
     .min = 0,
     .max = kMaxSteps,
     .default_value = "0",
     .not_in_release = "use everySteps"},
    {.path = "spec.checkpoint.async", .default_value = "false"},

    {.path = "spec.resources.nodes", .min = 1, .max = kMaxRanks, .default_value = "1"},
    {.path = "spec.resources.devicesPerNode", .min = 1, .max = 1024, .default_value = "1"},
    {.path = "spec.resources.device", .default_value = "cpu"},
    {.path = "spec.resources.minRanks", .min = 0, .max = kMaxRanks, .default_value = "0"},
    {.path = "spec.resources.maxRanks", .min = 0, .max = kMaxRanks, .default_value = "0"},
    {.path = "spec.resources.spares", .min = 0, .max = kMaxRanks, .default_value = "0"},
    {.path = "spec.resources.anyNode", .default_value = "false"},

    {.path = "spec.failurePolicy.rules", .max_size = 64},
    {.path = "spec.failurePolicy.rules[].exitCodes", .min = 1, .max = 255, .max_size = 256},
    {.path = "spec.failurePolicy.rules[].signals", .min = 1, .max = 64, .max_size = 64},
    {.path = "spec.failurePolicy.rules[].causes", .max_size = 64},
    {.path = "spec.failurePolicy.rules[].logRegex", .max_size = 256},
    {.path = "spec.failurePolicy.rules[].phases", .max_size = 16},
    {.path = "spec.failurePolicy.rules[].action", .required = true},
    {.path = "spec.failurePolicy.maxInfrastructureRestarts",
     .min = 0,
     .max = kMaxRestarts,
     .default_value = "10"},
    {.path = "spec.failurePolicy.maxUserRestarts",
     .min = 0,
     .max = kMaxRestarts,
     .default_value = "0"},
    {.path = "spec.failurePolicy.maxNoProgressRestarts",
     .min = 0,
     .max = kMaxRestarts,
     .default_value = "3"},
    {.path = "spec.failurePolicy.backoffInitialSeconds",
     .min = 0,
     .max = kDaySeconds,
     .default_value = "1"},
    {.path = "spec.failurePolicy.backoffMaxSeconds",
     .min = 0,
     .max = kDaySeconds,
     .default_value = "100"},

    {.path = "spec.limits", .required = true},
    {.path = "spec.limits.maxSteps", .min = 1, .max = kMaxSteps},
    {.path = "spec.limits.maxTokens", .min = 1, .max = kMaxTokens},
    {.path = "spec.limits.maxPasses", .min = 0, .max = 1e6, .above_min = true},
    {.path = "spec.limits.maxRunSeconds", .min = 0, .max = 10 * kYearSeconds, .default_value = "0"},
    {.path = "spec.limits.gracePeriodSeconds", .min = 0, .max = kDaySeconds, .default_value = "60"},
    {.path = "spec.limits.stopAfterDisconnectSeconds",
     .min = 1,
     .max = kYearSeconds,
     .default_value = "600"},
    {.path = "spec.limits.ttlAfterFinishedSeconds",
     .min = 0,
     .max = 10 * kYearSeconds,
     .default_value = "0"},
    {.path = "spec.limits.joinTimeoutSeconds",
     .min = 1,
     .max = kDaySeconds,
     .default_value = "120"},
    {.path = "spec.limits.hangTimeoutSeconds", .min = 1, .max = kDaySeconds, .default_value = "30"},

    {.path = "spec.env", .max_size = 64},
    {.path = "spec.env{}", .max_size = 4096},
    {.path = "spec.profile.enabled", .default_value = "true"},
    {.path = "spec.profile.everySeconds", .min = 1, .max = kDaySeconds, .default_value = "60"},

    {.path = "spec.array.count", .min = 1, .max = kMaxArrayTasks, .required = true},
    {.path = "spec.array.maxParallel", .min = 0, .max = kMaxArrayTasks, .default_note = "no limit"},
    {.path = "spec.array.set", .max_size = 64},
    {.path = "spec.array.parameters", .max_size = 32},
    {.path = "spec.array.parameters[].name",
     .required = true,
     .max_size = 63,
     .form = TextForm::kName},
    {.path = "spec.array.parameters[].values", .required = true, .max_size = kMaxArrayTasks},
    {.path = "spec.array.parameters[].values[]", .any_scalar = true},
});

constexpr double kMaxDevices = 1e6;

constexpr auto kQueueFieldRules = std::to_array<FieldRule>({
    {.path = "queueConfig.apiVersion",
     .required = true,
     .form = TextForm::kConstant,
     .constant = "fsdp.v1"},
    {.path = "queueConfig.kind",
     .required = true,
     .form = TextForm::kConstant,
     .constant = "QueueConfig"},
    {.path = "queueConfig.queues", .required = true, .max_size = 256},
    {.path = "queueConfig.queues[].name",
     .required = true,
     .max_size = 63,
     .form = TextForm::kName},
    {.path = "queueConfig.queues[].weight", .min = 0, .max = 1e6, .above_min = true},
    {.path = "queueConfig.queues[].devices", .max_size = 8},
    {.path = "queueConfig.queues[].devices[].device", .required = true},
    {.path = "queueConfig.queues[].devices[].quota", .min = 0, .max = kMaxDevices},
    {.path = "queueConfig.queues[].devices[].max", .min = 0, .max = kMaxDevices},
    {.path = "queueConfig.queues[].preemption.graceSeconds", .min = 0, .max = kDaySeconds},
    {.path = "queueConfig.queues[].preemption.minRunSeconds", .min = 0, .max = kYearSeconds},
});

constexpr auto kValues = std::to_array<ValueRule>({
    {"spec.data.source", "jsonl", "use text: files named .jsonl are read line by line"},
});

constexpr auto kChoices = std::to_array<Choice>({
    {"spec.model",
     {"family", "preset", "configPath"},
     false,
     "At least one of `family`, `preset` and `configPath` must be given."},
    {"spec.train",
     {"globalBatch", "globalBatchTokens"},
     true,
     "Exactly one of `globalBatch` and `globalBatchTokens` must be given."},
    {"spec.limits",
     {"maxSteps", "maxTokens", "maxPasses"},
     true,
     "Exactly one of `maxSteps`, `maxTokens` and `maxPasses` must be given."},
});

constexpr FieldRule kFree = {};

constexpr auto kEnvPrefixes =
    std::to_array<std::string_view>({"NCCL_", "GLOO_", "OMP_", "OPENBLAS_", "DNNL_", "FSDP_"});
constexpr std::string_view kEnvName = "CUDA_LAUNCH_BLOCKING";

bool IsUpperName(std::string_view name) {
  return std::all_of(name.begin(), name.end(), [](unsigned char c) {
    return absl::ascii_isupper(c) || absl::ascii_isdigit(c) || c == '_';
  });
}

bool IsName(std::string_view text) {
  const auto is_inner = [](unsigned char c) {
    return absl::ascii_islower(c) || absl::ascii_isdigit(c) || c == '-';
  };
  return !text.empty() && text.size() <= 63 &&
         absl::ascii_islower(static_cast<unsigned char>(text.front())) && text.back() != '-' &&
         std::all_of(text.begin(), text.end(), is_inner);
}

bool IsLabelCharacter(unsigned char c) {
  return absl::ascii_isalnum(c) || c == '.' || c == '_' || c == '/' || c == '-';
}

}  // namespace

std::span<const FieldRule> FieldRules() { return kRules; }

const FieldRule& RuleOf(std::string_view path) {
  const std::span<const FieldRule> rules =
      path.starts_with(kQueueRules) ? QueueFieldRules() : FieldRules();
  const auto found = std::find_if(rules.begin(), rules.end(),
                                  [&](const FieldRule& rule) { return rule.path == path; });
  return found == rules.end() ? kFree : *found;
}

std::span<const FieldRule> QueueFieldRules() { return kQueueFieldRules; }

std::span<const ValueRule> ValuesNotInRelease() { return kValues; }

std::span<const Choice> Choices() { return kChoices; }

bool IsInRelease(std::string_view path, std::string_view value) {
  return std::none_of(kValues.begin(), kValues.end(), [&](const ValueRule& rule) {
    return rule.path == path && rule.value == value;
  });
}

std::vector<std::string> AllowedNames(const google::protobuf::EnumDescriptor& type,
                                      std::string_view path) {
  std::vector<std::string> names = ShortEnumNames(type);
  std::erase_if(names, [&](const std::string& name) { return !IsInRelease(path, name); });
  return names;
}

std::string RangeWords(const FieldRule& rule) {
  const bool has_min = std::isfinite(rule.min);
  const bool has_max = std::isfinite(rule.max);
  const auto number = [](double value) { return absl::StrFormat("%.15g", value); };
  if (has_min && has_max && !rule.above_min && !rule.below_max) {
    return absl::StrCat(number(rule.min), "..", number(rule.max));
  }
  std::string words;
  if (has_min) words = absl::StrCat(rule.above_min ? "more than " : "at least ", number(rule.min));
  if (has_max) {
    absl::StrAppend(&words, words.empty() ? "" : ", ", rule.below_max ? "less than " : "at most ",
                    number(rule.max));
  }
  return words;
}

std::string_view EnvNamePattern() {
  return "^((NCCL|GLOO|OMP|OPENBLAS|DNNL|FSDP)_[A-Z0-9_]+|CUDA_LAUNCH_BLOCKING)$";
}

std::string_view EnvNameWords() {
  return "NCCL_*, GLOO_*, OMP_*, OPENBLAS_*, DNNL_*, FSDP_* and CUDA_LAUNCH_BLOCKING";
}

bool IsEnvNameAllowed(std::string_view name) {
  if (name == kEnvName) return true;
  return IsUpperName(name) &&
         std::any_of(kEnvPrefixes.begin(), kEnvPrefixes.end(), [&](std::string_view prefix) {
           return name.size() > prefix.size() && name.starts_with(prefix);
         });
}

bool HasForm(const FieldRule& rule, std::string_view text) {
  switch (rule.form) {
    case TextForm::kName:
      return IsName(text);
    case TextForm::kConstant:
      return text == rule.constant;
    case TextForm::kLabel:
      return std::all_of(text.begin(), text.end(), IsLabelCharacter);
    case TextForm::kAny:
      break;
  }
  return true;
}

std::string FormPattern(const FieldRule& rule) {
  switch (rule.form) {
    case TextForm::kName:
      return "^[a-z]([a-z0-9-]{0,61}[a-z0-9])?$";
    case TextForm::kConstant:
      return absl::StrCat("^", absl::StrReplaceAll(std::string(rule.constant), {{".", "\\."}}),
                          "$");
    case TextForm::kLabel:
      return "^[A-Za-z0-9._/-]{0,63}$";
    case TextForm::kAny:
      break;
  }
  return "";
}

std::string FormWords(const FieldRule& rule) {
  switch (rule.form) {
    case TextForm::kName:
      return "1-63 of a-z, 0-9 and -, starting with a letter, ending with a letter or digit";
    case TextForm::kConstant:
      return std::string(rule.constant);
    case TextForm::kLabel:
      return "at most 63 of A-Z, a-z, 0-9, '.', '_', '/' and '-'";
    case TextForm::kAny:
      break;
  }
  return "";
}

}  // namespace fsdp::spec
