#ifndef FSDPCTL_CLIENT_COMMANDS_COMMON_H_
#define FSDPCTL_CLIENT_COMMANDS_COMMON_H_

// What several verbs share.

#include <google/protobuf/descriptor.h>
#include <google/protobuf/message.h>

#include <functional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "client/cli.h"
#include "client/exit_code.h"
#include "fsdp/v1/job.pb.h"
#include "fsdp/v1/job_record.pb.h"
#include "proto/support/spec.h"

namespace fsdp {

// -o with these formats; the first is the default.
FlagSpec OutputFlag(std::vector<std::string> formats);
// -o with these formats and jsonpath=TEMPLATE, for commands that print `item`s: one of them when
// `single` may be, a list under `list_key` when that is not empty.
FlagSpec ObjectOutputFlag(std::vector<std::string> formats,
                          const google::protobuf::Descriptor& item, bool single,
                          const std::string& list_key);
FlagSpec JobOutputFlag(std::vector<std::string> formats);
FlagSpec ReasonFlag(const std::string& help);
// -f FILE and --set.
std::vector<FlagSpec> SpecFlags();

// The job of -f or the positional argument ("-": standard input) with --set applied, checked and
// with its defaults. Findings go to standard error unless `quiet`; the exit code when it cannot be
// used.
struct SpecOutcome {
  ExitCode exit_code = ExitCode::kOk;
  v1::TrainingJob job;
  // As messages name it: "<stdin>" for "-".
  std::string file;
  std::vector<SpecIssue> issues;
};
SpecOutcome LoadSpec(CommandRun& run, bool quiet = false);

// The whole file; "-": standard input.
//   NOT_FOUND, PERMISSION_DENIED, RESOURCE_EXHAUSTED (> 1 MiB: no spec is)
absl::StatusOr<std::string> ReadSpecText(const std::string& path, std::istream& in);

// Prints messages where -o says json, yaml or jsonpath=...: one for a single message, else a list.
// False for other formats. A template that fits the other shape alone prints nothing and makes
// *exit_code usage.
bool PrintObjects(CommandRun& run, const std::string& list_key,
                  const std::vector<const google::protobuf::Message*>& messages, bool single,
                  int* exit_code);

// Prints jobs in the format of -o: one message for a single job in json and yaml, else a list.
// Returns the exit code.
int PrintJobs(CommandRun& run, const std::vector<v1::Job>& jobs, bool single);

// Runs `action` for every argument and goes on after errors, but not once the coordinator is
// unreachable; the worst exit code.
int ForEachArgument(CommandRun& run,
                    const std::function<absl::Status(Client&, const std::string&)>& action);

// Runs `action` for every named job, prints "job ID: STATE" (or -o), goes on after errors; the
// worst exit code. `note` is what goes on with a job meanwhile ("suspending, ..."), or empty.
int ForEachJob(CommandRun& run,
               const std::function<absl::StatusOr<v1::Job>(Client&, const std::string&)>& action,
               const std::function<std::string(const v1::Job&)>& note = nullptr);

// "name, saves first" for a job that is being stopped gently; empty once it has no ranks to stop.
std::string GentleStopNote(const std::string& what, const v1::Job& job);

// Follows a job with a progress line until it is finished.
//   CANCELLED: interrupted
absl::StatusOr<v1::Job> FollowJob(CommandRun& run, Client& client, const std::string& job,
                                  absl::Time deadline);

// What a reply warns of, on standard error: standard output stays free for -o.
void PrintWarnings(CommandRun& run,
                   const google::protobuf::RepeatedPtrField<std::string>& warnings);

// Told when a stream lost its coordinator: a note on standard error.
std::function<void(const absl::Status&)> ReconnectNote(CommandRun& run);

}  // namespace fsdp

#endif  // FSDPCTL_CLIENT_COMMANDS_COMMON_H_
