#include <algorithm>
#include <ostream>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "client/commands/commands.h"
#include "client/commands/common.h"
#include "client/render/encode.h"
#include "client/render/table.h"
#include "proto/support/text.h"

namespace fsdp {
namespace {

std::string StateText(v1::CollectiveState state) {
  switch (state) {
    case v1::COLLECTIVE_STATE_ENQUEUED:
      return "enqueued";
    case v1::COLLECTIVE_STATE_STARTED:
      return "started";
    case v1::COLLECTIVE_STATE_FINISHED:
      return "finished";
    case v1::COLLECTIVE_STATE_FAILED:
      return "failed";
    default:
      return "-";
  }
}

// The last `count` of each rank.
std::string RecordTable(const v1::DumpCollectivesResponse& response, int count) {
  Table table({{"RANK", true},
               {"SEQUENCE", true},
               {"OPERATION"},
               {"UNIT"},
               {"BYTES", true},
               {"STATE"},
               {"TIME", true}});
  for (const v1::RankCollectives& rank : response.ranks()) {
    const auto& records = rank.dump().records();
    for (int i = std::max(0, records.size() - count); i < records.size(); ++i) {
      const v1::CollectiveRecord& record = records[i];
      const bool over = record.state() == v1::COLLECTIVE_STATE_FINISHED;
      const double seconds = record.finished_seconds() - record.started_seconds();
      table.AddRow({absl::StrCat(rank.rank()), absl::StrCat(record.sequence()), record.operation(),
                    record.unit().empty() ? "-" : record.unit(), BytesText(record.bytes()),
                    StateText(record.state()),
                    over ? absl::StrFormat("%.3f ms", seconds * 1e3) : "-"});
    }
  }
  return table.Render("");
}

int Run(CommandRun& run) {
  const auto client = run.client();
  if (!client.ok()) return run.Fail(client.status());
  const auto response = (*client)->DumpCollectives(run.flags().positional().front());
  if (!response.ok()) return run.Fail(response.status());
  const int tail = static_cast<int>(run.flags().GetInt("tail"));
  if (run.flags().GetString("output") == "json") {
    v1::DumpCollectivesResponse shown = *response;
    for (v1::RankCollectives& rank : *shown.mutable_ranks()) {
      if (rank.dump().records_size() <= tail) continue;
      auto& records = *rank.mutable_dump()->mutable_records();
      records.DeleteSubrange(0, records.size() - tail);
    }
    run.out() << ToJson(shown) << "\n";
    return ToInt(ExitCode::kOk);
  }
  run.out() << response->verdict() << "\n\n" << RecordTable(*response, tail);
  for (const v1::RankCollectives& rank : response->ranks()) {
    if (!rank.has_dump()) {
      run.out() << "rank " << rank.rank() << " told nothing: " << rank.message() << "\n";
    }
  }
  return ToInt(ExitCode::kOk);
}

}  // namespace

Command CollectivesCommand() {
  Command command;
  command.name = "collectives";
  command.summary = "The last collectives of every rank, and which rank the others wait for";
  command.arguments = "JOB";
  command.argument_kind = ArgumentKind::kJob;
  command.min_arguments = 1;
  command.max_arguments = 1;
  command.description =
      "Asks the flight recorder of each rank of a running job; training goes on. A job that hangs "
      "is\nasked by itself, see `fsdpctl events`.";
  command.flags = {{.name = "tail",
                    .kind = FlagKind::kInt,
                    .value_name = "N",
                    .help = "Collectives shown of each rank",
                    .default_value = "8",
                    .min_value = 0,
                    .max_value = FlagSpec::kMaxInt},
                   OutputFlag({"table", "json"})};
  command.examples = {{"fsdpctl collectives my-job-1a2b3c4d", "who waits for whom"}};
  command.run = Run;
  return command;
}

}  // namespace fsdp
