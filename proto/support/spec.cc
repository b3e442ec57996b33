#include "proto/support/spec.h"

#include <google/protobuf/message.h>

#include <algorithm>
#include <tuple>
#include <utility>

#include "absl/strings/cord.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "google/rpc/error_details.pb.h"
#include "proto/support/spec_decode.h"
#include "proto/support/spec_document.h"
#include "proto/support/spec_fields.h"
#include "proto/support/spec_names.h"
#include "proto/support/spec_number.h"
#include "proto/support/spec_validate.h"
#include "proto/support/status.h"

namespace fsdp {
namespace {

using google::protobuf::FieldDescriptor;
using google::protobuf::Message;

// The message that holds the last field of a dotted path, made where absent.
std::pair<Message*, const FieldDescriptor*> Holder(std::string_view path, Message* root) {
  Message* message = root;
  const std::vector<std::string> names = absl::StrSplit(ToAbsl(path), '.');
  for (std::size_t i = 0;; ++i) {
    const FieldDescriptor* field = message->GetDescriptor()->FindFieldByCamelcaseName(names[i]);
    if (i + 1 == names.size()) return {message, field};
    message = message->GetReflection()->MutableMessage(message, field);
  }
}

bool IsZero(const Message& message, const FieldDescriptor& field) {
  return !message.GetReflection()->HasField(message, &field);
}

void SetDefault(std::string_view text, const FieldDescriptor& field, Message* message) {
  const auto& reflection = *message->GetReflection();
  switch (field.cpp_type()) {
    case FieldDescriptor::CPPTYPE_BOOL:
      reflection.SetBool(message, &field, text == "true");
      break;
    case FieldDescriptor::CPPTYPE_INT32:
      reflection.SetInt32(message, &field,
                          static_cast<int>(std::get<std::int64_t>(spec::ParseInt64(text))));
      break;
    case FieldDescriptor::CPPTYPE_INT64:
      reflection.SetInt64(message, &field, std::get<std::int64_t>(spec::ParseInt64(text)));
      break;
    case FieldDescriptor::CPPTYPE_UINT64:
      reflection.SetUInt64(message, &field, std::get<std::uint64_t>(spec::ParseUint64(text)));
      break;
    case FieldDescriptor::CPPTYPE_DOUBLE:
      reflection.SetDouble(message, &field, std::get<double>(spec::ParseDouble(text)));
      break;
    case FieldDescriptor::CPPTYPE_ENUM:
      reflection.SetEnum(message, &field, spec::FindEnumValue(*field.enum_type(), text));
      break;
    default:
      reflection.SetString(message, &field, std::string(text));
  }
}

// In the order of the text; what stands at one place keeps its order.
void SortByPlace(std::vector<SpecIssue>* issues) {
  // What has no line (--set, no text) comes last.
  const auto place = [](const SpecIssue& issue) {
    return std::tuple(issue.line == 0, issue.line, issue.column);
  };
  std::map<decltype(place(SpecIssue{})), std::vector<SpecIssue>> by_place;
  for (SpecIssue& issue : *issues) by_place[place(issue)].push_back(std::move(issue));
  issues->clear();
  for (auto& [key, group] : by_place) {
    for (SpecIssue& issue : group) issues->push_back(std::move(issue));
  }
}

// Are both names of a field, or two of which one is enough?
bool AreAlternatives(std::string_view a, std::string_view b) {
  if (a == b) return true;
  for (const spec::Choice& choice : spec::Choices()) {
    const auto names = [&](std::string_view field) {
      return std::any_of(choice.names.begin(), choice.names.end(), [&](std::string_view name) {
        return !name.empty() && field == absl::StrCat(ToAbsl(choice.path), ".", ToAbsl(name));
      });
    };
    if (names(a) && names(b)) return true;
  }
  return false;
}

// Does `finding` miss the field that the unknown key of `issue` was meant to be?
bool IsMisspeltAs(const SpecIssue& issue, const SpecIssue& finding) {
  // Every check of presence speaks like this.
  if (issue.suggestion.empty() || issue.message != spec::kUnknownKey ||
      !finding.message.starts_with("is required")) {
    return false;
  }
  const std::size_t dot = issue.field.rfind('.');
  std::string meant = issue.suggestion;
  // A suggestion is a sibling, or a path from the top.
  if (dot != std::string::npos && meant.find('.') == std::string::npos) {
    meant = absl::StrCat(issue.field.substr(0, dot), ".", meant);
  }
  // A preset gives all the sizes.
  return AreAlternatives(meant, finding.field) ||
         (meant == "spec.model.preset" && finding.field.starts_with("spec.model."));
}

// Does `finding` only repeat, or follow from, something that could not be read?
bool FollowsFrom(const std::vector<SpecIssue>& parse_issues, const SpecIssue& finding) {
  return std::any_of(parse_issues.begin(), parse_issues.end(), [&](const SpecIssue& issue) {
    const auto is_at_or_below = [](std::string_view path, std::string_view field) {
      return path.starts_with(field) && (path.size() == field.size() || path[field.size()] == '.' ||
                                         path[field.size()] == '[');
    };
    if (IsMisspeltAs(issue, finding)) return true;
    // A text that could not be read to its end says nothing about what is missing.
    return issue.field.empty() || is_at_or_below(finding.field, issue.field) ||
           is_at_or_below(issue.field, finding.field);
  });
}

}  // namespace

void SourceMap::Add(std::string_view field, Place place) {
  places_.insert_or_assign(std::string(field), std::move(place));
}

SourceMap::Place SourceMap::Locate(std::string_view field) const {
  while (true) {
    const auto found = places_.find(field);
    if (found != places_.end()) return found->second;
    const std::size_t cut = field.find_last_of(".[");
    if (cut == std::string_view::npos) break;
    field = field.substr(0, cut);
  }
  const auto root = places_.find("");
  return root == places_.end() ? Place{} : root->second;
}

bool HasErrors(const std::vector<SpecIssue>& issues) {
  return std::any_of(issues.begin(), issues.end(),
                     [](const SpecIssue& issue) { return issue.severity == SpecSeverity::kError; });
}

bool SpecResult::ok() const { return !HasErrors(issues); }

SpecResult ParseTrainingJob(std::string_view text, const SpecOptions& options) {
  SpecResult result;
  spec::SpecNode root = spec::ReadDocument(text, options, &result.issues);
  if (result.issues.empty() && root.kind == spec::SpecNode::Kind::kNull) {
    SpecIssue issue;
    issue.line = issue.column = 1;
    issue.message = "the document is empty; a job starts with apiVersion: fsdp.v1";
    result.issues.push_back(std::move(issue));
  }
  // A file that is no object has nothing that a --set could change.
  if (root.kind == spec::SpecNode::Kind::kMap) {
    for (const std::string& set_text : options.sets) {
      spec::ApplySet(set_text, options, &root, &result.issues);
    }
  }
  result.source.Add("", {1, 1, ""});
  spec::DecodeJob(root, &result.job, &result.source, &result.issues);
  SortByPlace(&result.issues);
  return result;
}

void ApplyDefaults(v1::TrainingJob* job) {
  for (const spec::FieldRule& rule : spec::FieldRules()) {
    if (rule.default_value.empty()) continue;
    const auto [message, field] = Holder(rule.path, job);
    // A zero default of a field that cannot tell zero from absent is there already.
    if (IsZero(*message, *field) && (field->has_presence() || rule.default_value != "0")) {
      SetDefault(rule.default_value, *field, message);
    }
  }
  auto* train = job->mutable_spec()->mutable_train();
  const std::int64_t length = job->spec().data().sequence_length();
  if (train->global_batch() == 0 && train->global_batch_tokens() > 0 && length > 0) {
    train->set_global_batch((train->global_batch_tokens() - 1) / length + 1);
    train->clear_global_batch_tokens();
  }
}

std::vector<SpecIssue> ValidateJob(const v1::TrainingJob& job, const SourceMap* source) {
  spec::Findings findings(source);
  spec::CheckFields(job, &findings);
  v1::TrainingJob complete = job;
  ApplyDefaults(&complete);
  // ApplyDefaults makes every section; whether the user wrote them is CheckFields' business.
  if (job.spec().has_train()) spec::CheckTraining(complete, &findings);
  if (job.spec().has_data()) spec::CheckData(complete, &findings);
  if (job.spec().has_model()) spec::CheckModel(complete, &findings);
  if (job.spec().has_limits()) spec::CheckLimits(complete, &findings);
  if (job.has_spec()) spec::CheckOperation(complete, &findings);
  if (job.spec().has_array()) spec::CheckArray(complete, &findings);
  std::vector<SpecIssue> issues = findings.Take();
  SortByPlace(&issues);
  return issues;
}

SpecResult LoadJob(std::string_view text, const SpecOptions& options) {
  SpecResult result = ParseTrainingJob(text, options);
  const std::vector<SpecIssue> parse_issues = result.issues;
  for (SpecIssue& finding : ValidateJob(result.job, &result.source)) {
    if (!FollowsFrom(parse_issues, finding)) result.issues.push_back(std::move(finding));
  }
  SortByPlace(&result.issues);
  if (result.ok()) ApplyDefaults(&result.job);
  return result;
}

std::vector<SpecIssue> CheckJob(v1::TrainingJob* job) {
  std::vector<SpecIssue> issues = ValidateJob(*job, nullptr);
  if (!HasErrors(issues)) ApplyDefaults(job);
  return issues;
}

std::string DescribeIssue(const SpecIssue& issue) {
  std::string text = issue.field;
  if (!issue.value.empty()) {
    absl::StrAppend(&text, issue.field.empty() ? "" : " = ", issue.value);
  }
  absl::StrAppend(&text, text.empty() ? "" : ": ", issue.message);
  if (!issue.allowed.empty()) absl::StrAppend(&text, "; allowed: ", issue.allowed);
  if (!issue.suggestion.empty()) absl::StrAppend(&text, "; did you mean ", issue.suggestion, "?");
  return text;
}

std::string FormatIssues(const std::vector<SpecIssue>& issues, std::string_view file) {
  std::string text;
  for (const SpecIssue& issue : issues) {
    if (!issue.set_text.empty()) {
      absl::StrAppend(&text, "--set ", issue.set_text, ": ");
    } else if (!file.empty()) {
      absl::StrAppend(&text, ToAbsl(file), ":");
      if (issue.line > 0) absl::StrAppend(&text, issue.line, ":", issue.column, ":");
      absl::StrAppend(&text, " ");
    }
    absl::StrAppend(&text, issue.severity == SpecSeverity::kError ? "error: " : "warning: ",
                    DescribeIssue(issue), "\n");
  }
  return text;
}

absl::Status SpecStatus(const std::vector<SpecIssue>& issues) {
  google::rpc::BadRequest details;
  const SpecIssue* first = nullptr;
  for (const SpecIssue& issue : issues) {
    if (issue.severity != SpecSeverity::kError) continue;
    if (first == nullptr) first = &issue;
    auto* violation = details.add_field_violations();
    violation->set_field(issue.field);
    SpecIssue without_field = issue;
    without_field.field.clear();
    violation->set_description(DescribeIssue(without_field));
  }
  if (first == nullptr) return absl::OkStatus();
  const int others = details.field_violations_size() - 1;
  absl::Status status = absl::InvalidArgumentError(absl::StrCat(
      DescribeIssue(*first),
      others == 0
          ? ""
          : absl::StrCat(" (and ", others, others == 1 ? " other error)" : " other errors)")));
  status.SetPayload("type.googleapis.com/google.rpc.BadRequest",
                    absl::Cord(details.SerializeAsString()));
  return status;
}

std::string EvaluationSetName(const v1::DataMixture& set) {
  return set.name().empty() ? set.path() : set.name();
}

std::string BestBySet(const v1::JobSpec& spec) {
  const v1::DataSpec& data = spec.data();
  if (!spec.checkpoint().best_by().empty()) return spec.checkpoint().best_by();
  const bool validated = data.validation_fraction() > 0 || !data.validation_path().empty();
  if (validated || data.evaluation_sets().empty()) return "";
  return EvaluationSetName(data.evaluation_sets(0));
}

int JobWorldSize(const v1::TrainingJob& job) {
  return job.spec().resources().nodes() * job.spec().resources().devices_per_node();
}

}  // namespace fsdp
