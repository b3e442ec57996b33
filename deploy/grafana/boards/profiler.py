"""Can the verdicts be trusted, and what does having them cost?"""

from model import JOB, RANK, board, graph, q, row, stat

OF = 'job_id="$job_id",rank=~"$rank"'

BOARD = board(
    "profiler", "FSDP / Profiler", "How hardware counters are read, what is sampled and dropped, what that costs, and"
    " how large the endpoints are.", [JOB, RANK],
    row("Now", 4,
        stat("State", "sampling and idle: counters are read; analytic: the device has none; denied, busy and"
             " unavailable have a remedy in fsdpctl describe.", "none",
             q("{{state}}", f"max by (state) (fsdp_profiler_state{{{OF}}} == 1)"), name=True),
        stat("Windows", "Per minute and rank: one unless it was set otherwise.", "none",
             q("", f"60 * avg(rate(fsdp_profiler_windows_total{{{OF}}}[$__rate_interval]))")),
        stat("Dropped", "Of what was recorded, by overflow or because it was late.", "percentunit",
             q("", f"""sum(rate(fsdp_profiler_dropped_total{{{OF},reason=~"overflow|late"}}[$__rate_interval])) / (
                 sum(rate(fsdp_profiler_dropped_total{{{OF},reason=~"overflow|late"}}[$__rate_interval]))
                 + sum(rate(fsdp_profiler_samples_total{{{OF}}}[$__rate_interval])) > 0)"""), steps=[(0.01, "orange")],
             runbook="FsdpProfilerDrops"),
        stat("Overhead", "Share of a host core's time, the rank with most.", "percentunit",
             q("", f"max(sum by (rank) (rate(fsdp_profiler_overhead_seconds_total{{{OF}}}[$__rate_interval])))"),
             steps=[(0.01, "orange")], runbook="FsdpProfilerOverheadHigh")),
    row("Sampling", 9,
        graph("States", "Ranks by how counters are read.", "short",
              q("{{state}}", f"count by (state) (fsdp_profiler_state{{{OF}}} == 1)"), stacked=True, step=True),
        graph("Samples", "Credited to a family, per second.", "cps",
              q("rank {{rank}}", f"sum by (rank) (rate(fsdp_profiler_samples_total{{{OF}}}[$__rate_interval]))")),
        graph("Dropped by reason", "edge and span_limit are left out on purpose; overflow and late are losses.", "cps",
              q("{{reason}}", f"sum by (reason) (rate(fsdp_profiler_dropped_total{{{OF}}}[$__rate_interval]))"),
              runbook="FsdpProfilerDrops")),
    row("Cost", 9,
        graph("Overhead by kind", "Host seconds per second, mean over the ranks chosen.", "percentunit",
              q("{{kind}}", f"""avg by (kind) (
                  rate(fsdp_profiler_overhead_seconds_total{{{OF}}}[$__rate_interval]))"""), stacked=True,
              runbook="FsdpProfilerOverheadHigh"),
        graph("Series of an endpoint", "Samples of each scrape: at most 2000 for a job of 8 ranks.", "short",
              q("{{instance}}", 'scrape_samples_scraped{job=~"fsdp-.*"}')),
        graph("Time of a scrape", "What Prometheus waits for each endpoint.", "s",
              q("{{instance}}", 'scrape_duration_seconds{job=~"fsdp-.*"}'))),
)
