"""What takes the memory, and how much is left?"""

from model import JOB, RANK, WORKER, bars, board, graph, q, row, stat

OF = 'job_id="$job_id",rank=~"$rank"'
# Devices of the hosts that run the job; ranks do not say which device of a host they have.
DEVICES = f'fsdp_device_memory_bytes{{worker=~"$worker"}} and on (instance) fsdp_step{{{OF}}}'

BOARD = board(
    "memory", "FSDP / Memory", "Memory of one job by kind, peaks against the devices, and what everybody uses of them.",
    [JOB, RANK, WORKER],
    row("Now", 4,
        stat("Peak", "Highest use of any rank chosen since its trainer started.", "bytes",
             q("", f"max(fsdp_memory_peak_bytes{{{OF}}})")),
        stat("Smallest device", "Memory of the smallest device of the job's hosts.", "bytes", q("", f"min({DEVICES})")),
        stat("Peak of the device", "Near 100% the next larger batch does not fit.", "percentunit",
             q("", f"max(fsdp_memory_peak_bytes{{{OF}}}) / min({DEVICES})"), steps=[(0.95, "orange")],
             runbook="FsdpDeviceMemoryNearFull"),
        stat("Fullest device", "In use by anybody, of its memory; absent where the driver does not tell.",
             "percentunit",
             q("", 'max(fsdp_device_memory_used_bytes{worker=~"$worker"} / on (worker, device)'
                   ' fsdp_device_memory_bytes{worker=~"$worker"})'), steps=[(0.95, "red")],
             runbook="FsdpDeviceMemoryNearFull")),
    row("By kind", 10,
        graph("In use by kind", "Mean over the ranks chosen.", "bytes",
              q("{{kind}}", f"avg by (kind) (fsdp_memory_bytes{{{OF}}})"), stacked=True),
        bars("Peak by kind", "Of the rank with most. Kinds peak at different moments and do not add up.", "bytes",
             q("{{kind}}", f"sort_desc(max by (kind) (fsdp_memory_kind_peak_bytes{{{OF}}}))"))),
    row("By rank", 9,
        graph("Peak by rank", "Against the smallest device of the job's hosts.", "bytes",
              q("rank {{rank}}", f"max by (rank) (fsdp_memory_peak_bytes{{{OF}}})"),
              q("roof: device", f"min({DEVICES})"), roofs=True),
        graph("In use by rank", "All kinds.", "bytes",
              q("rank {{rank}}", f"sum by (rank) (fsdp_memory_bytes{{{OF}}})")),
        graph("Devices", "In use by anybody, of each device's memory.", "percentunit",
              q("{{worker}}", 'max by (worker, device) (fsdp_device_memory_used_bytes{worker=~"$worker"})'
                              ' / on (worker, device)'
                              ' max by (worker, device) (fsdp_device_memory_bytes{worker=~"$worker"})'),
              ratio=True, runbook="FsdpDeviceMemoryNearFull")),
)
