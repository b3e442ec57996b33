#include <nlohmann/json.hpp>
#include <ostream>

#include "absl/strings/str_cat.h"
#include "client/commands/commands.h"
#include "client/commands/common.h"
#include "client/render/encode.h"
#include "proto/support/spec.h"

namespace fsdp {
namespace {

// Every finding of a spec that is refused, for programs.
std::string FindingsJson(const SpecOutcome& spec) {
  auto findings = nlohmann::ordered_json::array();
  for (const SpecIssue& issue : spec.issues) {
    nlohmann::ordered_json finding = {
        {"severity", issue.severity == SpecSeverity::kError ? "error" : "warning"},
        {"field", issue.field},
        {"line", issue.line},
        {"column", issue.column},
        {"value", issue.value},
        {"message", issue.message},
        {"allowed", issue.allowed},
        {"suggestion", issue.suggestion}};
    if (!issue.set_text.empty()) finding["set"] = issue.set_text;
    findings.push_back(std::move(finding));
  }
  const nlohmann::ordered_json report = {
      {"valid", false}, {"file", spec.file}, {"violations", findings}};
  return report.dump(2, ' ', false, nlohmann::ordered_json::error_handler_t::replace) + "\n";
}

int Run(CommandRun& run) {
  const std::string format = run.flags().GetString("output");
  const bool for_programs = format != "text";
  const SpecOutcome spec = LoadSpec(run, for_programs);
  if (for_programs && spec.exit_code == ExitCode::kInvalidSpec) {
    const std::string report = FindingsJson(spec);
    run.out() << (format == "json" ? report : JsonToYaml(report));
  } else if (for_programs) {
    run.err() << FormatIssues(spec.issues, spec.file);
  }
  if (spec.exit_code != ExitCode::kOk) return ToInt(spec.exit_code);
  if (format == "yaml") {
    run.out() << JobToYaml(spec.job);
  } else if (format == "json") {
    run.out() << JobToJson(spec.job);
  } else {
    run.out() << "valid: " << spec.job.metadata().name();
    // What is no error is a warning.
    const std::size_t count = spec.issues.size();
    if (count > 0) run.out() << " (" << count << (count == 1 ? " warning)" : " warnings)");
    run.out() << "\n";
  }
  return ToInt(ExitCode::kOk);
}

}  // namespace

Command ValidateCommand() {
  Command command;
  command.name = "validate";
  command.summary = "Check a job spec; works offline";
  command.arguments = "[FILE]";
  command.argument_kind = ArgumentKind::kFile;
  command.max_arguments = 1;
  command.description =
      "Lists everything that is wrong at once, with line and column, and exits with 3. The "
      "verdict\n"
      "is the coordinator's: both run the same checks. -o json and -o yaml print the spec with "
      "its\n"
      "defaults, or {valid: false, violations: [{field, line, column, value, message, allowed,\n"
      "suggestion}]}; a place of 0 is not in the file.";
  command.flags = SpecFlags();
  command.flags.push_back(OutputFlag({"text", "yaml", "json"}));
  command.examples = {{"fsdpctl validate job.yaml", "is it right?"},
                      {"fsdpctl validate job.yaml --set resources.devicesPerNode=8 -o yaml",
                       "what would be submitted, defaults filled in"},
                      {"fsdpctl validate job.yaml -o json | jq '.violations[].field'",
                       "what is wrong, for a program"}};
  command.run = Run;
  return command;
}

}  // namespace fsdp
