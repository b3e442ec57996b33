#include "proto/support/spec.h"

#include <gmock/gmock.h>
#include <google/protobuf/util/json_util.h>
#include <google/protobuf/util/message_differencer.h>
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <limits>
#include <sstream>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "google/rpc/error_details.pb.h"
#include "proto/support/spec_names.h"
#include "proto/support/spec_number.h"
#include "tests/unit/proto/spec/base_spec.h"
#include "worker/plan/model_config.h"

namespace fsdp {
namespace {

using ::google::protobuf::util::MessageDifferencer;
using spec_testing::BaseSpec;
using spec_testing::WithLine;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

std::vector<std::string> Described(const std::vector<SpecIssue>& issues) {
  std::vector<std::string> lines;
  for (const SpecIssue& issue : issues) lines.push_back(DescribeIssue(issue));
  return lines;
}

SpecResult LoadWithSets(const std::string& text, std::vector<std::string> sets) {
  SpecOptions options;
  options.sets = std::move(sets);
  return LoadJob(text, options);
}

v1::TrainingJob BaseJob() { return LoadJob(BaseSpec()).job; }

// A job with a value of every shape that specs have.
constexpr char kRichSpec[] = R"(
apiVersion: fsdp.v1
kind: TrainingJob
metadata:
  name: rich
  labels: {team: nlp, "a/b.c": "yes", number: "12", empty: ""}
spec:
  queue: night
  priority: -5
  model: {family: minillm, vocabSize: 300, dim: 96, numLayers: 3, numHeads: 6, normEps: 1e-6}
  data: {source: text, path: "/data/it's: odd #1.txt", sequenceLength: 48, validationPath: /v,
         shuffle: false, targets: next_token}
  train: {globalBatch: 5, seed: 18446744073709551615, deterministic: true, recompute: full}
  optimizer: {lr: 0.00025, beta2: 0.95, gradClip: 1, decayVectors: false,
              schedule: {type: wsd, warmupSteps: 3, decaySteps: 4, minLrRatio: 0.1}}
  precision: {parameters: bf16, reduce: bf16}
  checkpoint: {dir: "/c", everySteps: 2, keepLast: 0, keepBest: true}
  resources: {nodes: 2, devicesPerNode: 3, device: cpu, anyNode: true}
  failurePolicy:
    rules:
      - signals: [9, 15]
        causes: [RANK_DIED, worker_lost]
        action: restart_free
      - {exitCodes: [3], phases: [checkpoint], action: fail}
    maxUserRestarts: 2
  limits: {maxTokens: 9000000000000000, gracePeriodSeconds: 0}
  env: {NCCL_DEBUG: INFO, OMP_NUM_THREADS: "2"}
)";

TEST(ParseTest, ReadsTheBaseSpec) {
  const SpecResult result = LoadJob(BaseSpec());
  EXPECT_THAT(result.issues, IsEmpty());
  EXPECT_EQ(result.job.metadata().name(), "job");
  EXPECT_EQ(result.job.spec().model().family(), v1::MODEL_FAMILY_LLAMA);
  EXPECT_EQ(result.job.spec().model().dim(), 64);
  EXPECT_EQ(result.job.spec().train().global_batch(), 8);
}

TEST(ParseTest, ReadsEveryShapeOfValue) {
  const SpecResult result = LoadJob(kRichSpec);
  EXPECT_TRUE(result.ok()) << FormatIssues(result.issues, "rich");
  const v1::JobSpec& spec = result.job.spec();
  EXPECT_EQ(result.job.metadata().labels().at("a/b.c"), "yes");
  EXPECT_EQ(spec.data().path(), "/data/it's: odd #1.txt");
  EXPECT_EQ(spec.train().seed(), std::numeric_limits<std::uint64_t>::max());
  EXPECT_FALSE(spec.data().shuffle());
  EXPECT_TRUE(spec.checkpoint().has_keep_last());
  EXPECT_EQ(spec.checkpoint().keep_last(), 0);
  EXPECT_THAT(spec.failure_policy().rules(0).signals(), ElementsAre(9, 15));
  EXPECT_THAT(spec.failure_policy().rules(0).causes(),
              ElementsAre(v1::FAILURE_CAUSE_RANK_DIED, v1::FAILURE_CAUSE_WORKER_LOST));
  EXPECT_EQ(spec.env().at("OMP_NUM_THREADS"), "2");
  EXPECT_EQ(JobWorldSize(result.job), 6);
}

TEST(ParseTest, YamlAndJsonAndTheProtosOwnJsonGiveTheSameJob) {
  const v1::TrainingJob job = LoadJob(kRichSpec).job;
  std::string proto_json;
  ASSERT_TRUE(google::protobuf::util::MessageToJsonString(job, &proto_json).ok());
  for (const std::string& text : {JobToYaml(job), JobToJson(job), proto_json}) {
    const SpecResult again = LoadJob(text);
    EXPECT_TRUE(again.ok()) << text << FormatIssues(again.issues, "again");
    EXPECT_TRUE(MessageDifferencer::Equals(job, again.job)) << text;
  }
}

TEST(ParseTest, ProtobufReadsOurJsonBackWhenEnumsAreWrittenInFull) {
  v1::TrainingJob job = LoadJob(kRichSpec).job;
  const SpecResult again = LoadJob(JobToJson(job));
  std::string proto_json;
  ASSERT_TRUE(google::protobuf::util::MessageToJsonString(again.job, &proto_json).ok());
  v1::TrainingJob twice;
  ASSERT_TRUE(google::protobuf::util::JsonStringToMessage(proto_json, &twice).ok());
  EXPECT_TRUE(MessageDifferencer::Equals(job, twice));
}

TEST(ParseTest, ExamplesAreValidAndSurviveARoundTrip) {
  int num_examples = 0;
  for (const auto& entry :
       std::filesystem::directory_iterator(FSDP_SOURCE_DIR "/deploy/examples")) {
    if (entry.path().extension() != ".yaml") continue;
    ++num_examples;
    std::ifstream file(entry.path());
    std::stringstream text;
    text << file.rdbuf();
    const SpecResult result = LoadJob(text.str());
    EXPECT_THAT(result.issues, IsEmpty()) << FormatIssues(result.issues, entry.path().string());
    EXPECT_TRUE(MessageDifferencer::Equals(result.job, LoadJob(JobToYaml(result.job)).job));
  }
  EXPECT_GE(num_examples, 3);
}

TEST(ParseTest, EnumNamesMayBeShortOrFullInAnyCase) {
  for (const char* name : {"llama", "Llama", "LLAMA", "MODEL_FAMILY_LLAMA", "model_family_llama"}) {
    const SpecResult result = LoadJob(WithLine(7, absl::StrCat("    family: ", name)));
    EXPECT_TRUE(result.ok()) << name;
    EXPECT_EQ(result.job.spec().model().family(), v1::MODEL_FAMILY_LLAMA);
  }
}

TEST(ParseTest, WholeNumbersMayHaveAnExponentOrQuotes) {
  for (const char* number : {"2000", "2e3", "2.0e3", "20000e-1", "2000.0", "\"2000\""}) {
    const SpecResult result = LoadJob(WithLine(19, absl::StrCat("    maxSteps: ", number)));
    EXPECT_EQ(result.job.spec().limits().max_steps(), 2000) << number;
  }
}

TEST(ParseTest, AMisspeltPresetIsNotAlsoSixMissingSizes) {
  const std::string text =
      "apiVersion: fsdp.v1\nkind: TrainingJob\nmetadata: {name: x}\nspec:\n"
      "  model: {presset: llama-tiny}\n  data: {source: synthetic, sequenceLength: 8}\n"
      "  train: {globalBatch: 4}\n  limits: {maxSteps: 5}\n";
  EXPECT_THAT(Described(LoadJob(text).issues),
              ElementsAre("spec.model.presset: unknown key; did you mean preset?"));
}

// Only what is missing follows from a typo: other mistakes of the same field are told.
TEST(ParseTest, ATypoHidesNoOtherMistake) {
  EXPECT_THAT(
      Described(LoadJob(WithLine(10, "    numLayers: -2\n    numLayer: 2")).issues),
      ElementsAre(HasSubstr("spec.model.numLayers = -2: is too small"), HasSubstr("unknown key")));
}

TEST(ParseTest, EveryPresetOfThePlannerIsAccepted) {
  for (const std::string& preset : PresetNames()) {
    const SpecResult result =
        LoadWithSets(BaseSpec(), {"model={preset: " + preset + "}", "data.targets=independent"});
    EXPECT_THAT(result.issues, IsEmpty()) << preset << FormatIssues(result.issues, "p");
  }
}

TEST(ParseTest, FractionsMayBeQuoted) {
  EXPECT_EQ(LoadWithSets(BaseSpec(), {"optimizer={lr: \"2.5e-4\"}"}).job.spec().optimizer().lr(),
            2.5e-4);
}

TEST(ParseTest, NullMeansNotSet) {
  const SpecResult result =
      LoadJob(WithLine(19, "    maxSteps: 10\n    maxTokens: null\n  env: ~"));
  EXPECT_THAT(result.issues, IsEmpty());
  EXPECT_EQ(result.job.spec().limits().max_tokens(), 0);
}

TEST(ParseTest, ColumnsCountCharactersAndCarriageReturnsDoNotMatter) {
  const SpecResult result =
      LoadJob(WithLine(20, "  checkpoint: {dir: \"/\xC3\xA4\xE2\x82\xAC\", bad: 1}\r"));
  ASSERT_THAT(result.issues, SizeIs(1));
  EXPECT_EQ(result.issues[0].line, 20);
  EXPECT_EQ(result.issues[0].column, 28);
}

TEST(ParseTest, JsonIssuesHavePlaces) {
  const SpecResult result = LoadJob(
      "{\n \"apiVersion\": \"fsdp.v1\",\n \"kind\":\"TrainingJob\",\n"
      "\t\"metadata\": {\"name\":\"a\",\"nam\":1}\n}");
  const auto unknown = std::find_if(result.issues.begin(), result.issues.end(),
                                    [](const auto& i) { return i.field == "metadata.nam"; });
  ASSERT_NE(unknown, result.issues.end()) << FormatIssues(result.issues, "x");
  EXPECT_EQ(unknown->line, 4);
  EXPECT_EQ(unknown->column, 26);
}

TEST(ParseTest, JsonEscapesAreRead) {
  const SpecResult result = LoadJob(
      R"({"apiVersion":"fsdp.v1","kind":"TrainingJob","metadata":{"name":"j"},"spec":{
          "model":{"preset":"llama-tiny"},"train":{"globalBatch":"4"},"limits":{"maxSteps":5},
          "data":{"source":"text","sequenceLength":8,"path":"/\u00e9\/\ud83d\ude00\\ud83d"}}})");
  EXPECT_THAT(result.issues, IsEmpty()) << FormatIssues(result.issues, "j");
  EXPECT_EQ(result.job.spec().data().path(), "/\xC3\xA9/\xF0\x9F\x98\x80\\ud83d");
  EXPECT_FALSE(LoadJob(R"({"apiVersion":"\ud83d"})").ok());
}

TEST(ParseTest, EmptyAndForeignDocuments) {
  for (const char* text : {"", "\n# only a comment\n", "---\n", "~"}) {
    const SpecResult result = LoadJob(text);
    ASSERT_THAT(result.issues, SizeIs(1)) << text << FormatIssues(result.issues, "f");
    EXPECT_THAT(result.issues[0].message, HasSubstr("the document is empty"));
  }
  for (const char* text : {"hello", "- a\n- b", "42", "\"quoted\""}) {
    const SpecResult result = LoadJob(text);
    ASSERT_THAT(result.issues, SizeIs(1)) << text << FormatIssues(result.issues, "f");
    EXPECT_THAT(result.issues[0].message, HasSubstr("must be an object"));
  }
}

TEST(ParseTest, AByteOrderMarkIsIgnored) {
  EXPECT_THAT(LoadJob("\xEF\xBB\xBF" + BaseSpec()).issues, IsEmpty());
}

TEST(ParseTest, LimitsAreEnforced) {
  SpecOptions options;
  options.max_bytes = 100;
  SpecResult result = LoadJob(BaseSpec(), options);
  ASSERT_THAT(result.issues, SizeIs(1));
  EXPECT_THAT(result.issues[0].message, HasSubstr("at most 100 are read"));

  options = {};
  options.max_nodes = 50;
  result = LoadJob(WithLine(20, "  env: {A: b, " + std::string("C: d, E: f, G: h, I: j, K: l, ") +
                                    "M: n, O: p, Q: r, S: t}"),
                   options);
  ASSERT_FALSE(result.ok());
  EXPECT_THAT(FormatIssues(result.issues, "f"), HasSubstr("more than 50 values"));
}

TEST(ParseTest, AliasBombsAreRefusedBeforeTheyGrow) {
  std::string bomb = "a: &a [x, x, x, x, x, x, x, x, x]\n";
  for (char c = 'b'; c <= 'i'; ++c) {
    const std::string before = absl::StrCat("*", std::string(1, static_cast<char>(c - 1)));
    absl::StrAppend(&bomb, std::string(1, c), ": &", std::string(1, c), " [", before, ",", before,
                    ",", before, "]\n");
  }
  const SpecResult result = LoadJob(bomb);
  EXPECT_FALSE(result.ok());
  EXPECT_THAT(FormatIssues(result.issues, "f"), HasSubstr("aliases (*name) are not used"));
  EXPECT_LT(result.issues.size(), 100u);
}

TEST(ParseTest, AllMistakesAreToldAtOnceInTheOrderOfTheText) {
  const std::string text =
      "apiVersion: fsdp.v1\nkind: Job\nmetadata: {name: X}\nspec:\n"
      "  modle: {}\n  data: {source: synthetic, sequenceLength: big}\n"
      "  train: {globalBatch: 4, microBatch: 5}\n";
  const SpecResult result = LoadJob(text);
  std::vector<std::string> fields;
  for (const SpecIssue& issue : result.issues) fields.push_back(issue.field);
  EXPECT_THAT(fields, ElementsAre("kind", "metadata.name", "spec.limits", "spec.modle",
                                  "spec.data.sequenceLength", "spec.train.microBatch"));
}

TEST(SetTest, ShortAndFullPathsOverrideTheText) {
  const SpecResult result = LoadWithSets(
      BaseSpec(), {"train.globalBatch=16", "spec.model.dim=128", "metadata.name=other",
                   "optimizer.lr=1e-3", "data.shuffle=false", "precision.parameters=fp32"});
  ASSERT_THAT(result.issues, IsEmpty());
  EXPECT_EQ(result.job.spec().train().global_batch(), 16);
  EXPECT_EQ(result.job.spec().model().dim(), 128);
  EXPECT_EQ(result.job.metadata().name(), "other");
  EXPECT_EQ(result.job.spec().optimizer().lr(), 1e-3);
  EXPECT_FALSE(result.job.spec().data().shuffle());
  EXPECT_EQ(result.job.spec().precision().parameters(), v1::PRECISION_D_TYPE_FP32);
}

TEST(SetTest, LaterOnesWin) {
  const SpecResult result = LoadWithSets(BaseSpec(), {"train.seed=1", "train.seed=2"});
  EXPECT_EQ(result.job.spec().train().seed(), 2u);
}

TEST(SetTest, StringsAreTakenAsTheyAre) {
  const SpecResult result =
      LoadWithSets(BaseSpec(), {"checkpoint.dir=/a b: {c}=[d] #e", "metadata.labels.a.b/c=1",
                                "env.OMP_NUM_THREADS=4", "queue=true"});
  ASSERT_THAT(result.issues, IsEmpty());
  EXPECT_EQ(result.job.spec().checkpoint().dir(), "/a b: {c}=[d] #e");
  EXPECT_EQ(result.job.metadata().labels().at("a.b/c"), "1");
  EXPECT_EQ(result.job.spec().env().at("OMP_NUM_THREADS"), "4");
  EXPECT_EQ(result.job.spec().queue(), "true");
}

TEST(SetTest, AnEmptyValueUnsets) {
  const SpecResult result =
      LoadWithSets(BaseSpec(), {"limits.maxSteps=", "limits.maxTokens=1000", "env.OMP_X="});
  ASSERT_THAT(result.issues, IsEmpty());
  EXPECT_EQ(result.job.spec().limits().max_steps(), 0);
  EXPECT_EQ(result.job.spec().limits().max_tokens(), 1000);
}

TEST(SetTest, ListsAndObjectsAreWrittenAsYaml) {
  const SpecResult result = LoadWithSets(
      BaseSpec(), {"failurePolicy.rules=[{signals: [9], action: fail}]", "sharding={prefetch: 0}"});
  ASSERT_THAT(result.issues, IsEmpty());
  EXPECT_THAT(result.job.spec().failure_policy().rules(0).signals(), ElementsAre(9));
  EXPECT_EQ(result.job.spec().sharding().prefetch(), 0);
}

TEST(SetTest, MistakesNameTheSet) {
  const auto format = [](const std::string& set_text) {
    return FormatIssues(LoadWithSets(BaseSpec(), {set_text}).issues, "job.yaml");
  };
  EXPECT_EQ(format("train.globalBatch=many"),
            "--set train.globalBatch=many: error: spec.train.globalBatch = many: must be a whole "
            "number; allowed: 1..16777216\n");
  EXPECT_THAT(format("model.numHeads=7"),
              HasSubstr("--set model.numHeads=7: error: spec.model.numHeads = 7: must divide dim"));
  EXPECT_THAT(format("train.globalBtch=8"), HasSubstr("did you mean globalBatch?"));
  EXPECT_THAT(format("trian.globalBatch=8"), HasSubstr("did you mean train?"));
  EXPECT_THAT(format("metdata.name=x"), HasSubstr("did you mean metadata?"));
  EXPECT_THAT(format("lr=1e-3"), HasSubstr("did you mean spec.optimizer.lr?"));
  EXPECT_THAT(format("train.width=8"),
              HasSubstr("spec.train.width: unknown key; allowed: globalBatch, microBatch, "));
  EXPECT_THAT(format("train.globalBatch"), HasSubstr("must be path=value"));
  EXPECT_THAT(format("=8"), HasSubstr("must be path=value"));
  EXPECT_THAT(format("train.globalBatch.x=8"), HasSubstr("has no fields of its own"));
  EXPECT_THAT(format("failurePolicy.rules.action=fail"), HasSubstr("is a list"));
  EXPECT_THAT(format("failurePolicy.rules=[{"), HasSubstr("syntax"));
  EXPECT_THAT(format("env.LD_PRELOAD=x"), HasSubstr("this name may not be set"));
  EXPECT_THAT(format(std::string("checkpoint.dir=/\xff")), HasSubstr("not UTF-8"));
  EXPECT_THAT(format("a..b=1"), HasSubstr("unknown key"));
}

TEST(ValidateTest, AWarningDoesNotStopTheJob) {
  const SpecResult result = LoadJob(WithLine(12, "    mlpDim: 128\n    mask: full"));
  EXPECT_TRUE(result.ok());
  ASSERT_THAT(result.issues, SizeIs(1));
  EXPECT_EQ(result.issues[0].severity, SpecSeverity::kWarning);
  EXPECT_EQ(result.issues[0].field, "spec.data.targets");
  EXPECT_TRUE(SpecStatus(result.issues).ok());
  EXPECT_THAT(FormatIssues(result.issues, "j"), HasSubstr("j:14:3: warning: spec.data.targets"));
}

TEST(ValidateTest, MiniLlmWithoutAMaskWarnsUnlessTargetsAreIndependent) {
  const std::string mini = WithLine(7, "    family: minillm");
  EXPECT_THAT(LoadJob(mini).issues, SizeIs(1));
  EXPECT_THAT(LoadWithSets(mini, {"data.targets=independent"}).issues, IsEmpty());
  EXPECT_THAT(LoadWithSets(mini, {"model.mask=causal"}).issues, IsEmpty());
}

TEST(ValidateTest, DocumentsAreAttendedToByCausalModelsOnly) {
  const std::vector<std::string> reset = {"data.source=text", "data.path=/x",
                                          "data.resetAttention=true", "data.resetPositions=true"};
  EXPECT_THAT(LoadWithSets(BaseSpec(), reset).issues, IsEmpty());
  std::vector<std::string> full = reset;
  full.emplace_back("model.mask=full");
  EXPECT_THAT(Described(LoadWithSets(BaseSpec(), full).issues),
              Contains("spec.data.resetAttention = true: needs a causal model; allowed: false, or "
                       "model.mask causal"));
  EXPECT_THAT(LoadWithSets(BaseSpec(), {"data.source=tokens", "data.path=/x",
                                        "data.resetAttention=true", "data.documentSeparator=0"})
                  .issues,
              IsEmpty());
}

TEST(ValidateTest, BytesNeedAVocabularyOf256) {
  const SpecResult result =
      LoadWithSets(BaseSpec(), {"data.source=text", "data.path=/x", "model.vocabSize=255"});
  EXPECT_THAT(Described(result.issues),
              ElementsAre("spec.model.vocabSize = 255: bytes of text need at least 256; did you "
                          "mean 256?"));
}

TEST(ValidateTest, ATokenizerIsHeldAgainstTheModelWhereItCanBeRead) {
  std::string folder = testing::TempDir() + "/tokenizer-XXXXXX";
  ASSERT_NE(::mkdtemp(folder.data()), nullptr);
  std::ofstream(folder + "/tokenizer.json")
      << R"({"added_tokens": [{"id": 300, "content": "<|endoftext|>"}],)"
         R"( "model": {"vocab": {"a": 0, "b": 299}}})";
  std::ofstream(folder + "/sentencepiece.model") << "\x0a\x0c";
  const auto issues = [&](const std::string& tokenizer, const std::string& vocab_size) {
    return Described(
        LoadWithSets(BaseSpec(), {"data.source=text", "data.path=/x", "data.tokenizer=" + tokenizer,
                                  "model.vocabSize=" + vocab_size})
            .issues);
  };
  for (const std::string& path : {folder, folder + "/tokenizer.json"}) {
    EXPECT_THAT(issues(path, "301"), IsEmpty());
    EXPECT_THAT(issues(path, "300"),
                ElementsAre("spec.model.vocabSize = 300: the tokenizer has ids up to 300; allowed: "
                            "at least 301; did you mean 301?"));
  }
  // What only fsdp-tokenize can read is held against the model before training.
  EXPECT_THAT(issues(folder + "/sentencepiece.model", "16"), IsEmpty());
  EXPECT_THAT(issues("bytes", "256"), IsEmpty());
  EXPECT_THAT(issues("bytes", "255"), ElementsAre(HasSubstr("at least 256")));
  EXPECT_THAT(issues("/nowhere/tokenizer.json", "16"),
              ElementsAre(HasSubstr("cannot be read here")));
  EXPECT_THAT(issues("tokenizer.json", "16"),
              ElementsAre(HasSubstr("cannot be read here"), HasSubstr("is relative")));
  std::filesystem::remove_all(folder);
}

TEST(ValidateTest, LinesOfJsonMayBeSeparated) {
  for (const char* path : {"/x.jsonl", "/x.ndjson"}) {
    EXPECT_THAT(LoadWithSets(BaseSpec(), {"data.source=text", std::string("data.path=") + path,
                                          "data.documentSeparator=10", "data.textField=body"})
                    .issues,
                IsEmpty());
  }
}

TEST(ValidateTest, WhatNoMachineHoldsIsRefusedBeforeItIsPlanned) {
  EXPECT_THAT(Described(LoadWithSets(BaseSpec(), {"model.dim=131072", "model.numLayers=4096",
                                                  "model.numHeads=32", "model.mlpDim=1048576"})
                            .issues),
              ElementsAre(HasSubstr("more than a pebibyte of training state")));
  EXPECT_THAT(
      Described(LoadWithSets(BaseSpec(), {"train.globalBatch=16777216", "data.sequenceLength=1e6"})
                    .issues),
      ElementsAre(HasSubstr("spec.train.globalBatch = 16777216: makes 1.68e+13 tokens in one "
                            "forward: more than a pebibyte of activations")));
}

TEST(ValidateTest, RelativePathsAreDoubtful) {
  const SpecResult result =
      LoadWithSets(BaseSpec(), {"data.source=text", "data.path=x.txt", "checkpoint.dir=s3://b/c"});
  EXPECT_TRUE(result.ok());
  EXPECT_THAT(Described(result.issues),
              ElementsAre(HasSubstr("spec.data.path = \"x.txt\": is relative")));
}

// What gRPC clients can send and no text can: it must be refused in the same way.
TEST(ValidateTest, MessagesFromTheWireAreCheckedAsWell) {
  v1::TrainingJob job = BaseJob();
  job.mutable_spec()->mutable_optimizer()->set_lr(std::nan(""));
  job.mutable_spec()->mutable_optimizer()->set_beta1(std::numeric_limits<double>::infinity());
  job.mutable_spec()->mutable_model()->set_family(static_cast<v1::ModelFamily>(77));
  job.GetReflection()->MutableUnknownFields(&job)->AddVarint(99, 1);
  (*job.mutable_metadata()->mutable_labels())[""] = "x";
  const std::vector<SpecIssue> issues = CheckJob(&job);
  const std::string all = FormatIssues(issues, "");
  EXPECT_THAT(all, HasSubstr("error: spec.optimizer.lr = nan: must be finite"));
  EXPECT_THAT(all, HasSubstr("error: spec.optimizer.beta1 = inf: must be finite"));
  EXPECT_THAT(all, HasSubstr("error: spec.model.family = 77: is not a known name"));
  EXPECT_THAT(all, HasSubstr("field number 99 is not known to this release"));
  EXPECT_THAT(all, HasSubstr("metadata.labels[\"\"]: this key"));
}

TEST(ValidateTest, AnEmptyMessageTellsWhatIsMissing) {
  v1::TrainingJob job;
  EXPECT_THAT(Described(CheckJob(&job)),
              ElementsAre(HasSubstr("apiVersion: is required"), HasSubstr("kind: is required"),
                          HasSubstr("metadata: is required"), HasSubstr("spec: is required")));
}

TEST(DefaultsTest, AreIdempotentAndKeepWhatIsSet) {
  v1::TrainingJob once = LoadJob(kRichSpec).job;
  v1::TrainingJob twice = once;
  ApplyDefaults(&twice);
  EXPECT_TRUE(MessageDifferencer::Equals(once, twice));
  EXPECT_EQ(once.spec().checkpoint().keep_last(), 0);
  EXPECT_EQ(once.spec().limits().grace_period_seconds(), 0);
}

TEST(DefaultsTest, AreTheDocumentedOnes) {
  const v1::JobSpec spec = BaseJob().spec();
  EXPECT_EQ(spec.queue(), "default");
  EXPECT_EQ(spec.optimizer().lr(), 3e-4);
  EXPECT_EQ(spec.optimizer().beta2(), 0.999);
  EXPECT_EQ(spec.optimizer().eps(), 1e-8);
  EXPECT_EQ(spec.precision().parameters(), v1::PRECISION_D_TYPE_BF16);
  EXPECT_EQ(spec.precision().reduce(), v1::PRECISION_D_TYPE_FP32);
  EXPECT_EQ(spec.resources().device(), v1::DEVICE_TYPE_CPU);
  EXPECT_EQ(JobWorldSize(BaseJob()), 1);
  EXPECT_EQ(spec.limits().hang_timeout_seconds(), 30);
  EXPECT_FALSE(spec.model().has_head_dim());
}

TEST(DefaultsTest, TokensPerStepBecomeWholeSequences) {
  const SpecResult result = LoadJob(WithLine(17, "    globalBatchTokens: 65"));
  ASSERT_THAT(result.issues, IsEmpty());
  EXPECT_EQ(result.job.spec().train().global_batch(), 3);  // of 32 tokens
  EXPECT_EQ(result.job.spec().train().global_batch_tokens(), 0);
}

TEST(StatusTest, CarriesOneViolationPerError) {
  const SpecResult result = LoadJob(WithLine(11, "    numHeads: 7\n    width: 3"));
  const absl::Status status = SpecStatus(result.issues);
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(status.message()), HasSubstr("(and 1 other error)"));
  const auto payload = status.GetPayload("type.googleapis.com/google.rpc.BadRequest");
  ASSERT_TRUE(payload.has_value());
  google::rpc::BadRequest details;
  ASSERT_TRUE(details.ParseFromString(std::string(*payload)));
  ASSERT_EQ(details.field_violations_size(), 2);
  EXPECT_EQ(details.field_violations(0).field(), "spec.model.numHeads");
  EXPECT_THAT(details.field_violations(0).description(), HasSubstr("7: must divide dim 64"));
}

TEST(FormatTest, IsTheDocumentedLine) {
  const SpecResult result = LoadJob(WithLine(11, "    numHeads: 7"));
  EXPECT_EQ(FormatIssues(result.issues, "job.yaml"),
            "job.yaml:11:5: error: spec.model.numHeads = 7: must divide dim 64, unless headDim is "
            "given; allowed: 1, 2, 4, 8, 16, 32, 64; did you mean 8?\n");
}

TEST(NumberTest, WholeNumbersNeverWrap) {
  using spec::NumberError;
  using spec::ParseInt64;
  using spec::ParseUint64;
  EXPECT_EQ(std::get<std::int64_t>(ParseInt64("9223372036854775807")), 9223372036854775807LL);
  EXPECT_EQ(std::get<std::int64_t>(ParseInt64("-9223372036854775808")),
            std::numeric_limits<std::int64_t>::min());
  EXPECT_EQ(std::get<NumberError>(ParseInt64("9223372036854775808")), NumberError::kRange);
  EXPECT_EQ(std::get<NumberError>(ParseInt64("-9223372036854775809")), NumberError::kRange);
  EXPECT_EQ(std::get<std::uint64_t>(ParseUint64("18446744073709551615")),
            std::numeric_limits<std::uint64_t>::max());
  EXPECT_EQ(std::get<std::int64_t>(ParseInt64("0e99999999999999999999")), 0);
  EXPECT_EQ(std::get<NumberError>(ParseInt64("1e99999999999999999999")), NumberError::kRange);
  EXPECT_EQ(std::get<NumberError>(ParseInt64("1e-3")), NumberError::kFraction);
  EXPECT_EQ(std::get<std::int64_t>(ParseInt64("-0")), 0);
  for (const char* text : {"", "-", ".", "e5", "1e", "1e+", "1 ", " 1", "--1", "1.2.3", "0b1"}) {
    EXPECT_EQ(std::get<NumberError>(ParseInt64(text)), NumberError::kSyntax) << text;
  }
}

TEST(NameTest, NearestIsNearAndOtherwiseNothing) {
  const std::vector<std::string> names = {"globalBatch", "microBatch", "seed", "recompute"};
  EXPECT_EQ(spec::NearestName("global_batch", names), "globalBatch");
  EXPECT_EQ(spec::NearestName("gloablBatch", names), "globalBatch");
  EXPECT_EQ(spec::NearestName("sed", names), "seed");
  EXPECT_EQ(spec::NearestName("banana", names), "");
  EXPECT_EQ(spec::NearestName(std::string(1000, 'g'), names), "");
  EXPECT_EQ(spec::NearestName("", names), "");
}

}  // namespace
}  // namespace fsdp
