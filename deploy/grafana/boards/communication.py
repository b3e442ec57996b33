"""What does the step wait for: the network, or a rank that comes late?"""

from model import ADDING_PHASES, JOB, RANK, bars, board, graph, q, row, stat

OF = 'job_id="$job_id",rank=~"$rank"'
STEPS = f"(sum(rate(fsdp_steps_total{{{OF}}}[$__rate_interval])) > 0)"
EXPOSED = "exposed_gather|exposed_scatter"
RANKS = 'count(max by (rank) (fsdp_step{job_id="$job_id"}))'
BYTES = 'sum by (collective) (rate(fsdp_collective_bytes_total{%s,collective=~"%s"}[$__rate_interval]))'
SECONDS = '(sum by (collective) (rate(fsdp_collective_seconds_total{%s,collective=~"%s"}[$__rate_interval])) > 0)'


def phases(which, by):
    return f'sum by ({by}) (rate(fsdp_step_phase_seconds_total{{{OF},phase=~"{which}"}}[$__rate_interval]))'


def bandwidth(which, share):
    """`share` of the bytes that have to cross a link of each rank, as nccl-tests counts it."""
    rate = f"{BYTES % (OF, which)} / on (collective) {SECONDS % (OF, which)}"
    return f"{rate} * scalar({share} * ({RANKS} - 1) / {RANKS})"


BOARD = board(
    "communication", "FSDP / Communication", "Exposed and hidden communication of one job, late ranks, and the rates of"
    " its collectives.", [JOB, RANK],
    row("Now", 4,
        stat("Exposed", "Share of the step that is communication which no computation hides.", "percentunit",
             q("", f"""sum({phases(EXPOSED, "rank")}) / (sum({phases(ADDING_PHASES, "rank")}) > 0)"""),
             steps=[(0.2, "orange")], runbook="FsdpExposedCommunicationHigh"),
        stat("Slowest rank", "Its speed against the fastest, waiting left out.", "percentunit",
             q("", f"min(fsdp_straggler_score_ratio{{{OF}}})"), runbook="FsdpStraggler"),
        stat("Latest rank", "What the others wait for it in a step.", "s",
             q("", f"max(fsdp_collective_skew_seconds{{{OF}}})"), runbook="FsdpStraggler"),
        stat("Collectives", "Per second, of a rank.", "cps",
             q("", f"avg(sum by (rank) (rate(fsdp_collectives_total{{{OF}}}[$__rate_interval])))"))),
    row("What the step waits for", 9,
        graph("Exposed by rank", "Share of each rank's step. A rank that waits less than the others is the one that"
              " they wait for.", "percentunit",
              q("rank {{rank}}", f"""{phases(EXPOSED, "rank")} / on (rank) ({phases(ADDING_PHASES, "rank")} > 0)"""),
              ratio=True, runbook="FsdpExposedCommunicationHigh"),
        graph("Exposed and hidden", "Seconds of a step, mean over the ranks chosen: what overlaps costs nothing.", "s",
              q("{{phase}}", f"""{phases("(exposed|overlapped)_(gather|scatter)", "phase")} / on () group_left ()
                  {STEPS}"""), stacked=True)),
    row("Late ranks", 9,
        graph("Skew by rank", "How much later than the first each rank comes to a step's collectives, in all.", "s",
              q("rank {{rank}}", f"max by (rank) (fsdp_collective_skew_seconds{{{OF}}})"), runbook="FsdpStraggler"),
        bars("Skew now", "The longest bar is the rank that others wait for.", "s",
             q("rank {{rank}}", f"sort_desc(max by (rank) (fsdp_collective_skew_seconds{{{OF}}}))")),
        graph("Speed of ranks", "Own step time of the fastest rank over that of each.", "percentunit",
              q("rank {{rank}}", f"min by (rank) (fsdp_straggler_score_ratio{{{OF}}})"), ratio=True,
              runbook="FsdpStraggler")),
    row("Collectives", 9,
        graph("Bus bandwidth", "Bytes of a collective over its time, times what has to cross a rank's link: (n-1)/n of"
              " a gather or scatter, twice that of an all-reduce. Waiting for peers is in the time. The roof is what"
              " was measured at the start.", "Bps",
              q("{{collective}}", bandwidth("all_gather|reduce_scatter", 1)),
              q("{{collective}}", bandwidth("all_reduce", 2)),
              q("roof", f'max(fsdp_ceiling_bytes_per_second{{{OF},kind="collective"}})'), log=True, roofs=True),
        graph("Seconds of a collective", "From its start on the device to its end, waiting for peers included.", "s",
              q("{{collective}}", f"""
                  sum by (collective) (rate(fsdp_collective_seconds_total{{{OF}}}[$__rate_interval]))
                  / on (collective)
                  (sum by (collective) (rate(fsdp_collectives_total{{{OF}}}[$__rate_interval])) > 0)""")),
        graph("Collectives of a step", "Mean over the ranks chosen.", "short",
              q("{{collective}}", f"""sum by (collective) (rate(fsdp_collectives_total{{{OF}}}[$__rate_interval]))
                  / on () group_left () {STEPS}""")),
        graph("Bytes", "Per second, of all ranks chosen.", "Bps",
              q("{{collective}}",
                f"sum by (collective) (rate(fsdp_collective_bytes_total{{{OF}}}[$__rate_interval]))"))),
)
