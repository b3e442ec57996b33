#!/usr/bin/python3
"""A random soak: jobs come, are cancelled, suspended and killed, while everything under them breaks.

    tests/fault/soak.py [--minutes 60] [--seed S] [--jobs 200] [--without KIND,KIND]

The hosts are network namespaces, so root is needed. What is done when follows from the seed alone; what it meets does not.
Each fault is undone after some seconds. At the end all is healed, every job must end, and history.py says whether what
happened was allowed. Prints the faults as they come; state is kept where a promise was broken.
"""

import argparse
import collections
import contextlib
import itertools
import os
import pathlib
import random
import signal
import subprocess
import sys
import tempfile
import threading
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "support"))
from cluster import TERMINAL, tiny_job  # noqa: E402
from history import History, key_of  # noqa: E402
from host_cluster import HostCluster  # noqa: E402
from host_network import host_network  # noqa: E402
from small_disk import block_disk  # noqa: E402

WORKERS = 3
SLOTS = 2
SEEDS = (7, 8)
RANKS = (1, 2, 3)
STEPS = 200
# Jobs at a time: some always wait.
ALIVE = 5
RELAY = pathlib.Path(__file__).resolve().parents[1] / "support/tcp_relay.py"
FAKETIME = pathlib.Path("/usr/lib/x86_64-linux-gnu/faketime/libfaketimeMT.so.1")
# So many restarts are nobody's idea of a budget: what ends a job here is a broken promise.
PATIENCE = {"maxInfrastructureRestarts": 10000, "maxUserRestarts": 0, "maxNoProgressRestarts": 10000,
            "backoffMaxSeconds": 2,
            "rules": [{"causes": ["CHECKPOINT"], "action": "RESTART_FREE"}]}


def now():
    return time.monotonic()


class Soak:
    def __init__(self, cluster, network, disks, folder, options):
        self.cluster, self.network, self.disks, self.folder = cluster, network, disks, folder
        self.random = random.Random(options.seed)
        self.options = options
        self.history = History(cluster, clock_jumps=True)
        self.began = now()
        # Seconds from the begin -> what undoes a fault.
        self.undo = []
        self.counts = collections.Counter()
        self.suspended = set()
        # Whose daemon the test itself has stopped or killed just now.
        self.down = set()
        self.relays = {}

    def say(self, text):
        print(f"{now() - self.began:7.1f} s  {text}", flush=True)

    # ---- the cluster

    def control(self, host):
        return self.folder / f"relay-{host.name}"

    def start_relay(self, host):
        main = self.network.hosts[0]
        process = subprocess.Popen(
            main.command("/usr/bin/python3", RELAY, main.endpoint(0), main.endpoint(self.cluster.ports["grpc"]),
                         self.control(host)), stdout=subprocess.PIPE, text=True, start_new_session=True)
        self.relays[host.name] = (process, int(process.stdout.readline()))

    def start_worker(self, host):
        _, port = self.relays[host.name]
        self.cluster.daemon_environment = self.clock(f"worker-{host.name}")
        self.cluster.start_worker(host, "--job-network=10.77.2.0/24", devices=f"cpu:{SLOTS}",
                                  coordinator=self.network.hosts[0].endpoint(port))
        self.cluster.daemon_environment = {}

    def start_coordinator(self):
        self.cluster.daemon_environment = self.clock("coordinator")
        with contextlib.suppress(AssertionError):
            # A full disk may end it again at once: the next look starts it anew.
            self.cluster.start_coordinator()
        self.cluster.daemon_environment = {}

    def clock(self, key):
        """The wall clock of a process, alone, as the file says; its monotonic one goes on."""
        path = self.folder / f"clock-{key}"
        if not path.exists():
            path.write_text("+0\n", encoding="ascii")
        return {"LD_PRELOAD": str(FAKETIME), "FAKETIME_TIMESTAMP_FILE": str(path), "FAKETIME_CACHE_DURATION": "1",
                "FAKETIME_DONT_FAKE_MONOTONIC": "1", "FAKETIME_DONT_RESET": "1"} if FAKETIME.exists() else {}

    def revive(self):
        """As systemd would: a daemon that has ended is started again."""
        for key, process in list(self.cluster.processes.items()):
            if key in self.down or process.poll() is None:
                continue
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            if key == "coordinator":
                self.start_coordinator()
            else:
                self.start_worker(next(h for h in self.network.hosts if key == f"worker-{h.name}"))

    # ---- faults: each returns what it did and what undoes it

    def worker_host(self):
        return self.random.choice(self.network.hosts[1:])

    def process(self, key):
        return self.cluster.processes[key].pid

    def daemon_pids(self, key):
        """The supervising process and the daemons of its devices, not their trainers."""
        listed = subprocess.run(["ps", "-s", str(self.process(key)), "-o", "pid=,comm="], text=True, capture_output=True,
                                check=False).stdout
        return [int(line.split()[0]) for line in listed.splitlines() if "fsdp-worker" in line or "fsdp-coord" in line]

    def trainers(self):
        listed = subprocess.run(["ps", "-C", "fsdp-trainer", "-o", "pid=,ppid="], text=True, capture_output=True,
                                check=False).stdout
        ours = {pid for key in self.cluster.processes if key.startswith("worker-") for pid in self.daemon_pids(key)}
        return sorted(int(pid) for pid, parent in map(str.split, listed.splitlines()) if int(parent) in ours)

    def kill_coordinator(self):
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.process("coordinator"), signal.SIGKILL)
        self.down.add("coordinator")
        return "coordinator killed", self.random.uniform(0.1, 3), lambda: self.down.discard("coordinator")

    def kill_worker(self):
        host = self.worker_host()
        key = f"worker-{host.name}"
        sig = self.random.choice([signal.SIGKILL, signal.SIGKILL, signal.SIGTERM])
        for pid in self.daemon_pids(key)[:None if sig == signal.SIGKILL else 1]:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, sig)
        self.down.add(key)
        return f"{key} {sig.name}", self.random.uniform(0.5, 6), lambda: self.down.discard(key)

    def kill_rank(self):
        pids = self.trainers()
        if not pids:
            return None
        pid = self.random.choice(pids)
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
        return f"trainer {pid} killed", 0, lambda: None

    def stop(self):
        kind = self.random.choice(["coordinator", "worker", "trainer"])
        seconds = self.random.uniform(0.5, 8)
        if kind == "trainer":
            pids = self.trainers()
            pids = [self.random.choice(pids)] if pids else []
        else:
            pids = self.daemon_pids("coordinator" if kind == "coordinator" else f"worker-{self.worker_host().name}")

        def signal_all(sig):
            for pid in pids:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, sig)

        signal_all(signal.SIGSTOP)
        return f"{kind} stopped", seconds, lambda: signal_all(signal.SIGCONT)

    def partition(self):
        one, other = self.random.sample(self.network.hosts, 2)
        both = self.random.random() < 0.5
        self.network.cut(one, other, both_ways=both)
        return (f"{one.name} {'and' if both else 'hears no'} {other.name}{' apart' if both else ''}",
                self.random.uniform(1, 12), self.network.heal)

    def relay(self):
        host = self.worker_host()
        mode = self.random.choice(["delay:0.3", "stall", "half", "reset"])
        self.control(host).write_text(mode, encoding="ascii")
        return (f"relay of {host.name}: {mode}", self.random.uniform(0.5, 8),
                lambda: self.control(host).write_text("pass", encoding="ascii"))

    def jump(self):
        key = self.random.choice(["coordinator", *(f"worker-{host.name}" for host in self.network.hosts[1:])])
        seconds = self.random.choice([-86400, -3600, -30, 5, 3600, 86400 * 30])
        (self.folder / f"clock-{key}").write_text(f"{seconds:+}\n", encoding="ascii")
        return f"clock of {key} {seconds:+} s", 0, lambda: None

    def disk(self):
        name = self.random.choice(sorted(self.disks))
        disk = self.disks[name]
        if self.random.random() < 0.5:
            disk.fill()
            return f"disk of {name} full", self.random.uniform(0.5, 4), disk.free
        disk.freeze()
        return f"disk of {name} does not answer", self.random.uniform(0.3, 3), disk.thaw

    # ---- people

    def spec(self):
        ranks = self.random.choice(RANKS)
        spec = tiny_job(name="soak", ranks=ranks, steps=STEPS, checkpoint=self.disks["checkpoints"].path / "jobs",
                        limits={"hangTimeoutSeconds": 6, "stopAfterDisconnectSeconds": 20, "joinTimeoutSeconds": 20},
                        failurePolicy=PATIENCE)
        spec["spec"]["train"]["seed"] = self.random.choice(SEEDS)
        spec["spec"]["checkpoint"].update({"everySteps": self.random.choice([20, 50]), "keepLast": 2,
                                           "async": self.random.random() < 0.5})
        return spec

    def act(self, alive):
        """One thing that a person does."""
        name = self.random.choice(sorted(alive))
        verb = self.random.choice(["cancel", "suspend", "suspend", "restart"])
        if name in self.suspended:
            verb = "resume"
            self.suspended.discard(name)
        done = self.cluster.ctl(verb, name, check=False, timeout=30)
        if verb == "suspend" and done.returncode == 0:
            self.suspended.add(name)
        self.say(f"{verb} {name}: {'ok' if done.returncode == 0 else done.stderr.strip()[:90]}")
        self.counts[verb] += done.returncode == 0

    def people(self, until):
        """Submits and acts, in a thread of its own: calls wait while the coordinator is away."""
        alive = set()
        while now() < until or (len(self.history.jobs) < self.options.jobs and now() < until + 60):
            alive = {name for name in alive if self.history.look(name) not in TERMINAL}
            while len(alive) < ALIVE and len(self.history.jobs) < self.options.jobs:
                alive.add(self.history.submit(self.spec()))
            if alive and self.random_people.random() < 0.3:
                self.act(alive)
            if alive:
                self.history.count(self.random_people.choice(sorted(alive)))
            time.sleep(0.2)

    # ---- the run

    FAULTS = {"kill_coordinator": 3, "kill_worker": 3, "kill_rank": 4, "stop": 3, "partition": 3, "relay": 3, "jump": 1,
              "disk": 2}

    def run(self, seconds):
        kinds = {kind: weight for kind, weight in self.FAULTS.items() if kind not in self.options.without}
        if not FAKETIME.exists():
            kinds.pop("jump", None)
        until = now() + seconds
        self.random_people = random.Random(self.options.seed + 1)
        thread = threading.Thread(target=self.people, args=(until,))
        thread.start()
        next_fault = now() + 2
        while now() < until:
            self.tend()
            # Two faults at a time at most: what is broken altogether only waits.
            if now() >= next_fault and len(self.undo) < 2:
                kind = self.random.choices(list(kinds), kinds.values())[0]
                done = getattr(self, kind)()
                if done is not None:
                    text, length, undo = done
                    self.counts[kind] += 1
                    self.undo.append((now() + length, undo))
                    self.say(f"{text} for {length:.1f} s")
                next_fault = now() + self.random.uniform(0.5, 5)
            time.sleep(0.05)
        return thread

    def tend(self):
        due = [entry for entry in self.undo if entry[0] <= now()]
        self.undo = [entry for entry in self.undo if entry[0] > now()]
        for _, undo in due:
            undo()
        self.revive()

    def settle(self, thread):
        """Everything is whole again: every job that was accepted ends."""
        for _, undo in self.undo:
            undo()
        self.undo = []
        self.network.heal()
        self.say(f"healed; {len(self.history.jobs)} jobs were accepted")
        deadline = now() + 600
        open_jobs = None
        while open_jobs or open_jobs is None or thread.is_alive():
            self.tend()
            if not thread.is_alive():
                states = {name: self.history.look(name) for name in self.history.jobs
                          if self.history.watches[name].terminal is None}
                open_jobs = {name: state for name, state in states.items() if state not in TERMINAL}
                for name, state in open_jobs.items():
                    if state == "SUSPENDED":
                        self.cluster.ctl("resume", name, check=False)
            if now() > deadline:
                raise AssertionError(f"not ended 600 s after everything was healed: {open_jobs}")
            time.sleep(0.5)


def calm_losses(folder):
    """key_of -> step -> loss of jobs that nothing disturbs."""
    found = {}
    with host_network(1) as network, HostCluster(network) as cluster:
        cluster.start_worker(network.hosts[0], devices=f"cpu:{max(RANKS)}")
        cluster.wait_workers(max(RANKS))
        for seed, ranks in itertools.product(SEEDS, RANKS):
            spec = tiny_job(name="calm", ranks=ranks, steps=STEPS, checkpoint=folder, train={"seed": seed})
            name = cluster.submit(spec)
            cluster.wait_state(name, "SUCCEEDED")
            found[key_of(spec)] = cluster.losses(name)
            assert sorted(found[key_of(spec)]) == list(range(1, STEPS + 1))
    return found


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--minutes", type=float, default=60)
    parser.add_argument("--seed", type=int, default=random.randrange(1 << 30))
    parser.add_argument("--jobs", type=int, default=200)
    parser.add_argument("--without", type=lambda text: text.split(","), default=[], help="kinds of faults")
    options = parser.parse_args()
    print(f"soak: seed {options.seed}, {options.minutes:g} minutes", flush=True)
    with contextlib.ExitStack() as stack:
        folder = pathlib.Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="fsdp-soak-")))
        calm = calm_losses(folder / "calm")
        network = stack.enter_context(host_network(WORKERS + 1))
        disks = {name: stack.enter_context(block_disk(size)) for name, size in (("checkpoints", 96), ("coordinator", 48))}
        cluster = HostCluster(network, coordinator_flags=("--suspect-after=2s", "--lost-after=4s",
                                                          "--adoption-grace=6s", "--hang-abort=6s"))
        soak = Soak(cluster, network, disks, folder, options)
        (cluster.root / "coordinator").symlink_to(disks["coordinator"].path)
        stack.enter_context(cluster)
        for host in network.hosts[1:]:
            soak.start_relay(host)
            stack.callback(os.killpg, soak.relays[host.name][0].pid, signal.SIGKILL)
            soak.start_worker(host)
        cluster.wait_workers(WORKERS * SLOTS)
        soak.settle(soak.run(options.minutes * 60))
        soak.history.check(calm)
        ends = collections.Counter(soak.history.watches[name].terminal for name in soak.history.jobs)
        epochs = sum(soak.history.watches[name].epoch for name in soak.history.jobs)
        print(f"soak: seed {options.seed}: {len(soak.history.jobs)} jobs, {dict(ends)}, {epochs} epochs; done: "
              f"{dict(soak.counts)}; no promise broken")
        failed = [name for name in soak.history.jobs if soak.history.watches[name].terminal == "FAILED"]
        assert not failed, f"these failed: {failed}: {[cluster.job(name).get('reason') for name in failed]}"


if __name__ == "__main__":
    main()
