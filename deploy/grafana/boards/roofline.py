"""What bounds each kernel family, how far from its roofs is it, and what would help?"""

from model import FAMILY, JOB, RANK, bars, board, graph, q, row, table

OF = 'job_id="$job_id",rank=~"$rank"'
OF_FAMILY = f'{OF},kernel_family=~"$kernel_family"'
SECONDS = f"rate(fsdp_kernel_seconds_total{{{OF_FAMILY}}}[$__rate_interval])"
LAUNCHES = f"rate(fsdp_kernel_launches_total{{{OF_FAMILY}}}[$__rate_interval])"
FLOPS = f"rate(fsdp_kernel_flops_total{{{OF_FAMILY}}}[$__rate_interval])"
BYTES = f"rate(fsdp_kernel_bytes_total{{{OF_FAMILY}}}[$__rate_interval])"
STEPS = f"(sum(rate(fsdp_steps_total{{{OF}}}[$__rate_interval])) > 0)"

REMEDIES = {
    "memory": "memory: fuse with its neighbours, store in fewer bits (fp8), raise the batch",
    "compute": "compute: lower precision, sizes that are multiples of 64 or 128, a bigger GPU",
    "communication": "communication: overlap, fewer bytes (bf16), larger micro-batches, fewer ranks",
    "latency": "latency: more work per launch, or the step in a graph",
    "balanced": "balanced: nothing single to change",
}

BOARD = board(
    "roofline", "FSDP / Roofline", "Kernel families of one job: their time, what bounds them, roofs, and what reaching"
    " these would save.", [JOB, RANK, FAMILY],
    row("What to improve", 10,
        table("Verdicts and remedies", "Share of the kernel time by family and by what bounded it, the largest first;"
              " communication may overlap the rest. source says whether counters or counts gave the verdict. fsdpctl"
              " describe JOB --report has the remedy for this job's settings.",
              [("Share", "percentunit")],
              [q("", f"""topk(16, sum by (kernel_family, bound, source) ({SECONDS}) / on () group_left ()
                  (sum({SECONDS}) > 0))""")],
              labels={"kernel_family": "Kernel family", "bound": "Bound and remedy", "source": "Source"},
              mappings={"Bound and remedy": REMEDIES}, width=14),
        bars("Savable", "What reaching the nearer of its roofs would save of a step; of communication, what the step"
             " waits for it.", "s",
             q("{{kernel_family}}",
               f"sort_desc(avg by (kernel_family) (fsdp_kernel_savable_seconds{{{OF_FAMILY}}}))"))),
    row("Shares of the kernel time", 9,
        graph("By family", "All kernel time of the ranks and families chosen is 1.", "percentunit",
              q("{{kernel_family}}", f"sum by (kernel_family) ({SECONDS}) / on () group_left () (sum({SECONDS}) > 0)"),
              share=True),
        graph("By bound", "What bounds the job as a whole.", "percentunit",
              q("{{bound}}", f"sum by (bound) ({SECONDS}) / on () group_left () (sum({SECONDS}) > 0)"), share=True),
        graph("By source", "analytic: counts over time against ceilings; gpm, pm_sampling: counters.", "percentunit",
              q("{{source}}", f"sum by (source) ({SECONDS}) / on () group_left () (sum({SECONDS}) > 0)"), share=True)),
    row("Distance to the roofs", 10,
        bars("Of the compute roof", "Achieved share of the measured compute ceiling. Above 75% with memory below 50%:"
             " compute-bound.", "percentunit",
             q("{{kernel_family}}", f"avg by (kernel_family) (fsdp_kernel_compute_ratio{{{OF_FAMILY}}})"), limit=1),
        bars("Of the memory roof", "Achieved share of the measured memory (or link) ceiling. Above 75% with compute"
             " below 25%: memory-bound.", "percentunit",
             q("{{kernel_family}}", f"avg by (kernel_family) (fsdp_kernel_memory_ratio{{{OF_FAMILY}}})"), limit=1),
        bars("Tensor pipes active", "Share of cycles; absent without PM sampling.", "percentunit",
             q("{{kernel_family}}", f"avg by (kernel_family) (fsdp_kernel_tensor_ratio{{{OF_FAMILY}}})"), limit=1)),
    row("Rates against the roofs", 10,
        graph("FLOP/s by family", "Counted FLOPs over kernel time, per rank, against the matmul rates measured at the"
              " start.", "flops",
              q("{{kernel_family}}", f"(sum by (kernel_family) ({FLOPS}) > 0) / on (kernel_family)"
                                     f" (sum by (kernel_family) ({SECONDS}) > 0)"),
              q("roof {{kind}}", f"max by (kind) (fsdp_ceiling_flops_per_second{{{OF}}})"), log=True, roofs=True),
        graph("Bytes/s by family", "Counted memory traffic (of communication, bytes on the wire) over kernel time, per"
              " rank, against the bandwidths measured at the start.", "Bps",
              q("{{kernel_family}}", f"(sum by (kernel_family) ({BYTES}) > 0) / on (kernel_family)"
                                     f" (sum by (kernel_family) ({SECONDS}) > 0)"),
              q("roof {{kind}}", f"max by (kind) (fsdp_ceiling_bytes_per_second{{{OF}}})"), log=True, roofs=True),
        graph("Arithmetic intensity", "FLOPs per byte. Below the ridge memory is the nearer roof, above it compute.",
              "none",
              q("{{kernel_family}}", f"(sum by (kernel_family) ({FLOPS}) > 0) / on (kernel_family)"
                                     f" (sum by (kernel_family) ({BYTES}) > 0)"),
              q("roof: ridge {{kind}}", f"""max by (kind) (fsdp_ceiling_flops_per_second{{{OF}}}) / on () group_left ()
                  max(fsdp_ceiling_bytes_per_second{{{OF},kind="memory"}})"""), log=True, roofs=True)),
    row("Launches", 8,
        graph("Seconds of a step", "Kernel time per step, mean over the ranks chosen.", "s",
              q("{{kernel_family}}", f"sum by (kernel_family) ({SECONDS}) / on () group_left () {STEPS}"),
              stacked=True),
        graph("Launches of a step", "Many short ones are bound by latency.", "short",
              q("{{kernel_family}}", f"sum by (kernel_family) ({LAUNCHES}) / on () group_left () {STEPS}")),
        graph("Seconds of a launch", "Below about 20 µs a launch costs as much as starting it.", "s",
              q("{{kernel_family}}", f"sum by (kernel_family) ({SECONDS}) / on (kernel_family)"
                                     f" (sum by (kernel_family) ({LAUNCHES}) > 0)"), log=True)),
)
