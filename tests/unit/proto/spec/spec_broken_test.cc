// Broken specs: each is the valid base with one line replaced, and must give exactly one finding,
// at the place, for the field and with the words that the table names.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "proto/support/spec.h"
#include "tests/unit/proto/spec/base_spec.h"

namespace fsdp {
namespace {

using ::testing::HasSubstr;

struct BrokenSpec {
  const char* name;
  int line;
  std::string text;   // instead of that line
  const char* place;  // "line:column"
  const char* field;
  const char* words;  // part of the described finding
};

// Gtest prints the name of a case, not its bytes.
void PrintTo(const BrokenSpec& broken, std::ostream* out) { *out << broken.name; }

std::string Nested(int depth) {
  return "  env: " + std::string(static_cast<std::size_t>(depth), '[') +
         std::string(static_cast<std::size_t>(depth), ']');
}

const std::vector<BrokenSpec>& BrokenSpecs() {
  static const std::vector<BrokenSpec> specs = {
      // Syntax and bytes.
      {"tab_indent", 9, "\tdim: 64", "9:1", "", "syntax"},
      {"unclosed_bracket", 20, "x: [1, 2", "21:1", "", "syntax"},
      {"unclosed_quote", 4, "  name: \"job", "4:9", "", "never closed"},
      {"unclosed_single_quote", 4, "  name: 'it''s", "4:9", "", "never closed"},
      {"two_colons", 9, "    dim: 64: 3", "9:12", "", "syntax"},
      {"bad_indent", 9, "   dim: 64", "9:4", "", "syntax"},
      {"not_utf8", 4, "  name: j\xC3\x28", "4:10", "", "byte 0xc3 is not UTF-8"},
      {"overlong_utf8", 4, "  name: \xC0\xAF", "4:9", "", "byte 0xc0 is not UTF-8"},
      {"utf8_surrogate", 4, "  name: \xED\xA0\x80", "4:9", "", "is not UTF-8"},
      {"utf8_beyond_unicode", 4, "  name: \xF4\x90\x80\x80", "4:9", "", "is not UTF-8"},
      {"nul_byte", 4, std::string("  name: j\0b", 11), "4:10", "", "control character 0x00"},
      {"escape_byte", 4, "  name: \x1b[31m", "4:9", "", "control character 0x1b"},
      {"anchor", 9, "    dim: &d 64", "9:10", "", "anchors (&name) are not used"},
      {"undefined_alias", 9, "    dim: *d", "9:10", "", "syntax"},
      {"tag", 9, "    dim: !!int 64", "9:10", "", "tags (!name) are not used"},
      {"second_document", 20, "---\nkind: TrainingJob", "20:1", "", "a second document"},
      {"too_deep", 20, Nested(40), "20:38", "", "nested more than 32 deep"},
      {"deep_enough_for_the_reader", 20, Nested(3000), "20:38", "", "nested more than 32 deep"},
      // Keys.
      {"unknown_key", 9, "    dim: 64\n    width: 3", "10:5", "spec.model.width", "unknown key"},
      {"misspelt_key", 11, "    numHeads: 4\n    numLayer: 2", "12:5", "spec.model.numLayer",
       "did you mean numLayers?"},
      {"swapped_letters", 16, "  trian: {}\n  train:", "16:3", "spec.trian", "did you mean train?"},
      {"snake_case", 15, "    sequenceLength: 32\n    token_dtype: uint16", "16:5",
       "spec.data.token_dtype", "did you mean tokenDtype?"},
      {"key_of_another_section", 17, "    globalBatch: 8\n    lr: 1e-3", "18:5", "spec.train.lr",
       "did you mean spec.optimizer.lr?"},
      {"top_level_unknown", 20, "status: {}", "20:1", "status", "unknown key"},
      {"merge_key", 20, "  <<: {}", "20:3", "spec.<<", "unknown key"},
      {"duplicate_key", 9, "    dim: 64\n    dim: 128", "10:5", "spec.model.dim", "is given twice"},
      {"duplicate_section", 20, "  limits: {maxSteps: 3}", "20:3", "spec.limits", "is given twice"},
      {"duplicate_label", 4, "  name: job\n  labels: {a: x, a: y}", "5:18",
       "metadata.labels[\"a\"]", "is given twice"},
      {"key_is_a_list", 20, "  ? [a, b]\n  : 1", "20:5", "", "a key must be a name"},
      // One mistake is one finding: the key that was meant is not also missing.
      {"misspelt_required", 15, "    sequenceLenght: 32", "15:5", "spec.data.sequenceLenght",
       "did you mean sequenceLength?"},
      {"misspelt_section", 16, "  trian:", "16:3", "spec.trian", "did you mean train?"},
      {"misspelt_choice", 17, "    globalBatchToken: 256", "17:5", "spec.train.globalBatchToken",
       "did you mean globalBatchTokens?"},
      {"misspelt_top", 2, "kin: TrainingJob", "2:1", "kin", "did you mean kind?"},
      // Types.
      {"string_for_int", 9, "    dim: big", "9:5", "spec.model.dim", "must be a whole number"},
      {"fraction_for_int", 10, "    numLayers: 2.5", "10:5", "spec.model.numLayers",
       "2.5: must be a whole number"},
      {"hex_for_int", 9, "    dim: 0x40", "9:5", "spec.model.dim", "must be a whole number"},
      {"leading_zero", 9, "    dim: 064", "9:5", "spec.model.dim", "must be a whole number"},
      {"underscores", 9, "    dim: 1_000", "9:5", "spec.model.dim", "must be a whole number"},
      {"plus_sign", 9, "    dim: +64", "9:5", "spec.model.dim", "must be a whole number"},
      {"unit_suffix", 9, "    dim: 64k", "9:5", "spec.model.dim", "must be a whole number"},
      {"list_for_int", 9, "    dim: [64]", "9:5", "spec.model.dim", "is a list"},
      {"object_for_int", 9, "    dim: {a: 1}", "9:5", "spec.model.dim", "is an object"},
      {"empty_for_int", 9, "    dim:", "9:5", "spec.model.dim", "has no value"},
      {"scalar_for_object", 20, "  checkpoint: /ckpt", "20:3", "spec.checkpoint",
       "must be an object"},
      {"list_for_object", 20, "  checkpoint: [a]", "20:3", "spec.checkpoint", "must be an object"},
      {"scalar_for_list", 20, "  failurePolicy: {rules: 3}", "20:19", "spec.failurePolicy.rules",
       "must be a list"},
      {"list_for_map", 20, "  env: [A]", "20:3", "spec.env", "must be an object"},
      {"number_for_string", 4, "  name: 123", "4:3", "metadata.name", "put it in quotes"},
      {"bool_for_string", 20, "  queue: true", "20:3", "spec.queue", "put it in quotes"},
      {"number_for_env", 20, "  env: {OMP_NUM_THREADS: 2}", "20:9", "spec.env[\"OMP_NUM_THREADS\"]",
       "did you mean \"2\"?"},
      {"yes_for_bool", 15, "    sequenceLength: 32\n    shuffle: yes", "16:5", "spec.data.shuffle",
       "did you mean true?"},
      {"one_for_bool", 17, "    globalBatch: 8\n    deterministic: 1", "18:5",
       "spec.train.deterministic", "must be true or false"},
      {"quoted_bool", 17, "    globalBatch: 8\n    deterministic: \"true\"", "18:5",
       "spec.train.deterministic", "must be true or false"},
      {"string_for_double", 20, "  optimizer: {lr: fast}", "20:15", "spec.optimizer.lr",
       "must be a number"},
      {"comma_decimal", 20, "  optimizer: {lr: \"0,1\"}", "20:15", "spec.optimizer.lr",
       "must be a number"},
      {"comma_too_many", 20, "  checkpoint: {dir: a,, everySteps: 1}", "20:23", "",
       "a key is missing here; is there a comma too many?"},
      // Numbers beyond their types.
      {"int32_overflow", 10, "    numLayers: 4294967298", "10:5", "spec.model.numLayers",
       "is out of range; allowed: 1..4096"},
      {"int64_overflow", 9, "    dim: 18446744073709551680", "9:5", "spec.model.dim",
       "is out of range; allowed: 1..131072"},
      {"huge_exponent", 19, "    maxSteps: 1e999999", "19:5", "spec.limits.maxSteps",
       "is out of range"},
      {"hundred_digits", 19, "    maxSteps: 1" + std::string(100, '0'), "19:5",
       "spec.limits.maxSteps", "is out of range"},
      {"negative_unsigned", 17, "    globalBatch: 8\n    seed: -1", "18:5", "spec.train.seed",
       "is out of range; allowed: 0..18446744073709551615"},
      {"uint64_overflow", 17, "    globalBatch: 8\n    seed: 18446744073709551616", "18:5",
       "spec.train.seed", "is out of range"},
      {"nan", 20, "  optimizer: {lr: .nan}", "20:15", "spec.optimizer.lr", "must be finite"},
      {"nan_word", 20, "  optimizer: {lr: NaN}", "20:15", "spec.optimizer.lr", "must be finite"},
      {"infinity", 20, "  optimizer: {gradClip: Infinity}", "20:15", "spec.optimizer.gradClip",
       "must be finite"},
      {"negative_infinity", 20, "  optimizer: {weightDecay: -.inf}", "20:15",
       "spec.optimizer.weightDecay", "must be finite"},
      {"double_overflow", 20, "  optimizer: {lr: 1e400}", "20:15", "spec.optimizer.lr",
       "is out of range"},
      // Ranges.
      {"dim_zero", 9, "    dim: 0", "9:5", "spec.model.dim", "0: is too small; allowed: 1..131072"},
      {"layers_negative", 10, "    numLayers: -2", "10:5", "spec.model.numLayers", "is too small"},
      {"vocab_huge", 8, "    vocabSize: 99999999", "8:5", "spec.model.vocabSize", "is too large"},
      {"sequence_zero", 15, "    sequenceLength: 0", "15:5", "spec.data.sequenceLength",
       "is required; allowed: 1..1048576"},
      {"sequence_huge", 15, "    sequenceLength: 2000000", "15:5", "spec.data.sequenceLength",
       "is too large; allowed: 1..1048576"},
      {"lr_zero", 20, "  optimizer: {lr: 0}", "20:15", "spec.optimizer.lr",
       "more than 0, at most 1000"},
      {"lr_negative", 20, "  optimizer: {lr: -1e-4}", "20:15", "spec.optimizer.lr", "is too small"},
      {"beta_one", 20, "  optimizer: {beta1: 1}", "20:15", "spec.optimizer.beta1",
       "at least 0, less than 1"},
      {"ratio_above_one", 20, "  optimizer: {schedule: {type: cosine, minLrRatio: 1.5}}", "20:40",
       "spec.optimizer.schedule.minLrRatio", "is too large; allowed: 0..1"},
      {"fraction_above_half", 14, "    source: text\n    path: /x\n    validationFraction: 0.6",
       "16:5", "spec.data.validationFraction", "allowed: 0..0.5"},
      {"priority", 20, "  priority: 1001", "20:3", "spec.priority", "allowed: -1000..1000"},
      {"prefetch", 20, "  sharding: {prefetch: 2}", "20:14", "spec.sharding.prefetch",
       "allowed: 0..1"},
      {"communicators", 20, "  sharding: {communicators: 0}", "20:14",
       "spec.sharding.communicators", "allowed: 1..2"},
      {"world_zero", 20, "  resources: {devicesPerNode: 0}", "20:15",
       "spec.resources.devicesPerNode", "0: is too small; allowed: 1..1024"},
      {"nodes_negative", 20, "  resources: {nodes: -1}", "20:15", "spec.resources.nodes",
       "is too small"},
      {"world_huge", 20, "  resources: {nodes: 4096, devicesPerNode: 1024}", "20:3",
       "spec.resources", "= 4194304 ranks"},
      {"signal_zero", 20, "  failurePolicy: {rules: [{signals: [0], action: fail}]}", "20:38",
       "spec.failurePolicy.rules[0].signals[0]", "allowed: 1..64"},
      {"exit_code_300", 20, "  failurePolicy: {rules: [{exitCodes: [1, 300], action: fail}]}",
       "20:43", "spec.failurePolicy.rules[0].exitCodes[1]", "allowed: 1..255"},
      {"exit_code_0", 20, "  failurePolicy: {rules: [{exitCodes: [0], action: fail}]}", "20:40",
       "spec.failurePolicy.rules[0].exitCodes[0]", "allowed: 1..255"},
      {"hang_timeout_zero", 19, "    maxSteps: 10\n    hangTimeoutSeconds: 0", "20:5",
       "spec.limits.hangTimeoutSeconds", "is too small"},
      // Strings and names.
      {"api_version", 1, "apiVersion: fsdp.v2", "1:1", "apiVersion", "did you mean fsdp.v1?"},
      {"kind", 2, "kind: trainingjob", "2:1", "kind", "did you mean TrainingJob?"},
      {"name_capitals", 4, "  name: Job", "4:3", "metadata.name", "1-63 of a-z"},
      {"name_trailing_dash", 4, "  name: job-", "4:3", "metadata.name", "1-63 of a-z"},
      {"name_long", 4, "  name: " + std::string(64, 'a'), "4:3", "metadata.name",
       "has 64 bytes; allowed: at most 63"},
      {"name_huge", 4, "  name: " + std::string(100000, 'a'), "4:3", "metadata.name",
       "has 100000 bytes"},
      {"queue_form", 20, "  queue: \"my queue\"", "20:3", "spec.queue", "is not of the right form"},
      {"label_key", 4, "  name: job\n  labels: {\"a b\": x}", "5:12", "metadata.labels[\"a b\"]",
       "this key is not of the right form"},
      {"label_value", 4, "  name: job\n  labels: {a: \"x y\"}", "5:12", "metadata.labels[\"a\"]",
       "is not of the right form"},
      {"label_long", 4, "  name: job\n  labels: {a: " + std::string(64, 'x') + "}", "5:12",
       "metadata.labels[\"a\"]", "at most 63"},
      {"path_too_long", 20, "  checkpoint: {dir: /" + std::string(5000, 'd') + "}", "20:16",
       "spec.checkpoint.dir", "at most 4096"},
      {"path_control", 20, "  checkpoint: {dir: \"/a\\u0007\"}", "20:16", "spec.checkpoint.dir",
       "control character"},
      {"env_name", 20, "  env: {LD_PRELOAD: x}", "20:9", "spec.env[\"LD_PRELOAD\"]", "NCCL_*"},
      {"env_lower_case", 20, "  env: {NCCL_debug: x}", "20:9", "spec.env[\"NCCL_debug\"]",
       "this name may not be set"},
      {"env_bare_prefix", 20, "  env: {NCCL_: x}", "20:9", "spec.env[\"NCCL_\"]",
       "this name may not be set"},
      {"unknown_family", 7, "    family: lama", "7:5", "spec.model.family", "did you mean llama?"},
      {"enum_number", 7, "    family: 3", "7:5", "spec.model.family", "minillm, gpt2, llama"},
      {"unspecified_enum", 7, "    family: unspecified", "7:5", "spec.model.family",
       "is not a known name"},
      {"unknown_source", 14, "    source: synthetics", "14:5", "spec.data.source",
       "did you mean synthetic?"},
      {"unknown_dtype", 20, "  precision: {parameters: fp16}", "20:15", "spec.precision.parameters",
       "fp32, bf16"},
      {"unknown_preset", 11, "    numHeads: 4\n    preset: llama-tin", "12:5", "spec.model.preset",
       "did you mean llama-tiny?"},
      // Required fields.
      {"no_api_version", 1, "", "1:1", "apiVersion", "is required"},
      {"no_name", 4, "  labels: {}", "3:1", "metadata.name", "is required"},
      {"no_family", 7, "", "6:3", "spec.model.family", "is required, unless a preset"},
      {"no_dim", 9, "", "6:3", "spec.model.dim", "is required"},
      {"no_mlp_dim", 12, "", "6:3", "spec.model.mlpDim", "is required for family llama"},
      {"no_source", 14, "", "13:3", "spec.data.source", "synthetic, tokens, text"},
      {"no_batch", 17, "    seed: 1", "16:3", "spec.train.globalBatch", "is required"},
      {"no_limit", 19, "    maxRunSeconds: 60", "18:3", "spec.limits",
       "exactly one of maxSteps, maxTokens, maxPasses"},
      {"rule_without_action", 20, "  failurePolicy: {rules: [{signals: [9]}]}", "20:27",
       "spec.failurePolicy.rules[0].action", "is required"},
      // Combinations.
      {"heads_do_not_divide", 11, "    numHeads: 7", "11:5", "spec.model.numHeads",
       "7: must divide dim 64, unless headDim is given; allowed: 1, 2, 4, 8, 16, 32, 64; did you "
       "mean 8?"},
      {"kv_heads_do_not_divide", 11, "    numHeads: 4\n    numKvHeads: 3", "12:5",
       "spec.model.numKvHeads", "must divide numHeads 4; allowed: 1, 2, 4"},
      {"odd_head_dim", 11, "    numHeads: 4\n    headDim: 15", "12:5", "spec.model.headDim",
       "even"},
      {"preset_and_family", 7, "    family: llama\n    preset: minillm-tiny", "7:5",
       "spec.model.family", "not the family of preset"},
      {"text_without_path", 14, "    source: text", "13:3", "spec.data.path", "is required"},
      {"synthetic_mixture", 14, "    source: synthetic\n    mixture: [{path: /x, weight: 1}]",
       "15:5", "spec.data.mixture", "synthetic data is not mixed"},
      {"mixture_and_path", 14,
       "    source: text\n    path: /x\n    mixture: [{path: /y, weight: 1}]", "16:5",
       "spec.data.mixture", "keep one of them"},
      {"mixture_without_path", 14, "    source: text\n    mixture: [{weight: 1}]", "15:15",
       "spec.data.mixture[0].path", "is required"},
      {"weight_zero", 14, "    source: text\n    mixture: [{path: /x, weight: 0}]", "15:26",
       "spec.data.mixture[0].weight", "more than 0"},
      {"weight_negative", 14, "    source: text\n    mixture: [{path: /x, weight: -1}]", "15:26",
       "spec.data.mixture[0].weight", "is too small"},
      {"weight_nan", 14, "    source: text\n    mixture: [{path: /x, weight: .nan}]", "15:26",
       "spec.data.mixture[0].weight", "finite"},
      {"weight_too_small", 14,
       "    source: text\n    mixture: [{path: /x, weight: 1}, {path: /y, weight: 1e-7}]", "15:49",
       "spec.data.mixture[1].weight", "is less than 1 in 1048576"},
      {"source_twice", 14,
       "    source: text\n    mixture: [{path: /x, weight: 1}, {path: /x, weight: 2}]", "15:39",
       "spec.data.mixture[1].path", "is that of mixture[0] too"},
      {"synthetic_documents", 14, "    source: synthetic\n    maskDocumentEnds: true", "15:5",
       "spec.data.maskDocumentEnds", "has no documents"},
      {"reset_of_synthetic", 14, "    source: synthetic\n    resetAttention: true", "15:5",
       "spec.data.resetAttention", "has no documents"},
      {"positions_alone", 14, "    source: text\n    path: /x\n    resetPositions: true", "16:5",
       "spec.data.resetPositions", "give both"},
      {"separator_alone", 14, "    source: tokens\n    path: /x\n    documentSeparator: 0", "16:5",
       "spec.data.documentSeparator", "give one of them too"},
      {"separator_of_text", 14,
       "    source: text\n    path: /x\n    maskDocumentEnds: true\n    documentSeparator: 0",
       "17:5", "spec.data.documentSeparator", "each file of text is a document"},
      {"separator_is_no_token", 14,
       "    source: tokens\n    path: /x\n    maskDocumentEnds: true\n    documentSeparator: "
       "999999",
       "17:5", "spec.data.documentSeparator", "is not a token of the model"},
      {"synthetic_with_path", 14, "    source: synthetic\n    path: /x", "15:5", "spec.data.path",
       "remove it"},
      {"independent_text", 14, "    source: text\n    path: /x\n    targets: independent", "16:5",
       "spec.data.targets", "only synthetic data"},
      {"two_validations", 14,
       "    source: text\n    path: /x\n    validationFraction: 0.1\n    validationPath: /y",
       "16:5", "spec.data.validationFraction", "keep one of them"},
      {"evaluate_nothing", 17, "    globalBatch: 8\n    evaluateEverySteps: 5", "18:5",
       "spec.train.evaluateEverySteps", "there is no validation data"},
      {"micro_above_global", 17, "    globalBatch: 8\n    microBatch: 9", "18:5",
       "spec.train.microBatch", "is more than globalBatch 8"},
      {"batch_twice", 17, "    globalBatch: 8\n    globalBatchTokens: 256", "18:5",
       "spec.train.globalBatchTokens", "keep one of them"},
      {"two_limits", 19, "    maxSteps: 10\n    maxTokens: 99", "18:3", "spec.limits",
       "maxSteps and maxTokens are given; keep exactly one"},
      {"passes_of_synthetic", 19, "    maxPasses: 1.5", "19:5", "spec.limits.maxPasses", "no end"},
      {"warmup_too_long", 20, "  optimizer: {schedule: {type: cosine, warmupSteps: 11}}", "20:40",
       "spec.optimizer.schedule.warmupSteps", "is more than limits.maxSteps 10"},
      {"constant_decays", 20, "  optimizer: {schedule: {decaySteps: 5}}", "20:26",
       "spec.optimizer.schedule.decaySteps", "a constant schedule does not decay"},
      {"checkpoint_without_dir", 20, "  checkpoint: {everySteps: 5}", "20:16",
       "spec.checkpoint.everySteps", "needs checkpoint.dir"},
      {"two_starts", 12, "    mlpDim: 128\n    initFrom: /w\n  checkpoint: {resumeFrom: /c}",
       "14:16", "spec.checkpoint.resumeFrom", "keep one"},
      {"bf16_reduce_of_fp32", 20, "  precision: {parameters: fp32, reduce: bf16}", "20:33",
       "spec.precision.reduce", "did you mean fp32?"},
      {"backoff_order", 20, "  failurePolicy: {backoffInitialSeconds: 9, backoffMaxSeconds: 3}",
       "20:19", "spec.failurePolicy.backoffInitialSeconds", "is more than backoffMaxSeconds 3"},
      {"bad_regex", 20, "  failurePolicy: {rules: [{logRegex: \"a(\", action: fail}]}", "20:28",
       "spec.failurePolicy.rules[0].logRegex", "is no regular expression (RE2): missing )"},
      {"synthetic_split", 15, "    sequenceLength: 32\n    validationFraction: 0.1", "16:5",
       "spec.data.validationFraction", "has no validation split"},
      {"learned_positions", 7, "    family: gpt2\n    maxPositions: 16", "16:5",
       "spec.data.sequenceLength", "is longer than the model's maxPositions 16"},
      {"positions", 12, "    mlpDim: 128\n    maxPositions: 16", "16:5", "spec.data.sequenceLength",
       "is longer than the model's maxPositions 16"},
      {"tokens_per_step", 17, "    globalBatchTokens: 9e15", "17:5", "spec.train.globalBatchTokens",
       "makes 281250000000000 sequences a step"},
      {"rule_matches_all", 20, "  failurePolicy: {rules: [{action: fail}]}", "20:27",
       "spec.failurePolicy.rules[0]", "matches every failure"},
      {"rollback", 17, "    globalBatch: 8\n    onNonFinite: rollback", "18:5",
       "spec.train.onNonFinite", "needs a checkpoint to go back to"},
      {"spike_rollback", 17, "    globalBatch: 8\n    spikeSigma: 6\n    onSpike: rollback", "19:5",
       "spec.train.onSpike", "set checkpoint.dir and everySteps"},
      {"no_spikes", 17, "    globalBatch: 8\n    onSpike: skip", "18:5", "spec.train.onSpike",
       "says nothing without spikeSigma"},
      {"no_skips", 17, "    globalBatch: 8\n    maxConsecutiveSkips: -1", "18:5",
       "spec.train.maxConsecutiveSkips", "1..1000000"},
      {"sets_of_synthetic", 14, "    source: synthetic\n    evaluationSets: [{path: /x}]", "15:5",
       "spec.data.evaluationSets", "synthetic data is none"},
      {"set_twice", 14,
       "    source: text\n    path: /x\n    evaluationSets: [{path: /y}, {name: /y, path: /z}]",
       "16:35", "spec.data.evaluationSets[1].name", "is that of evaluationSets[0] too"},
      {"set_without_path", 14, "    source: text\n    path: /x\n    evaluationSets: [{name: a}]",
       "16:22", "spec.data.evaluationSets[0].path", "is required"},
      {"set_with_weight", 14,
       "    source: text\n    path: /x\n    evaluationSets: [{path: /y, weight: 2}]", "16:33",
       "spec.data.evaluationSets[0].weight", "each set is evaluated by itself"},
      // Not in this release.
      {"jsonl", 14, "    source: jsonl", "14:5", "spec.data.source", "not in this release"},
      {"tokenizer_of_tokens", 14, "    source: tokens\n    path: /x\n    tokenizer: /t", "16:5",
       "spec.data.tokenizer", "is for source text"},
      {"text_field_of_synthetic", 14, "    source: synthetic\n    textField: body", "15:5",
       "spec.data.textField", "is for source text"},
      {"cache_of_tokens", 14, "    source: tokens\n    path: /x\n    cacheDir: /c", "16:5",
       "spec.data.cacheDir", "is for source text"},
      {"elastic_without_checkpoints", 20, "  resources: {minRanks: 1}", "20:15",
       "spec.resources.minRanks", "needs checkpoint.dir"},
      {"elastic_growth_without_checkpoints", 20, "  resources: {maxRanks: 4}", "20:15",
       "spec.resources.maxRanks", "needs checkpoint.dir"},
      {"fewest_above_world", 20,
       "  resources: {devicesPerNode: 2, anyNode: true, minRanks: 3}\n  checkpoint: {dir: /c}",
       "20:49", "spec.resources.minRanks", "is more than nodes x devicesPerNode, 2 ranks"},
      {"most_below_world", 20,
       "  resources: {devicesPerNode: 4, maxRanks: 2, anyNode: true}\n  checkpoint: {dir: /c}",
       "20:34", "spec.resources.maxRanks", "is less than nodes x devicesPerNode, 4 ranks"},
      {"half_a_node", 20,
       "  resources: {nodes: 2, devicesPerNode: 4, minRanks: 6}\n  checkpoint: {dir: /c}", "20:44",
       "spec.resources.minRanks", "is no multiple of devicesPerNode 4"},
      {"half_a_spare_node", 20, "  resources: {devicesPerNode: 4, spares: 1}", "20:34",
       "spec.resources.spares", "is no multiple of devicesPerNode 4"},
      {"memory_checkpoint", 20, "  checkpoint: {inMemoryEverySteps: 5}", "20:16",
       "spec.checkpoint.inMemoryEverySteps", "not in this release"},
      {"profile_windows", 20, "  profile: {everySeconds: 0.5}", "20:13",
       "spec.profile.everySeconds", "1"},
      {"deterministic_cuda", 17,
       "    globalBatch: 8\n    deterministic: true\n  resources: {device: cuda}", "18:5",
       "spec.train.deterministic", "not in this release on cuda"},
      {"rope_scaling_without_type", 12, "    mlpDim: 128\n    ropeScaling: {factor: 2}", "13:5",
       "spec.model.ropeScaling.type", "linear, llama3, yarn"},
      {"rope_scaling_order", 12,
       "    mlpDim: 128\n    ropeScaling: {type: llama3, factor: 8, lowFreqFactor: 4, "
       "highFreqFactor: 1}",
       "13:62", "spec.model.ropeScaling.highFreqFactor", "must be greater than lowFreqFactor"},
      {"beta_of_yarn", 12,
       "    mlpDim: 128\n    ropeScaling: {type: linear, factor: 2, betaFast: 32}", "13:44",
       "spec.model.ropeScaling.betaFast", "belongs to type yarn"},
      {"yarn_without_context", 12, "    mlpDim: 128\n    ropeScaling: {type: yarn, factor: 4}",
       "13:5", "spec.model.ropeScaling.originalMaxPositions", "is missing"},
  };
  return specs;
}

class BrokenSpecTest : public ::testing::TestWithParam<BrokenSpec> {};

TEST_P(BrokenSpecTest, GivesOneFindingAtItsPlace) {
  const BrokenSpec& broken = GetParam();
  const SpecResult result = LoadJob(spec_testing::WithLine(broken.line, broken.text));
  const std::string all = FormatIssues(result.issues, "job.yaml");
  ASSERT_EQ(result.issues.size(), 1u) << all;
  const SpecIssue& issue = result.issues[0];
  EXPECT_FALSE(result.ok()) << all;
  EXPECT_EQ(issue.severity, SpecSeverity::kError) << all;
  EXPECT_EQ(absl::StrCat(issue.line, ":", issue.column), broken.place) << all;
  EXPECT_EQ(issue.field, broken.field) << all;
  EXPECT_THAT(DescribeIssue(issue), HasSubstr(broken.words)) << all;
  // Nothing floods the terminal, however long the input.
  EXPECT_LT(all.size(), 600u);
}

INSTANTIATE_TEST_SUITE_P(All, BrokenSpecTest, ::testing::ValuesIn(BrokenSpecs()),
                         [](const auto& info) { return std::string(info.param.name); });

// The coordinator sees the message without the text: same fields, same words.
TEST(BrokenSpecsTest, TheCoordinatorGivesTheSameVerdict) {
  int compared = 0;
  for (const BrokenSpec& broken : BrokenSpecs()) {
    const std::string text = spec_testing::WithLine(broken.line, broken.text);
    SpecResult parsed = ParseTrainingJob(text);
    if (!parsed.ok()) continue;  // never sent
    ++compared;
    const std::vector<SpecIssue> remote = CheckJob(&parsed.job);
    const SpecResult local = LoadJob(text);
    ASSERT_EQ(remote.size(), 1u) << broken.name;
    EXPECT_EQ(DescribeIssue(remote[0]), DescribeIssue(local.issues[0])) << broken.name;
  }
  EXPECT_GE(compared, 60);
}

TEST(BrokenSpecsTest, AreManyAndNamedOnce) {
  std::set<std::string> names;
  for (const BrokenSpec& broken : BrokenSpecs()) names.insert(broken.name);
  EXPECT_EQ(names.size(), BrokenSpecs().size());
  EXPECT_GE(names.size(), 80u);
}

}  // namespace
}  // namespace fsdp
