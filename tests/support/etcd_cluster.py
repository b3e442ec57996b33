"""Several etcd members on loopback, and coordinators that keep their jobs in them."""

import calendar
import contextlib
import pathlib
import re
import signal
import socket
import subprocess
import time

from cluster import BIN, Cluster, wait_for


def free_ports(count):
    """Ports that are free now. All at once, so that they differ."""
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for one in sockets:
            one.bind(("127.0.0.1", 0))
        return [one.getsockname()[1] for one in sockets]


class EtcdCluster:
    def __init__(self, root, members=3):
        self.root = pathlib.Path(root)
        ports = free_ports(2 * members)
        self.clients, self.peers = ports[:members], ports[members:]
        self.processes = [None] * members

    def url(self, prefix="/fsdp"):
        return "etcd://" + ",".join(f"127.0.0.1:{port}" for port in self.clients) + prefix

    def start(self, index):
        """Also starts one again, with what it had stored."""
        client, peer = f"http://127.0.0.1:{self.clients[index]}", f"http://127.0.0.1:{self.peers[index]}"
        everyone = ",".join(f"m{i}=http://127.0.0.1:{port}" for i, port in enumerate(self.peers))
        with open(self.root / f"etcd{index}.log", "ab") as log:
            self.processes[index] = subprocess.Popen(
                ["etcd", f"--name=m{index}", f"--data-dir={self.root / f'etcd{index}'}",
                 f"--listen-client-urls={client}", f"--advertise-client-urls={client}",
                 f"--listen-peer-urls={peer}", f"--initial-advertise-peer-urls={peer}",
                 f"--initial-cluster={everyone}"], stdout=log, stderr=log, stdin=subprocess.DEVNULL,
                start_new_session=True)

    def kill(self, index, sig=signal.SIGKILL):
        self.processes[index].send_signal(sig)
        self.processes[index].wait(timeout=20)

    def stop(self):
        for process in filter(None, self.processes):
            with contextlib.suppress(ProcessLookupError):
                process.kill()
            process.wait()


class HaCluster(Cluster):
    """A Cluster with three etcd members and two coordinators; every address is in every config."""

    def __init__(self, workers=2, members=3, **more):
        super().__init__(workers=workers, **more)
        self.etcd = EtcdCluster(self.root, members)
        self.addresses = [f"127.0.0.1:{port}" for port in free_ports(2)]
        self.server = ",".join(self.addresses)

    def start_coordinator(self):
        for index in range(len(self.etcd.processes)):
            self.etcd.start(index)
        for index in range(len(self.addresses)):
            self.start_one(index)
        self.wait_leader()

    def start_one(self, index):
        (self.root / f"coordinator{index}.ports").unlink(missing_ok=True)
        self._spawn(f"coordinator{index}", BIN / "fsdp-coordinator", f"--listen={self.addresses[index]}",
                    "--metrics-listen=127.0.0.1:0", f"--store={self.etcd.url()}",
                    f"--port-file={self.root / f'coordinator{index}.ports'}", *self.coordinator_flags)
        self._port_file(f"coordinator{index}")

    def alive(self, index):
        return self.processes[f"coordinator{index}"].poll() is None

    def ask(self, index, *arguments):
        """Runs fsdpctl with the address of one coordinator alone; returns the finished process."""
        return subprocess.run([str(BIN / "fsdpctl"), *arguments, "--server", self.addresses[index],
                               "--call-timeout", "2s"], text=True, capture_output=True, timeout=60, check=False)

    def leader(self):
        """Index of the coordinator that serves; None: none does."""
        for index in range(len(self.addresses)):
            if self.alive(index) and self.ask(index, "list").returncode == 0:
                return index
        return None

    def wait_leader(self, timeout=90):
        # 0 is a leader, too.
        return wait_for(lambda: None if (index := self.leader()) is None else [index], "a coordinator leads",
                        timeout)[0]

    def job(self, name):
        """Waits out a change of leader that takes longer than fsdpctl does."""
        def answered():
            with contextlib.suppress(AssertionError):
                return super(HaCluster, self).job(name)
            return None

        return wait_for(answered, f"{name} to be told")

    def revive(self):
        """Whatever was killed, or has ended itself, as its supervisor would."""
        for index in range(len(self.addresses)):
            if not self.alive(index):
                self.start_one(index)
        for index, process in enumerate(self.etcd.processes):
            if process.poll() is not None:
                self.etcd.start(index)

    def time_to_lead(self, index, since):
        """Seconds from `since` (time.time()) to the line in which the coordinator says that it serves again."""
        log = (self.root / f"coordinator{index}.log").read_text(errors="replace")
        stamp = re.findall(r"^I (\S+)Z \S+ leads, and serves", log, re.MULTILINE)[-1]
        whole, fraction = stamp.split(".")
        return calendar.timegm(time.strptime(whole, "%Y-%m-%dT%H:%M:%S")) + float("0." + fraction) - since

    def stop(self):
        super().stop()
        self.etcd.stop()
