"""A real coordinator and real workers on loopback, for end-to-end and fault tests: on the CPU, or on a GPU.

Everything runs from the build's bin folder, with its state in a temporary folder that is removed when the
test passed. Nothing outlives the process: children are killed with their groups.
"""

import contextlib
import json
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import tempfile
import time

BIN = pathlib.Path(os.environ.get("FSDP_BINARY_DIR", "build/dev/bin"))
SOURCE = pathlib.Path(__file__).resolve().parents[2]
TERMINAL = {"SUCCEEDED", "FAILED", "CANCELLED"}


class Timeout(AssertionError):
    """A condition did not come true in time."""


def wait_for(condition, what, timeout=90.0, interval=0.05):
    """Polls `condition` until it returns something true; returns that. Limits are for a busy machine."""
    deadline = time.monotonic() + timeout
    while True:
        value = condition()
        if value:
            return value
        if time.monotonic() > deadline:
            raise Timeout(f"not within {timeout} s: {what}")
        time.sleep(interval)


def tiny_job(name="tiny", ranks=2, steps=20, checkpoint=None, **spec):
    """A job that takes seconds: a small llama on synthetic tokens."""
    document = {
        "apiVersion": "fsdp.v1",
        "kind": "TrainingJob",
        "metadata": {"name": name},
        "spec": {
            "model": {"family": "llama", "vocabSize": 64, "dim": 32, "numLayers": 2, "numHeads": 2,
                      "numKvHeads": 1, "mlpDim": 64},
            "data": {"source": "synthetic", "sequenceLength": 32},
            "train": {"globalBatch": 4, "microBatch": 2, "seed": 7},
            "optimizer": {"lr": 1e-3},
            "precision": {"parameters": "fp32"},
            "resources": {"nodes": 1, "devicesPerNode": ranks, "device": "cpu", "anyNode": True},
            "limits": {"maxSteps": steps, "joinTimeoutSeconds": 60, "gracePeriodSeconds": 5},
        },
    }
    if checkpoint is not None:
        document["spec"]["checkpoint"] = {"dir": str(checkpoint), "everySteps": 5}
    for section, values in spec.items():
        if isinstance(values, dict):
            document["spec"].setdefault(section, {}).update(values)
        else:
            document["spec"][section] = values
    return document


class Cluster:
    """Use as a context manager."""

    def __init__(self, workers=4, state_dir=None, separate=False, device="cpu", share_device=False,
                 coordinator_flags=(), worker_flags=(), client_flags=()):
        """device: "cpu" or "cuda"; share_device: more workers than GPUs."""
        self.client_flags = client_flags
        self.coordinator_flags = coordinator_flags
        self.worker_flags = worker_flags
        self.num_workers = workers
        self.device = device
        self.share_device = share_device
        # One process per worker, started apart, instead of one supervising parent.
        self.separate = separate
        self.root = pathlib.Path(state_dir or tempfile.mkdtemp(prefix="fsdp-test-"))
        # Of processes that are started from now on, beside this one's own.
        self.daemon_environment = {}
        self.processes = {}
        self.ports = {}

    def __enter__(self):
        try:
            self.start_coordinator()
            self.start_workers()
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(self, kind, value, trace):
        self.stop()
        if kind is None:
            shutil.rmtree(self.root, ignore_errors=True)
        else:
            print(f"state kept in {self.root}", file=sys.stderr)
            for log in sorted(self.root.glob("*.log")):
                text = log.read_text(errors="replace").splitlines()
                print(f"---- {log.name} (last lines)", *text[-40:], sep="\n", file=sys.stderr)

    def _spawn(self, key, *command):
        log = open(self.root / f"{key}.log", "ab")
        self.processes[key] = subprocess.Popen(
            [str(part) for part in command], stdout=log, stderr=subprocess.STDOUT,
            stdin=subprocess.DEVNULL, start_new_session=True, env={**os.environ, **self.daemon_environment})
        log.close()

    def _port_file(self, key, timeout=90):
        path = self.root / f"{key}.ports"

        def read():
            process = self.processes[key]
            if process.poll() is not None:
                raise AssertionError(f"{key} exited with {process.returncode}: "
                                     + (self.root / f"{key}.log").read_text()[-2000:])
            with contextlib.suppress(FileNotFoundError, json.JSONDecodeError):
                return json.loads(path.read_text())
            return None

        return wait_for(read, f"{path} to appear", timeout)

    def start_coordinator(self):
        """Also restarts it on the same port and state."""
        (self.root / "coordinator.ports").unlink(missing_ok=True)
        grpc_port = self.ports.get("grpc", 0)
        metrics_port = self.ports.get("metrics", 0)
        self._spawn("coordinator", BIN / "fsdp-coordinator", f"--listen=127.0.0.1:{grpc_port}",
                    f"--metrics-listen=127.0.0.1:{metrics_port}",
                    f"--state-dir={self.root / 'coordinator'}",
                    f"--port-file={self.root / 'coordinator.ports'}", *self.coordinator_flags)
        self.ports = self._port_file("coordinator")
        self.server = f"127.0.0.1:{self.ports['grpc']}"
        self.metrics_url = f"http://127.0.0.1:{self.ports['metrics']}/metrics"

    def start_workers(self):
        if self.separate:
            for index in range(self.num_workers):
                self.start_worker(index)
        elif self.device == "cuda":
            share = ["--share-device"] if self.share_device else []
            self._spawn_worker("workers", "all", f"--workers={self.num_workers}", *share)
        else:
            self._spawn_worker("workers", f"cpu:{self.num_workers}")
        self.wait_workers(self.num_workers)

    def start_worker(self, index):
        """Of a separate cluster; also restarts it."""
        self._spawn_worker(f"worker{index}", "cpu", f"--name=w{index}")

    def _spawn_worker(self, key, devices, *more):
        (self.root / f"{key}.ports").unlink(missing_ok=True)
        self._spawn(key, BIN / "fsdp-worker", f"--coordinator={self.server}",
                    f"--state-dir={self.root / key}", f"--devices={devices}",
                    "--metrics-listen=127.0.0.1:0", f"--port-file={self.root / (key + '.ports')}",
                    "--cpu-threads=1", *self.worker_flags, *more)

    def worker_metrics_url(self, key="workers"):
        return f"http://127.0.0.1:{self._port_file(key)['metrics']}/metrics"

    def wait_workers(self, count, timeout=90):
        def ready():
            listed = self.json("workers")
            good = [w for w in listed if w.get("state", "").removeprefix("WORKER_STATE_") == "READY"]
            return len(good) >= count

        wait_for(ready, f"{count} workers ready", timeout)

    def ctl(self, *arguments, check=True, timeout=120, stdin=None):
        """Runs fsdpctl; returns the finished process."""
        done = subprocess.run(
            [str(BIN / "fsdpctl"), *map(str, arguments), "--server", self.server,
             *map(str, self.client_flags)], text=True,
            capture_output=True, timeout=timeout, check=False, input=stdin,
            env={"FSDPCTL_RECONNECT": "60s", **os.environ, "NO_COLOR": "1", "HOME": str(self.root)})
        if check and done.returncode != 0:
            raise AssertionError(f"fsdpctl {' '.join(map(str, arguments))}: exit {done.returncode}\n"
                                 f"{done.stdout}\n{done.stderr}")
        return done

    def json(self, *arguments):
        """Runs fsdpctl with -o json; list answers are unwrapped."""
        try:
            value = json.loads(self.ctl(*arguments, "-o", "json").stdout)
        except (AssertionError, json.JSONDecodeError):
            return {} if arguments and arguments[0] != "workers" else []
        if isinstance(value, dict) and len(value) == 1:
            only = next(iter(value.values()))
            if isinstance(only, list):
                return only
        return value

    def submit(self, document, *arguments):
        """Submits a spec given as a dict; returns the job's name."""
        done = self.ctl("submit", "-f", "-", "-o", "name", *arguments, stdin=json.dumps(document))
        return done.stdout.split()[-1]

    def job(self, name):
        """The job as proto JSON."""
        done = self.ctl("get", name, "-o", "json")
        value = json.loads(done.stdout)
        return value.get("job", value)

    def state(self, name):
        return self.job(name).get("state", "").removeprefix("JOB_STATE_")

    def wait_state(self, name, *states, timeout=180):
        def reached():
            state = self.state(name)
            if state in TERMINAL and state not in states:
                raise AssertionError(f"{name} is {state}: " + json.dumps(self.job(name), indent=1))
            return state if state in states else None

        return wait_for(reached, f"{name} to be {' or '.join(states)}", timeout)

    def wait_step(self, name, step, timeout=180):
        return wait_for(lambda: int(self.job(name).get("progress", {}).get("step", 0)) >= step,
                        f"{name} to reach step {step}", timeout)

    def wait_ranks(self, name, count, timeout=180):
        """The pids of the trainers as soon as all are known, so that no call lies between the step at which
        a test strikes and the blow."""
        return wait_for(lambda: pids if len(pids := self.ranks(name)) == count else None,
                        f"{count} trainers of {name}", timeout)

    @staticmethod
    def wait_checkpoint(folder, step, timeout=180):
        """Of this step or a later one: old ones go. Looks at the folder itself: under load a job of seconds ends
        while fsdpctl is asked how far it is."""
        def written():
            folders = (path.parent.name for path in pathlib.Path(folder).glob("*/step-*/manifest.json"))
            return any(int(name.removeprefix("step-").split(".")[0]) >= step for name in folders)

        wait_for(written, f"a checkpoint of step {step} in {folder}", timeout, 0.002)

    def metrics(self, name):
        """The job's step metrics, a list of dicts."""
        lines = self.ctl("metrics", name, "-o", "jsonl").stdout.splitlines()
        return [json.loads(line) for line in lines if line.strip()]

    def losses(self, name):
        """step -> loss; a step reported by several attempts must have one loss."""
        found = {}
        for row in self.metrics(name):
            step, loss = int(row["step"]), float(row["loss"])
            if step in found:
                assert abs(found[step] - loss) <= 1e-6 * abs(loss), (step, found[step], loss)
            found[step] = loss
        return found

    def events(self, name):
        lines = self.ctl("events", name, "-o", "jsonl").stdout.splitlines()
        return [json.loads(line) for line in lines if line.strip()]

    def ranks(self, name):
        """rank -> pid of the current epoch's trainers."""
        return {int(r.get("rank", 0)): int(r["pid"]) for r in self.job(name).get("ranks", [])
                if int(r.get("pid", 0)) > 0}

    def kill(self, key, sig=signal.SIGKILL, wait=True):
        """Signals one process (not its group)."""
        process = self.processes[key]
        process.send_signal(sig)
        if wait:
            process.wait(timeout=20)

    def stop(self):
        for process in self.processes.values():
            if process.poll() is None:
                process.terminate()
        deadline = time.monotonic() + 10
        for process in self.processes.values():
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(timeout=max(0.1, deadline - time.monotonic()))
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
