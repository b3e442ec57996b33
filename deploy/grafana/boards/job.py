"""Does this job learn, how fast, and where does its time go?"""

from model import ADDING_PHASES, JOB, RANK, board, graph, q, row, stat

OF = 'job_id="$job_id",rank=~"$rank"'
STEPS = f"(sum(rate(fsdp_steps_total{{{OF}}}[$__rate_interval])) > 0)"
WITHIN = "overlapped_gather|overlapped_scatter|launch_gap|host_idle"


def phases(which):
    return f'sum by (phase) (rate(fsdp_step_phase_seconds_total{{{OF},phase=~"{which}"}}[$__rate_interval]))'


BOARD = board(
    "job", "FSDP / Job", "One job: loss, speed, the anatomy of its step, memory, checkpoints.", [JOB, RANK],
    row("Now", 4,
        stat("State", "As fsdpctl list shows it; empty once the job has ended.", "none",
             q("{{state}}", 'max by (state) (fsdp_job_state{job_id="$job_id"})'), name=True),
        stat("Step", "The last finished step.", "short", q("", 'max(fsdp_step{job_id="$job_id"})')),
        stat("Last loss", "Of the last step, nats per token.", "none", q("", 'max(fsdp_loss{job_id="$job_id"})')),
        stat("Tokens", "Tokens per second of the whole job.", "cps",
             q("", 'max(rate(fsdp_tokens_total{job_id="$job_id"}[$__rate_interval]))')),
        stat("MFU", "Model FLOPs per second over the devices' peak; absent where no peak is known.", "percentunit",
             q("", f"avg(fsdp_mfu_ratio{{{OF}}})"), runbook="FsdpMfuDrop"),
        stat("Since the last step", "Grows while the job makes no progress.", "s",
             q("", 'time() - max(fsdp_last_step_timestamp_seconds{job_id="$job_id"})'), steps=[(300, "red")],
             runbook="FsdpNoProgress"),
        stat("Unsaved steps", "What a failure now would cost.", "short",
             q("", 'max(fsdp_job_step{job_id="$job_id"}) - max(fsdp_checkpoint_step{job_id="$job_id"})'),
             runbook="FsdpCheckpointOverdue")),
    row("Learning", 9,
        graph("Loss", "Training loss of each step, and the last losses on validation data and evaluation sets.", "none",
              q("train", 'max(fsdp_loss{job_id="$job_id"})'),
              q("validation", 'max(fsdp_validation_loss{job_id="$job_id"})'),
              q("{{kind}}", 'max by (kind) (fsdp_evaluation_loss{job_id="$job_id"})'), width=12,
              runbook="FsdpLossNotFinite"),
        graph("Gradient norm", "Before clipping. A spike precedes divergence.", "none",
              q("norm", 'max(fsdp_grad_norm{job_id="$job_id"})'), log=True),
        graph("Learning rate", "Of the last step.", "none", q("rate", 'max(fsdp_learning_rate{job_id="$job_id"})'))),
    row("Where the time goes", 10,
        graph("Step anatomy", "Seconds of a step by phase, mean over the ranks chosen. They add up to the step.",
              "s", q("{{phase}}", f"{phases(ADDING_PHASES)} / on () group_left () {STEPS}"), stacked=True,
              runbook="FsdpStepTimeRegression"),
        graph("Step anatomy, shares", "The same in per cent of the step.", "percentunit",
              q("{{phase}}", f"""{phases(ADDING_PHASES)} / on () group_left ()
                  (sum(rate(fsdp_step_phase_seconds_total{{{OF},phase=~"{ADDING_PHASES}"}}[$__rate_interval])) > 0)"""),
              share=True, runbook="FsdpDataStall"),
        graph("Within the phases", "Communication that computation hides, gaps between launches, an idle host: seconds"
              " of a step that lie within the phases above.", "s",
              q("{{phase}}", f"{phases(WITHIN)} / on () group_left () {STEPS}"))),
    row("Speed", 8,
        graph("Step time", "Of each rank's last step. Ranks differ by when they report, not by speed: see stragglers.",
              "s", q("rank {{rank}}", f"max by (rank) (fsdp_step_seconds{{{OF}}})"), runbook="FsdpStepTimeRegression"),
        graph("MFU and HFU", "Model FLOPs, and all FLOPs with recomputation, over the devices' peak.", "percentunit",
              q("MFU", f"avg(fsdp_mfu_ratio{{{OF}}})"), q("HFU", f"avg(fsdp_hfu_ratio{{{OF}}})"), ratio=True,
              runbook="FsdpMfuDrop"),
        graph("Tokens per second", "Of the whole job.", "cps",
              q("tokens", 'max(rate(fsdp_tokens_total{job_id="$job_id"}[$__rate_interval]))')),
        graph("Model FLOP/s", "Of the whole job, recomputation left out.", "flops",
              q("model", 'max(rate(fsdp_flops_total{job_id="$job_id"}[$__rate_interval]))'))),
    row("Ranks", 8,
        graph("Speed of ranks", "Own step time of the fastest rank over that of each, without waiting for peers.",
              "percentunit", q("rank {{rank}}", f"min by (rank) (fsdp_straggler_score_ratio{{{OF}}})"), ratio=True,
              runbook="FsdpStraggler"),
        graph("States of ranks", "Ranks by state.", "short",
              q("{{state}}", f"count by (state) (fsdp_rank_state{{{OF}}} == 1)"), stacked=True, step=True),
        graph("Peak memory", "Highest use of each rank since its trainer started.", "bytes",
              q("rank {{rank}}", f"max by (rank) (fsdp_memory_peak_bytes{{{OF}}})"),
              runbook="FsdpDeviceMemoryNearFull")),
    row("What went wrong, what is safe", 8,
        graph("Updates left out and rollbacks", "Steps per second without an update, and goings back to a checkpoint.",
              "cps", q("left out", 'max(rate(fsdp_steps_skipped_total{job_id="$job_id"}[$__rate_interval]))'),
              q("rollbacks", 'max(rate(fsdp_rollbacks_total{job_id="$job_id"}[$__rate_interval]))'),
              runbook="FsdpStepsSkipped"),
        graph("Steps not saved", "Steps since the newest durable checkpoint, and the interval of the spec.", "short",
              q("not saved", 'max(fsdp_job_step{job_id="$job_id"}) - max(fsdp_checkpoint_step{job_id="$job_id"})'),
              q("interval", 'max(fsdp_checkpoint_interval_steps{job_id="$job_id"})'),
              runbook="FsdpCheckpointOverdue"),
        graph("Epochs and attempts", "Every (re)start of the ranks is a new epoch.", "short",
              q("epoch", 'max(fsdp_job_epoch{job_id="$job_id"})'),
              q("attempt", 'max(fsdp_job_attempt{job_id="$job_id"})'), step=True)),
)
