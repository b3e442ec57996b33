#include "client/render/queues.h"

#include <ostream>

#include "client/commands/commands.h"
#include "client/commands/common.h"
#include "proto/support/queue_config.h"

namespace fsdp {
namespace {

// In json, yaml, jsonpath: true.
bool PrintQueues(CommandRun& run, const std::vector<v1::Queue>& queues, bool single,
                 int* exit_code) {
  std::vector<const google::protobuf::Message*> messages;
  messages.reserve(queues.size());
  for (const auto& queue : queues) messages.push_back(&queue);
  return PrintObjects(run, "queues", messages, single, exit_code);
}

int RunOne(CommandRun& run, Client& client, const std::string& name) {
  const auto queue = client.GetQueue(name);
  if (!queue.ok()) return run.Fail(queue.status());
  int exit_code = ToInt(ExitCode::kOk);
  if (PrintQueues(run, {*queue}, true, &exit_code)) return exit_code;
  if (run.flags().GetString("output") == "name") {
    run.out() << queue->spec().name() << "\n";
  } else {
    run.out() << QueueDescription(*queue, run.out_style());
  }
  return ToInt(ExitCode::kOk);
}

// Without a coordinator: is the file one that it would take?
int Check(CommandRun& run, const std::string& path) {
  const auto text = ReadSpecText(path, *run.world().in);
  if (!text.ok()) return run.Fail(text.status());
  const QueueConfigResult result = LoadQueueConfig(*text);
  const std::string file = path == "-" ? "<stdin>" : path;
  run.err() << FormatIssues(result.issues, file);
  if (!result.ok()) return ToInt(ExitCode::kInvalidSpec);
  run.out() << file << ": " << result.config.queues_size()
            << (result.config.queues_size() == 1 ? " queue" : " queues") << "\n";
  return ToInt(ExitCode::kOk);
}

int Run(CommandRun& run) {
  if (run.flags().Has("check")) return Check(run, run.flags().GetString("check"));
  const auto client = run.client();
  if (!client.ok()) return run.Fail(client.status());
  if (!run.flags().positional().empty()) {
    return RunOne(run, **client, run.flags().positional().front());
  }
  const auto list = (*client)->ListQueues();
  if (!list.ok()) return run.Fail(list.status());
  const std::vector<v1::Queue> queues(list->queues().begin(), list->queues().end());
  int exit_code = ToInt(ExitCode::kOk);
  if (PrintQueues(run, queues, false, &exit_code)) return exit_code;
  if (run.flags().GetString("output") == "name") {
    for (const auto& queue : queues) run.out() << queue.spec().name() << "\n";
  } else {
    run.out() << QueueTable(queues, run.out_style());
    if (!list->configured()) {
      run.err() << "no queues are configured (fsdp-coordinator --queues): any name is a queue, "
                   "without quota\n";
    }
  }
  if (!list->config_error().empty()) {
    run.err() << run.err_style().Yellow("warning:")
              << " the queues' file has changed and is not taken: " << list->config_error() << "\n";
  }
  return ToInt(ExitCode::kOk);
}

}  // namespace

Command QueuesCommand() {
  Command command;
  command.name = "queues";
  command.summary = "Show queues: quotas, who uses and borrows what, fair shares";
  command.arguments = "[QUEUE]";
  command.argument_kind = ArgumentKind::kQueue;
  command.max_arguments = 1;
  command.flags = {{.name = "check",
                    .kind = FlagKind::kFile,
                    .value_name = "FILE",
                    .help = "Check a file for fsdp-coordinator --queues instead, without a server"},
                   ObjectOutputFlag({"table", "json", "yaml", "name"}, *v1::Queue::descriptor(),
                                    false, "queues")};
  command.description =
      "USED are devices of running jobs, BORROWED those of them beyond the quota: others may take\n"
      "them back. WANTED are asked for by jobs that wait. SHARE is USED over the queue's fair "
      "part\n"
      "of the cluster by weight: 1.00 is exactly that part.";
  command.examples = {{"fsdpctl queues", "who has what"},
                      {"fsdpctl queues research", "one queue, with its preemption rules"},
                      {"fsdpctl queues --check queues.yaml", "before it is rolled out"}};
  command.run = Run;
  return command;
}

}  // namespace fsdp
