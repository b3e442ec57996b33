// Arrays: the job of each task, and what is particular to their specs.
#include "proto/support/spec_array.h"

#include <map>
#include <optional>
#include <set>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "proto/support/spec.h"
#include "proto/support/spec_decode.h"
#include "proto/support/spec_document.h"
#include "proto/support/spec_fields.h"
#include "proto/support/spec_names.h"
#include "proto/support/spec_validate.h"

namespace fsdp {
namespace {

constexpr char kIndex[] = "index";

using Values = std::map<std::string, std::string>;

// What stands for {index} and each parameter's {name} in one task.
Values ValuesOf(const v1::ArraySpec& array, int index) {
  Values values = {{kIndex, absl::StrCat(index)}};
  for (const v1::ArrayParameter& parameter : array.parameters()) {
    if (index < parameter.values_size()) values[parameter.name()] = parameter.values(index);
  }
  return values;
}

// The end of a "{name}" that begins at `begin`; nothing when other text is in the braces, as in
// the lists and objects that a value may be.
std::optional<std::size_t> NameEnd(const std::string& text, std::size_t begin) {
  for (std::size_t i = begin + 1; i < text.size(); ++i) {
    const auto c = static_cast<unsigned char>(text[i]);
    if (c == '}') return i == begin + 1 ? std::nullopt : std::optional(i);
    if (!absl::ascii_islower(c) && !absl::ascii_isdigit(c) && c != '-') return std::nullopt;
  }
  return std::nullopt;
}

// `text` with the values in place of their names; a name without a value stays and goes to
// `unknown`.
std::string Substitute(const std::string& text, const Values& values,
                       std::set<std::string>* unknown) {
  std::string result;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const std::optional<std::size_t> end = text[i] == '{' ? NameEnd(text, i) : std::nullopt;
    if (!end) {
      result += text[i];
      continue;
    }
    const std::string name = text.substr(i + 1, *end - i - 1);
    const auto value = values.find(name);
    if (value == values.end()) {
      unknown->insert(name);
      result += text.substr(i, *end - i + 1);
    } else {
      result += value->second;
    }
    i = *end;
  }
  return result;
}

std::string SetField(int index) { return absl::StrCat("spec.array.set[", index, "]"); }

// The field that a set changes: "spec.queue" of "queue=x".
std::string TargetOf(const std::string& set_text) {
  const std::string path = set_text.substr(0, set_text.find('='));
  return path.rfind("metadata", 0) == 0 || path.rfind("spec.", 0) == 0 || path == "spec"
             ? path
             : absl::StrCat("spec.", path);
}

bool IsAtOrBelow(const std::string& path, const std::string& field) {
  return path == field || path.rfind(field + ".", 0) == 0 || path.rfind(field + "[", 0) == 0;
}

void CheckSets(const v1::ArraySpec& array, spec::Findings* findings) {
  const Values values = ValuesOf(array, 0);
  std::vector<std::string> names;
  for (const auto& [name, value] : values) names.push_back(name);
  for (int i = 0; i < array.set_size(); ++i) {
    const std::string& text = array.set(i);
    for (const char* shared : {"spec.array", "spec.queue", "spec.priority", "metadata.name"}) {
      if (!IsAtOrBelow(TargetOf(text), shared)) continue;
      findings->Error(SetField(i), absl::StrCat(shared, " is the same for all tasks of an array"),
                      {.value = absl::StrCat("\"", spec::Shorten(text), "\"")});
    }
    std::set<std::string> unknown;
    Substitute(text, values, &unknown);
    for (const std::string& name : unknown) {
      findings->Error(SetField(i), absl::StrCat("no parameter is called {", name, "}"),
                      {.value = absl::StrCat("\"", spec::Shorten(text), "\""),
                       .allowed = absl::StrCat("{", absl::StrJoin(names, "}, {"), "}"),
                       .suggestion = spec::NearestName(name, names)});
    }
  }
}

void CheckParameters(const v1::ArraySpec& array, spec::Findings* findings) {
  std::set<std::string> seen = {kIndex};
  for (int i = 0; i < array.parameters_size(); ++i) {
    const v1::ArrayParameter& parameter = array.parameters(i);
    const std::string field = absl::StrCat("spec.array.parameters[", i, "]");
    if (!parameter.name().empty() && !seen.insert(parameter.name()).second) {
      findings->Error(field + ".name",
                      parameter.name() == kIndex ? "is the task's index; take another name"
                                                 : "is the name of an earlier parameter",
                      {.value = parameter.name()});
    }
    if (parameter.values_size() > 0 && parameter.values_size() != array.count()) {
      findings->Error(
          field + ".values",
          absl::StrCat("has ", parameter.values_size(), " values for ", array.count(), " tasks"),
          {.allowed = absl::StrCat("one for each task: ", array.count())});
    }
  }
}

// Every task as a job of its own; the first that is wrong is told.
void CheckTasks(const v1::TrainingJob& job, spec::Findings* findings) {
  const ArrayTasks tasks(job);
  for (int index = 0; index < job.spec().array().count(); ++index) {
    SpecResult task = tasks.Job(index);
    if (task.ok()) task.issues = ValidateJob(task.job);
    for (const SpecIssue& issue : task.issues) {
      if (issue.severity != SpecSeverity::kError) continue;
      findings->Error("spec.array.set", absl::StrCat("makes a wrong job of task ", index, ": ",
                                                     DescribeIssue(issue)));
      return;
    }
  }
}

}  // namespace

namespace spec {

void CheckArray(const v1::TrainingJob& job, Findings* findings) {
  const v1::ArraySpec& array = job.spec().array();
  CheckParameters(array, findings);
  CheckSets(array, findings);
  if (!findings->HasErrorUnder("") && array.set_size() > 0) CheckTasks(job, findings);
}

}  // namespace spec

// The array as its tasks see it, and as the untyped document that array.set changes.
struct ArrayTasks::Document {
  v1::ArraySpec array;
  v1::TrainingJob base;
  spec::SpecNode root;
  // What could not be read of it: a text beyond the limits, or bytes that are no text.
  std::vector<SpecIssue> issues;
};

ArrayTasks::ArrayTasks(const v1::TrainingJob& array)
    : document_([&array] {
        auto document = std::make_unique<Document>();
        document->array = array.spec().array();
        document->base = array;
        document->base.mutable_spec()->clear_array();
        if (document->array.set_size() > 0) {
          document->root =
              spec::ReadDocument(JobToYaml(document->base), SpecOptions(), &document->issues);
        }
        return document;
      }()) {}

ArrayTasks::~ArrayTasks() = default;

SpecResult ArrayTasks::Job(int index) const {
  const v1::ArraySpec& array = document_->array;
  SpecResult result;
  if (array.set_size() == 0) {
    result.job = document_->base;
  } else {
    const Values values = ValuesOf(array, index);
    std::set<std::string> unknown;
    spec::SpecNode root = document_->root;
    result.issues = document_->issues;
    for (const std::string& text : array.set()) {
      spec::ApplySet(Substitute(text, values, &unknown), SpecOptions(), &root, &result.issues);
    }
    spec::DecodeJob(root, &result.job, &result.source, &result.issues);
  }
  auto& env = *result.job.mutable_spec()->mutable_env();
  env["FSDP_ARRAY_INDEX"] = absl::StrCat(index);
  env["FSDP_ARRAY_COUNT"] = absl::StrCat(array.count());
  return result;
}

SpecResult ArrayTask(const v1::TrainingJob& array, int index) {
  return ArrayTasks(array).Job(index);
}

}  // namespace fsdp
