"""What happened to the jobs of a cluster, and whether it may have: the promises of docs/failure_model.md, checked from
outside on events, metrics, logs and checkpoints.

    history = History(cluster)
    name = history.submit(spec)
    ...
    history.check(calm={...})          # raises BrokenPromise with everything that is wrong
"""

import collections
import json
import pathlib
import re
import uuid

from cluster import TERMINAL


# Of losses, relative: those of the same world size differ by nothing.
TOLERANCE = 1e-6


class BrokenPromise(AssertionError):
    """A promise was broken; the text names each, with job and numbers."""


def key_of(spec):
    """What losses depend on, to the last bit."""
    return spec["spec"]["train"]["seed"], spec["spec"]["resources"]["devicesPerNode"]


class Watch:
    """What was seen of a job while it ran: acknowledged means that it is there ever after."""

    def __init__(self):
        self.metrics = 0
        self.logs = 0
        self.epoch = 0
        self.terminal = None


class History:
    def __init__(self, cluster, clock_jumps=False):
        """clock_jumps: times say nothing."""
        self.cluster = cluster
        self.clock_jumps = clock_jumps
        # name -> its spec; accepted, so each must end.
        self.jobs = {}
        self.watches = collections.defaultdict(Watch)
        self.broken = []

    def submit(self, spec, attempts=60):
        """Repeats until it is accepted, with one request id: never two jobs."""
        request = str(uuid.uuid4())
        for _ in range(attempts):
            done = self.cluster.ctl("submit", "-f", "-", "-o", "name", "--request-id", request, check=False,
                                    stdin=json.dumps(spec))
            if done.returncode == 0:
                name = done.stdout.split()[-1]
                self.jobs[name] = spec
                return name
            if done.returncode in (2, 3):
                raise AssertionError(f"submit: {done.stderr}")
        raise BrokenPromise(f"a submit was not accepted in {attempts} tries: {done.stderr}")

    def look(self, name):
        """Notes what is there now, to be found again at the end."""
        done = self.cluster.ctl("get", name, "-o", "json", check=False)
        if done.returncode != 0:
            return None
        job = json.loads(done.stdout)
        job = job.get("job", job)
        watch = self.watches[name]
        epoch = int(job.get("epoch", 0))
        if epoch < watch.epoch:
            self.broken.append(f"{name}: epoch {epoch} after epoch {watch.epoch}")
        watch.epoch = max(watch.epoch, epoch)
        state = job.get("state", "").removeprefix("JOB_STATE_")
        if watch.terminal and state != watch.terminal:
            self.broken.append(f"{name}: {state} after {watch.terminal}")
        if state in TERMINAL:
            watch.terminal = state
        return state

    def count(self, name):
        """Notes how many metrics and log lines are acknowledged."""
        metrics, logs = self._lines("metrics", name, "-o", "jsonl"), self._lines("logs", name)
        watch = self.watches[name]
        for kind, lines in (("metrics", metrics), ("logs", logs)):
            if lines is None:
                continue
            known = getattr(watch, kind)
            if len(lines) < known:
                self.broken.append(f"{name}: {len(lines)} {kind}, {known} were there before")
            setattr(watch, kind, max(known, len(lines)))

    def _lines(self, *words):
        done = self.cluster.ctl(*words, check=False)
        return [line for line in done.stdout.splitlines() if line.strip()] if done.returncode == 0 else None

    def check(self, calm=None):
        """`calm`: key_of(spec) -> {step: loss} of the same job left in peace."""
        for name, spec in self.jobs.items():
            self.look(name)
            self.count(name)
            self._check_events(name)
            self._check_metrics(name, spec, (calm or {}).get(key_of(spec)))
            self._check_checkpoints(name, spec)
        if self.broken:
            raise BrokenPromise(f"{len(self.broken)} promises broken:\n" + "\n".join(self.broken))

    def _check_events(self, name):
        events = self.cluster.events(name)
        numbers = [int(event.get("sequence", 0)) for event in events]
        if numbers != list(range(1, len(numbers) + 1)):
            self.broken.append(f"{name}: events are numbered {numbers}")
        states = [event["state"].removeprefix("JOB_STATE_") for event in events
                  if event.get("state", "").removeprefix("JOB_STATE_") not in ("", "UNSPECIFIED")]
        ends = [state for state, before in zip(states, [None, *states]) if state in TERMINAL and state != before]
        if len(ends) != 1 or states[-1] not in TERMINAL:
            self.broken.append(f"{name}: its states are {states}, with {len(ends)} ends")
        live = []
        for event in events:
            epoch = int(event.get("epoch", 0))
            if epoch and (not live or epoch != live[-1]):
                live.append(epoch)
        if live != sorted(set(live)):
            self.broken.append(f"{name}: its epochs come as {live}")
        attempts = self.cluster.job(name).get("attempts", [])
        epochs = [int(attempt.get("epoch", 0)) for attempt in attempts]
        if epochs != sorted(set(epochs)):
            self.broken.append(f"{name}: the epochs of its attempts are {epochs}")
        # An attempt ends before the next one starts: no rank is in two live epochs.
        for before, after in zip(attempts, attempts[1:]):
            if self.clock_jumps:
                continue
            if not before.get("endTime") or before["endTime"] > after.get("startTime", "9"):
                self.broken.append(f"{name}: attempt {after.get('attempt')} starts {after.get('startTime')}, before the "
                                   f"one before it ended ({before.get('endTime')})")

    def _check_metrics(self, name, spec, calm):
        rows = self.cluster.metrics(name)
        # An epoch that is over adds nothing: no rank trains in two at once.
        order = [int(row.get("epoch", 0)) for row in rows]
        if order != sorted(order):
            self.broken.append(f"{name}: steps of an epoch that was over, {order}")
        by_epoch = collections.defaultdict(list)
        for row in rows:
            by_epoch[int(row.get("epoch", 0))].append(int(row["step"]))
        for epoch, steps in by_epoch.items():
            if steps != list(range(steps[0], steps[0] + len(steps))):
                self.broken.append(f"{name}: epoch {epoch} tells steps {steps}")
        if self.watches[name].terminal != "SUCCEEDED":
            return
        last = int(spec["spec"]["limits"]["maxSteps"])
        losses = {int(row["step"]): float(row["loss"]) for row in rows}
        missing = sorted(set(range(1, last + 1)) - set(losses))
        if missing:
            self.broken.append(f"{name}: no metrics of steps {missing}")
        for row in rows:
            step, loss = int(row["step"]), float(row["loss"])
            for known, where in ((losses[step], "another epoch"), ((calm or {}).get(step, loss), "the calm run")):
                if abs(known - loss) > TOLERANCE * abs(known):
                    self.broken.append(f"{name}: step {step} has loss {loss}, {known} in {where}")

    def _check_checkpoints(self, name, spec):
        """The line of checkpoints that a resumed job goes on from: one per step, of growing epochs."""
        root = spec["spec"].get("checkpoint", {}).get("dir")
        if root is None:
            return
        published = {}
        for manifest in pathlib.Path(root).glob("*/step-*/manifest.json"):
            found = json.loads(manifest.read_text(encoding="utf-8"))
            if found["job"].removeprefix("jobs/") != name.removeprefix("jobs/"):
                continue
            step, epoch = map(int, re.fullmatch(r"step-(\d+)\.e(\d+)", manifest.parent.name).groups())
            if (found["step"], found["epoch"]) != (step, epoch):
                self.broken.append(f"{manifest}: of step {found['step']} in epoch {found['epoch']}")
            if epoch > self.watches[name].epoch:
                self.broken.append(f"{manifest}: of an epoch that the job never had")
            if found["position"] != step * int(spec["spec"]["train"]["globalBatch"]):
                self.broken.append(f"{manifest}: position {found['position']} after {step} steps")
            published[step] = max(epoch, published.get(step, 0))
        line = [published[step] for step in sorted(published)]
        if line != sorted(line) and self.watches[name].terminal == "SUCCEEDED":
            self.broken.append(f"{name}: checkpoints of steps {sorted(published)} are of epochs {line}")
