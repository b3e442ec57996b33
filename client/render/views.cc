#include "client/render/views.h"

#include <algorithm>
#include <cctype>
#include <cstddef>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "client/exit_code.h"
#include "client/render/anatomy.h"
#include "client/render/progress.h"
#include "client/render/queues.h"
#include "client/render/table.h"
#include "proto/support/job_text.h"
#include "proto/support/spec.h"
#include "proto/support/text.h"
#include "worker/plan/elastic_sizes.h"
#include "worker/plan/plan_advice.h"

namespace fsdp {
namespace {

// Rows of kernel families that `top` shows of a job.
constexpr int kTopFamilies = 5;

std::string StepText(const v1::Job& job) {
  if (job.has_array()) return ArrayFacts(job);
  const auto& progress = job.progress();
  if (!job.has_progress() || (progress.step() == 0 && progress.total_steps() == 0)) return "-";
  // It started from a checkpoint beyond its limit.
  const bool beyond = progress.step() > progress.total_steps();
  if (progress.total_steps() == 0 || beyond) return absl::StrCat(progress.step());
  return absl::StrCat(progress.step(), "/", progress.total_steps());
}

std::string LossOf(const v1::Job& job) {
  return job.has_progress() && job.progress().step() > 0 ? LossText(job.progress().loss()) : "-";
}

std::string OrDash(const std::string& text) { return text.empty() ? "-" : text; }

std::string MemoryPair(const v1::RankStatus& rank) {
  if (rank.memory_peak_bytes() == 0 && rank.memory_planned_bytes() == 0) return "-";
  const std::string peak =
      rank.memory_peak_bytes() == 0 ? "-" : BytesText(rank.memory_peak_bytes());
  if (rank.memory_planned_bytes() == 0) return peak;
  return absl::StrCat(peak, " of ", BytesText(rank.memory_planned_bytes()));
}

// "38.7 GFLOP"
std::string FlopText(double flop) {
  const std::string text = ShortNumber(flop);
  const bool has_suffix = std::isalpha(static_cast<unsigned char>(text.back())) != 0;
  const std::size_t digits = text.size() - (has_suffix ? 1 : 0);
  return absl::StrCat(text.substr(0, digits), " ", text.substr(digits), "FLOP");
}

// "Name:" padded to one column for a page of facts.
void AddFact(std::string* page, const std::string& name, const std::string& value) {
  if (value.empty()) return;
  absl::StrAppendFormat(page, "%-14s%s\n", name + ":", value);
}

// "41-100"; an attempt that finished none has none.
std::string StepsText(const v1::Attempt& attempt) {
  if (attempt.last_step() == 0 || attempt.last_step() < attempt.first_step()) return "-";
  return absl::StrCat(attempt.first_step(), "-", attempt.last_step());
}

std::string AttemptTable(const v1::Job& job, absl::Time now) {
  Table table({{"ATTEMPT", true},
               {"EPOCH", true},
               {"STATE"},
               {"STEPS"},
               {"STARTED"},
               {"TOOK", true},
               {"CAUSE"}});
  for (const auto& attempt : job.attempts()) {
    const bool ended = attempt.has_end_time();
    const absl::Time end = ended ? ToTime(attempt.end_time()) : now;
    table.AddRow({absl::StrCat(attempt.attempt()), absl::StrCat(attempt.epoch()),
                  EnumText(attempt.state()), StepsText(attempt), TimeText(attempt.start_time()),
                  attempt.has_start_time() ? DurationText(end - ToTime(attempt.start_time())) : "-",
                  EnumText(attempt.cause())});
  }
  return table.Render("  ");
}

std::string RestartsText(const v1::RestartCounts& counts) {
  return absl::StrCat(
      counts.infrastructure(), " infrastructure, ", counts.user(), " user, ", counts.free(),
      " free",
      counts.preemptions() == 0 ? "" : absl::StrCat(" (", counts.preemptions(), " by preemption)"));
}

std::string CheckpointText(const v1::CheckpointInfo& checkpoint) {
  if (checkpoint.path().empty()) return "";
  return absl::StrCat(checkpoint.path(), "  (step ", checkpoint.step(), ", ",
                      BytesText(checkpoint.size_bytes()), ", world ", checkpoint.world_size(), ")");
}

void AddRootCause(const v1::Job& job, const Style& style, std::string* page) {
  const v1::RootCause& cause = job.root_cause();
  const bool current = RootCauseIsCurrent(job);
  const std::string text = RootCauseText(cause);
  absl::StrAppend(page, "\n", style.Bold(current ? "Root cause" : "Last failure"), "\n  ",
                  current ? style.Red(text) : text, "\n");
  if (!cause.collective().empty()) {
    absl::StrAppend(page, "  in collective: ", Printable(cause.collective()), "\n");
  }
  if (cause.last_lines().empty()) return;
  absl::StrAppend(page, "  last lines of the trainer:\n");
  for (const auto& line : cause.last_lines()) {
    absl::StrAppend(page, "    ", style.Dim("|"), " ", Printable(line), "\n");
  }
}

std::string UnitTable(const v1::Plan& plan) {
  Table table({{"UNIT"}, {"PARAMETERS", true}, {"SHARD", true}, {"PADDING", true}});
  for (const auto& unit : plan.units()) {
    table.AddRow({unit.name(), CountText(unit.parameters()), CountText(unit.shard_elements()),
                  CountText(unit.padding_elements())});
  }
  return table.Render("  ");
}

// Blocks that the policy is for, "7 of 12": an older coordinator does not say it.
template <typename PlanOrEstimate>
std::string BlocksText(const PlanOrEstimate& under, const v1::Plan& plan) {
  const std::int32_t blocks = under.recompute() == v1::RECOMPUTE_POLICY_KEEP
                                  ? under.kept_blocks()
                                  : under.recomputed_blocks();
  return plan.blocks() == 0 ? "-" : absl::StrCat(blocks, " of ", plan.blocks());
}

std::string PolicyTable(const v1::Plan& plan) {
  Table table({{"RECOMPUTE"}, {"BLOCKS", true}, {"PER RANK", true}, {"STEP", true}, {"FITS"}});
  for (const auto& policy : plan.policies()) {
    table.AddRow(
        {EnumText(policy.recompute()), BlocksText(policy, plan), BytesText(policy.total_bytes()),
         policy.predicted_step_seconds() > 0 ? StepSecondsText(policy.predicted_step_seconds())
                                             : "-",
         policy.fits() ? "yes" : "no"});
  }
  return table.Render("  ");
}

// "NVIDIA H200 (139 GiB): 4 ranks (recompute none), 1 rank (full)"
std::string AdviceText(const v1::MemoryAdvice& advice) {
  if (advice.policies().empty()) return "";
  const std::string memory = BytesText(advice.device_memory_bytes());
  const std::string ranks = FittingRanksText(advice);
  return absl::StrCat(
      advice.assumed_device().empty() ? memory
                                      : absl::StrCat(advice.assumed_device(), " (", memory, ")"),
      ": ",
      ranks.empty() ? absl::StrCat("on no number of ranks up to ", advice.largest_world_size())
                    : ranks);
}

std::string MemoryTable(const v1::Plan& plan) {
  Table table({{"MEMORY PER RANK"}, {"BYTES", true}, {"", true}, {"DETAIL"}});
  for (const auto& row : plan.memory()) {
    table.AddRow({row.kind(), CountText(row.bytes()), BytesText(row.bytes()), row.detail()});
  }
  table.AddRow({"total", CountText(plan.total_bytes()), BytesText(plan.total_bytes()),
                "largest of any rank"});
  for (const auto& row : plan.host_memory()) {
    table.AddRow({row.kind(), CountText(row.bytes()), BytesText(row.bytes()), row.detail()});
  }
  return table.Render("  ");
}

}  // namespace

std::string JobTable(const std::vector<v1::Job>& jobs, bool wide, absl::Time now,
                     const Style& style) {
  std::vector<Table::Column> columns = {{"JOB"},        {"STATE"},      {"RANKS", true},
                                        {"STEP", true}, {"LOSS", true}, {"AGE", true}};
  if (wide) {
    for (const char* title : {"QUEUE", "PRIORITY", "ATTEMPT", "OWNER", "TOKENS/S", "REASON"}) {
      columns.push_back({title});
    }
  }
  Table table(columns);
  for (const auto& job : jobs) {
    std::vector<std::string> row = {IdOf(job.name()),
                                    style.State(job.state()),
                                    job.ranks().empty() ? absl::StrCat(JobWorldSize(job.spec()))
                                                        : absl::StrCat(job.ranks_size()),
                                    StepText(job),
                                    LossOf(job),
                                    AgeText(job.create_time(), now)};
    if (wide) {
      const double rate = job.progress().tokens_per_second();
      row.insert(row.end(),
                 {OrDash(job.spec().spec().queue()), absl::StrCat(job.spec().spec().priority()),
                  absl::StrCat(job.attempt()), OrDash(job.owner()),
                  rate > 0 ? ShortNumber(rate) : "-", OrDash(Printable(job.reason()))});
    }
    table.AddRow(row);
  }
  return table.Render();
}

std::string WorkerTable(const std::vector<v1::Worker>& workers, bool wide, absl::Time now,
                        const Style& style) {
  std::vector<Table::Column> columns = {{"WORKER"}, {"STATE"},      {"DEVICE"},
                                        {"JOB"},    {"RANK", true}, {"HEARTBEAT", true}};
  if (wide) {
    for (const char* title : {"HOST", "MEMORY", "VERSION", "INCARNATION", "METRICS", "REASON"}) {
      columns.push_back({title});
    }
  }
  Table table(columns);
  for (const auto& worker : workers) {
    std::string state = EnumText(worker.state());
    if (worker.cordoned()) state += ",CORDONED";
    if (worker.state() == v1::WORKER_STATE_LOST)
      state = style.Red(state);
    else if (worker.state() == v1::WORKER_STATE_SUSPECT || worker.cordoned() ||
             worker.state() == v1::WORKER_STATE_UNPLACEABLE)
      state = style.Yellow(state);
    std::vector<std::string> row = {
        IdOf(worker.name()),
        state,
        absl::StrCat(EnumText(worker.device().type()), ":", worker.device().index()),
        worker.job().empty() ? "-" : IdOf(worker.job()),
        worker.job().empty() ? "-"
        : worker.rank() < 0  ? "spare"
                             : absl::StrCat(worker.rank()),
        AgeText(worker.heartbeat_time(), now)};
    if (wide) {
      row.insert(row.end(), {OrDash(worker.host()), BytesText(worker.device().memory_bytes()),
                             OrDash(worker.version()), OrDash(worker.incarnation()),
                             OrDash(worker.metrics_address()),
                             OrDash(Printable(worker.unplaceable_reason()))});
    }
    table.AddRow(row);
  }
  return table.Render();
}

std::string RankTable(const v1::Job& job, const std::string& indent) {
  // Nothing to compare with one rank, or before all have a step.
  const bool scored = std::any_of(job.ranks().begin(), job.ranks().end(),
                                  [](const auto& rank) { return rank.straggler_score() > 0; });
  std::vector<Table::Column> columns = {{"RANK", true}, {"STATE"},      {"WORKER"},
                                        {"HOST"},       {"DEVICE"},     {"PID", true},
                                        {"STEP", true}, {"PEAK MEMORY"}};
  if (scored) columns.push_back({"STRAGGLER SCORE", true});
  Table table(std::move(columns));
  for (const auto& rank : job.ranks()) {
    std::vector<std::string> row = {
        absl::StrCat(rank.rank()),   EnumText(rank.state()),
        OrDash(IdOf(rank.worker())), OrDash(rank.host()),
        OrDash(rank.device()),       rank.pid() == 0 ? "-" : absl::StrCat(rank.pid()),
        absl::StrCat(rank.step()),   MemoryPair(rank)};
    if (scored) row.push_back(absl::StrFormat("%.2f", rank.straggler_score()));
    table.AddRow(std::move(row));
  }
  return table.Render(indent);
}

std::string EventLine(const v1::JobEvent& event, const Style& style) {
  std::string where;
  if (event.attempt() > 0) absl::StrAppend(&where, " attempt ", event.attempt());
  if (event.has_rank()) absl::StrAppend(&where, " rank ", event.rank());
  if (event.step() > 0) absl::StrAppend(&where, " step ", event.step());
  std::string text = absl::StrCat(
      TimeText(event.time()), "  ", style.Severity(event.severity()),
      std::string(8 - std::min<std::size_t>(7, EnumText(event.severity()).size()), ' '),
      event.type(), where);
  if (!event.message().empty()) absl::StrAppend(&text, "  ", Printable(event.message()));
  return text;
}

std::string DataSourcesTable(const v1::JobResult& result) {
  std::int64_t tokens = 0;
  for (const auto& source : result.data_sources()) tokens += source.tokens();
  Table table({{"SOURCE"}, {"TOKENS", true}, {"SHARE", true}, {"PASSES", true}});
  for (const auto& source : result.data_sources()) {
    const double share =
        tokens > 0 ? static_cast<double>(source.tokens()) / static_cast<double>(tokens) : 0;
    table.AddRow({Printable(source.name()), CountText(source.tokens()),
                  absl::StrFormat("%.1f%%", share * 100),
                  absl::StrFormat("%.2f", source.passes())});
  }
  return table.empty() ? "" : table.Render("  ");
}

std::string JobDescription(const v1::Job& job, const std::vector<v1::JobEvent>& events,
                           absl::Time now, const Style& style, const JobSurroundings& around) {
  std::string page;
  AddFact(&page, "Job", IdOf(job.name()));
  std::string state = style.State(job.state());
  if (job.queue_position() > 0 &&
      (job.state() == v1::JOB_STATE_QUEUED || job.state() == v1::JOB_STATE_RECOVERING)) {
    absl::StrAppend(&state, ", ", job.queue_position(), " in line of queue ",
                    job.spec().spec().queue());
  }
  AddFact(&page, "State", state);
  AddFact(&page, "Reason", Printable(job.reason()));
  if (job.cause() != v1::FAILURE_CAUSE_UNSPECIFIED) AddFact(&page, "Cause", EnumText(job.cause()));
  AddFact(&page, "Queue", around.queue);
  if (!around.maintenance.empty()) {
    AddFact(&page, "Maintenance", style.Yellow(around.maintenance));
  }
  AddFact(&page, "Array", ArrayFacts(job));
  if (!job.array_job().empty()) {
    AddFact(&page, "Task", absl::StrCat(job.array_index(), " of array ", IdOf(job.array_job())));
  }
  AddFact(&page, "Owner", job.owner());
  AddFact(&page, "Created", TimeText(job.create_time()));
  if (job.has_start_time()) AddFact(&page, "Started", TimeText(job.start_time()));
  if (job.has_end_time()) AddFact(&page, "Ended", TimeText(job.end_time()));
  if (job.has_progress()) AddFact(&page, "Progress", ProgressText(job.progress()));
  for (const v1::EvaluationLoss& set : job.progress().evaluations()) {
    AddFact(&page, "Evaluation", absl::StrCat(set.name(), ": loss ", LossText(set.loss())));
  }
  if (job.has_array()) {
    AddFact(&page, "Tasks", absl::StrCat("fsdpctl list --array ", IdOf(job.name())));
  } else {
    AddFact(&page, "Attempt", absl::StrCat(job.attempt(), ", epoch ", job.epoch()));
  }
  if (IsElastic(job.spec())) AddFact(&page, "Elastic", ElasticSizesText(job.spec()));
  AddFact(&page, "Restarts", RestartsText(job.restarts()));
  AddFact(&page, "Checkpoint", CheckpointText(job.checkpoint()));
  for (const auto& warning : job.warnings()) {
    AddFact(&page, "Warning", style.Yellow(Printable(warning)));
  }
  if (!job.ranks().empty()) {
    absl::StrAppend(&page, "\n", style.Bold("Ranks"), "\n", RankTable(job, "  "));
  }
  if (job.has_root_cause() && job.root_cause().cause() != v1::FAILURE_CAUSE_UNSPECIFIED) {
    AddRootCause(job, style, &page);
  }
  if (!job.result().data_sources().empty()) {
    absl::StrAppend(&page, "\n", style.Bold("Data"), "\n", DataSourcesTable(job.result()));
  }
  if (!job.attempts().empty()) {
    absl::StrAppend(&page, "\n", style.Bold("Attempts"), "\n", AttemptTable(job, now));
  }
  if (!events.empty()) {
    absl::StrAppend(&page, "\n", style.Bold("Events"), "\n");
    for (const auto& event : events) absl::StrAppend(&page, "  ", EventLine(event, style), "\n");
  }
  return page;
}

std::string PlanText(const v1::Plan& plan, const PlanView& view, const Style& style) {
  std::string text;
  AddFact(&text, "World size", absl::StrCat(plan.world_size()));
  AddFact(&text, "Parameters",
          absl::StrCat(CountText(plan.parameters()), "  (",
                       ShortNumber(static_cast<double>(plan.parameters())), ")"));
  AddFact(&text, "Precision",
          absl::StrCat(EnumText(plan.parameter_dtype()), ", gradients in ",
                       EnumText(plan.reduce_dtype())));
  const std::string blocks = plan.recomputed_blocks() + plan.kept_blocks() > 0
                                 ? absl::StrCat(", ", BlocksText(plan, plan), " blocks")
                                 : "";
  AddFact(&text, "Recompute", EnumText(plan.recompute()) + blocks);
  const auto micro_batches = plan.micro_batches_per_step();
  AddFact(&text, "Step",
          absl::StrCat(CountText(plan.tokens_per_step()), " tokens in ", micro_batches,
                       micro_batches == 1 ? " micro-batch, " : " micro-batches, ",
                       FlopText(plan.model_flops_per_step())));
  if (plan.predicted_step_seconds() > 0) {
    AddFact(&text, "Predicted",
            StepSecondsText(plan.predicted_step_seconds()) + " a step on an NVIDIA H200");
  }
  AddFact(&text, "Would fit", AdviceText(plan.memory_advice()));
  absl::StrAppendFormat(&text, "%-14s%016x\n", "Schedule:", plan.schedule_hash());
  absl::StrAppend(&text, "\n", MemoryTable(plan));
  if (view.policies) absl::StrAppend(&text, "\n", PolicyTable(plan));
  if (view.units) absl::StrAppend(&text, "\n", UnitTable(plan));
  if (view.schedule && !plan.schedule().empty()) {
    absl::StrAppend(&text, "\n", style.Bold("Schedule of one micro-batch"), "\n");
    for (const auto& line : plan.schedule()) absl::StrAppend(&text, "  ", line, "\n");
  }
  for (const auto& warning : plan.warnings()) {
    absl::StrAppend(&text, style.Yellow("warning:"), " ", warning, "\n");
  }
  return text;
}

std::string TopText(const v1::GetClusterResponse& cluster, const std::vector<v1::Job>& jobs,
                    const std::vector<v1::Worker>& workers, absl::Time now, const Style& style) {
  std::string text =
      absl::StrCat(style.Bold("fsdpctl top"), "  coordinator ", cluster.version(), ", up ",
                   AgeText(cluster.start_time(), now), "  workers ", cluster.workers_busy(),
                   " busy, ", cluster.workers_ready(), " ready  jobs ", cluster.jobs_running(),
                   " running, ", cluster.jobs_queued(), " queued\n");
  const std::string maintenance = MaintenanceFacts(cluster.maintenance());
  if (!maintenance.empty()) {
    absl::StrAppend(&text, style.Yellow("maintenance: "), maintenance, "\n");
  }
  absl::StrAppend(&text, "\n", jobs.empty() ? "no live jobs\n" : JobTable(jobs, true, now, style));
  for (const auto& job : jobs) {
    if (job.ranks().empty()) continue;
    absl::StrAppend(&text, "\n", style.Bold(IdOf(job.name())), "\n");
    if (job.has_progress()) absl::StrAppend(&text, "  ", ProgressText(job.progress()), "\n");
    const std::string anatomy = AnatomyText(job.progress());
    if (!anatomy.empty()) absl::StrAppend(&text, "  ", anatomy, "\n");
    absl::StrAppend(&text, RankTable(job, "  "), FamilyTable(job, kTopFamilies, "  "));
  }
  std::vector<v1::Worker> odd;
  std::copy_if(workers.begin(), workers.end(), std::back_inserter(odd), [](const v1::Worker& w) {
    return w.cordoned() ||
           (w.state() != v1::WORKER_STATE_READY && w.state() != v1::WORKER_STATE_BUSY);
  });
  if (!odd.empty()) {
    absl::StrAppend(&text, "\n", style.Bold("Workers that need a look"), "\n",
                    WorkerTable(odd, true, now, style));
  }
  return text;
}

}  // namespace fsdp
