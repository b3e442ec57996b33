#ifndef FSDPCTL_PROTO_SUPPORT_SPEC_H_
#define FSDPCTL_PROTO_SUPPORT_SPEC_H_

// Job specs: text to v1::TrainingJob and back, defaults, and the one verdict on a job that the
// client gives offline and the coordinator gives on CreateJob and PlanJob.
//
// Client:       LoadJob(text, {file, --set values})  ->  send job, or FormatIssues and exit 3
// Coordinator:  CheckJob(&job)                       ->  store job, or SpecStatus(issues)
// Both end in the same ValidateJob, so their verdicts cannot differ.
//
// Thread rule: everything here is a pure function; no state, no files, no environment.

#include <cstddef>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "fsdp/v1/job.pb.h"

namespace fsdp {

enum class SpecSeverity { kError, kWarning };

// One finding, complete enough to act on.
struct SpecIssue {
  // From 1; columns count characters, not bytes. 0 = no place in the file: the job came without
  // text, or from a --set.
  int line = 0;
  int column = 0;
  // "spec.model.numHeads", "metadata.labels[\"team\"]", "spec.data.mixture[0].weight"; empty for
  // the document as a whole.
  std::string field;
  // As written, shortened; empty when the problem is not one value.
  std::string value;
  // What is wrong: "must divide dim 64". No field, no full stop.
  std::string message;
  // What would be right: "1..4096", "adamw"; may be empty.
  std::string allowed;
  // A name or value probably meant; may be empty.
  std::string suggestion;
  SpecSeverity severity = SpecSeverity::kError;
  // The --set that the value came from, whole; empty otherwise.
  std::string set_text;
};

// Where each field of a parsed job was written.
class SourceMap {
 public:
  struct Place {
    int line = 0;
    int column = 0;
    std::string set_text;
  };
  void Add(std::string_view field, Place place);
  // The field's place, else that of the nearest enclosing one that was written; {0, 0} when empty.
  [[nodiscard]] Place Locate(std::string_view field) const;

 private:
  std::map<std::string, Place, std::less<>> places_;
};

struct SpecOptions {
  // "spec.train.globalBatch=8" or, without "spec.", "train.globalBatch=8"; applied in order over
  // the text. The value of a string is taken as it is; an empty value unsets the field; lists and
  // objects are written as in YAML ("failurePolicy.rules=[{signals: [9], action: fail}]").
  std::vector<std::string> sets;
  std::size_t max_bytes = 256 * 1024;  // of the text, and of one --set
  int max_depth = 32;
  int max_nodes = 20'000;
};

struct SpecResult {
  v1::TrainingJob job;
  // In the order of the text; errors and warnings mixed.
  std::vector<SpecIssue> issues;
  SourceMap source;
  [[nodiscard]] bool ok() const;  // no error; warnings are allowed
};

bool HasErrors(const std::vector<SpecIssue>& issues);

// Text (YAML or JSON) to message, strictly: syntax, UTF-8, size, depth, unknown and duplicate keys,
// types, integer ranges, non-finite numbers, enum names. What could be read is in `job` also when
// there are errors. Does not judge the job: LoadJob does.
SpecResult ParseTrainingJob(std::string_view text, const SpecOptions& options = {});

// Fills what the user left out. Idempotent. Leaves the model alone (ResolveModel's business) and
// turns train.globalBatchTokens into train.globalBatch.
void ApplyDefaults(v1::TrainingJob* job);

// Everything wrong with the job, at once: ranges, required fields, combinations, what this release
// does not have. Judges the job as ApplyDefaults would leave it. `source` (may be null) adds
// places.
std::vector<SpecIssue> ValidateJob(const v1::TrainingJob& job, const SourceMap* source = nullptr);

// ParseTrainingJob, ValidateJob (less what follows from a parse error), and ApplyDefaults when
// there is no error.
SpecResult LoadJob(std::string_view text, const SpecOptions& options = {});

// ValidateJob, then ApplyDefaults when there is no error.
std::vector<SpecIssue> CheckJob(v1::TrainingJob* job);

// "job.yaml:12:5: error: spec.model.numHeads = 7: must divide dim 64; allowed: 1, 2, 4; did you
// mean 8?" One line each, in the order given. An empty file name prints fields without places.
std::string FormatIssues(const std::vector<SpecIssue>& issues, std::string_view file);
// One line, without place and severity: what a BadRequest violation or a Job.warnings entry says.
std::string DescribeIssue(const SpecIssue& issue);

// OK when there is no error; else INVALID_ARGUMENT with the first error, the number of others, and
// a google.rpc.BadRequest payload ("type.googleapis.com/google.rpc.BadRequest") of one violation
// per bad field.
absl::Status SpecStatus(const std::vector<SpecIssue>& issues);

// Only fields that are set; short enum names; in the order of the proto. Parses back to an equal
// job.
std::string JobToYaml(const v1::TrainingJob& job);
std::string JobToJson(const v1::TrainingJob& job);

// What reports and checkpoint.bestBy call one of data.evaluationSets: its name, else its path.
std::string EvaluationSetName(const v1::DataMixture& set);

// The evaluation set whose loss decides which checkpoint is the best: checkpoint.bestBy, else the
// first set where there is no validation data. Empty: the validation loss does.
std::string BestBySet(const v1::JobSpec& spec);

// World size of a job whose defaults are applied: nodes x devicesPerNode.
int JobWorldSize(const v1::TrainingJob& job);

// The job of task `index` of an array: the array's spec less `array`, with array.set applied and
// the task's place in its environment. Not judged; what could not be applied is in `issues`.
//   FSDP_ARRAY_INDEX, FSDP_ARRAY_COUNT  in spec.env
SpecResult ArrayTask(const v1::TrainingJob& array, int index);

}  // namespace fsdp

#endif  // FSDPCTL_PROTO_SUPPORT_SPEC_H_
