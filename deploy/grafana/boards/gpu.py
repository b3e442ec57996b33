"""Are the devices well, and do they run at the clocks that they should?"""

from model import WORKER, board, graph, q, row, stat

OF = 'worker=~"$worker"'

BOARD = board(
    "gpu", "FSDP / GPU health", "Power, heat, clocks, throttling, memory errors and links of the workers' devices, and"
    " how trainers end on them.", [WORKER],
    row("Now", 4,
        stat("Hottest", "Temperature of the hottest chip.", "celsius",
             q("", f"max(fsdp_device_temperature_celsius{{{OF}}})"), steps=[(85, "orange")]),
        stat("Power", "Of all devices chosen.", "watt", q("", f"sum(fsdp_device_power_watts{{{OF}}})")),
        stat("Slowest clock", "Of the multiprocessors, on devices that run a rank.", "hertz",
             q("", f"min(fsdp_device_sm_clock_hertz{{{OF}}} and on (worker) fsdp_worker_rank_active{{{OF}}} == 1)"),
             runbook="FsdpDeviceThrottled"),
        stat("Uncorrected memory errors", "In the time range shown.", "none",
             q("", f'sum(increase(fsdp_device_ecc_errors_total{{{OF},kind="uncorrected"}}[$__range]))'),
             steps=[(1, "red")], runbook="FsdpEccUncorrected"),
        stat("Active", "Workers with a trainer process.", "none",
             q("", f"sum(fsdp_worker_rank_active{{{OF}}})"))),
    row("Power, heat, clocks", 9,
        graph("Power by device", "Power draw.", "watt",
              q("{{worker}}", f"max by (worker, device) (fsdp_device_power_watts{{{OF}}})")),
        graph("Temperature", "Of the chip.", "celsius",
              q("{{worker}}", f"max by (worker, device) (fsdp_device_temperature_celsius{{{OF}}})")),
        graph("SM clock", "Falls under a power or thermal limit.", "hertz",
              q("{{worker}}", f"max by (worker, device) (fsdp_device_sm_clock_hertz{{{OF}}})"))),
    row("Trouble", 9,
        graph("Throttled", "Share of the time with clocks held down, by reason.", "percentunit",
              q("{{worker}} {{reason}}", f"""sum by (worker, device, reason) (
                  rate(fsdp_device_throttled_seconds_total{{{OF}}}[$__rate_interval]))"""), ratio=True,
              runbook="FsdpDeviceThrottled"),
        graph("Memory errors", "Per second, by kind.", "cps",
              q("{{worker}} {{kind}}", f"""sum by (worker, device, kind) (
                  rate(fsdp_device_ecc_errors_total{{{OF}}}[$__rate_interval]))"""), runbook="FsdpEccCorrected"),
        graph("Ends of trainers", "By reason: signal and failed are trouble, finished and stopped are not.", "cps",
              q("{{worker}} {{reason}}", f"""sum by (worker, reason) (
                  rate(fsdp_trainer_exits_total{{{OF}}}[$__rate_interval]))""")),
        graph("Restarts of daemons", "By the supervising process; connections to a coordinator: growth is flapping.",
              "cps",
              q("{{worker}} restarts",
                f"sum by (worker) (rate(fsdp_worker_child_restarts_total{{{OF}}}[$__rate_interval]))"),
              q("{{worker}} connections",
                f"sum by (worker) (rate(fsdp_worker_connects_total{{{OF}}}[$__rate_interval]))"))),
    row("Links and memory", 9,
        graph("Links", "Bytes over NVLink and PCIe, received (rx) and sent (tx).", "Bps",
              q("{{worker}} {{kind}}", f"""sum by (worker, device, kind) (
                  rate(fsdp_device_link_bytes_total{{{OF}}}[$__rate_interval]))""")),
        graph("Memory in use", "By anybody, of each device.", "bytes",
              q("{{worker}}", f"max by (worker, device) (fsdp_device_memory_used_bytes{{{OF}}})"),
              runbook="FsdpDeviceMemoryNearFull")),
)
