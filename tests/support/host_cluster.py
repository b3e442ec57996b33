"""A coordinator and workers on the hosts of a HostNetwork: real daemons, real addresses.

The coordinator runs on the first host; fsdpctl is run there too, unless another is named. Helpers for jobs are Cluster's.
"""

import contextlib
import json
import os
import subprocess

from cluster import BIN, Cluster
from host_network import CONTROL


class HostCluster(Cluster):
    BIN = BIN.resolve()

    def __init__(self, network, coordinator_flags=(), worker_flags=(), client_flags=(), every_address=False):
        """every_address: the coordinator listens at [::], for both families."""
        super().__init__(workers=0, coordinator_flags=coordinator_flags, worker_flags=worker_flags)
        self.network = network
        self.client_flags = client_flags
        self.every_address = every_address
        self.client_host = network.hosts[0]

    def start_coordinator(self):
        host = self.network.hosts[0]
        (self.root / "coordinator.ports").unlink(missing_ok=True)
        address = "[::]:{}" if self.every_address else host.endpoint("{}")
        self._spawn("coordinator", *host.command(
            self.BIN / "fsdp-coordinator", "--insecure", f"--listen={address.format(self.ports.get('grpc', 0))}",
            f"--metrics-listen={address.format(self.ports.get('metrics', 0))}",
            f"--state-dir={self.root / 'coordinator'}", f"--port-file={self.root / 'coordinator.ports'}",
            *self.coordinator_flags))
        self.ports = self._port_file("coordinator")
        self.server = host.endpoint(self.ports["grpc"])

    def start_workers(self):
        """None: tests say which host takes which flags."""

    def start_worker(self, host, *flags, devices="cpu", family=None, coordinator=None):
        """Also restarts it. `family`: of the address at which it dials the coordinator; or `coordinator`, a relay's."""
        key = f"worker-{host.name}"
        (self.root / f"{key}.ports").unlink(missing_ok=True)
        coordinator = coordinator or self.network.hosts[0].endpoint(self.ports["grpc"], CONTROL, family)
        self._spawn(key, *host.command(
            self.BIN / "fsdp-worker", f"--coordinator={coordinator}", f"--state-dir={self.root / key}",
            f"--devices={devices}", "--insecure", f"--metrics-listen={host.endpoint(0)}",
            f"--port-file={self.root / (key + '.ports')}", "--cpu-threads=1", *self.worker_flags, *flags))
        self._port_file(key)

    def ctl(self, *arguments, check=True, timeout=120, stdin=None):
        done = subprocess.run(
            self.client_host.command(self.BIN / "fsdpctl", *arguments, "--server", self.server,
                                     *self.client_flags), text=True,
            capture_output=True, timeout=timeout, check=False, input=stdin,
            env={"FSDPCTL_RECONNECT": "60s", **os.environ, "NO_COLOR": "1", "HOME": str(self.root)})
        if check and done.returncode != 0:
            raise AssertionError(f"fsdpctl {' '.join(map(str, arguments))}: exit {done.returncode}\n"
                                 f"{done.stdout}\n{done.stderr}")
        return done

    def host_of(self, job, rank):
        """The name of the host that runs the rank."""
        workers = {worker["name"]: worker["host"] for worker in self.json("workers")}
        (worker,) = [entry["worker"] for entry in self.job(job)["ranks"] if int(entry.get("rank", 0)) == rank]
        return workers[worker if worker.startswith("workers/") else f"workers/{worker}"]

    def metric(self, host, port, name):
        """The samples of a metric, label text -> value, as `host` scrapes its own endpoint."""
        text = host.run("curl", "-sS", "--max-time", "10", f"http://{host.endpoint(port)}/metrics").stdout
        found = {}
        for line in text.splitlines():
            with contextlib.suppress(ValueError):
                series, value = line.rsplit(" ", 1)
                if series.split("{")[0] == name:
                    found[series] = float(value)
        return found

    def ports_of(self, host):
        return json.loads((self.root / f"worker-{host.name}.ports").read_text(encoding="utf-8"))
