"""What the runs on GPU machines share (tests/gpu/run_all, tests/gpu/run_multigpu): programs of a bundle, their reports, the
peer beside them, and what the plan says beforehand."""

import concurrent.futures
import contextlib
import json
import os
import pathlib
import re
import statistics
import subprocess
import sys
import time

from libraries import library_path

ROOT = pathlib.Path(__file__).resolve().parents[2]
ORACLES = sorted((ROOT / "tests/oracle").glob("*.safetensors"))
PLAN_MEMORY, PLAN_TIME = 0.02, 0.10  # what the plan may be off by
H200_MEMORY = "139GiB"
# fp32 sums over ranks in another order move the last loss of an oracle by less.
MAX_DRIFT = 1e-5
# Of tiny jobs on several worlds.
MAX_SPREAD = 1e-4
# Flags of a benchmark's shape and the fields of a job's model that say the same.
MODEL_FIELDS = {"--layers": "numLayers", "--dim": "dim", "--heads": "numHeads", "--vocab": "vocabSize"}


class Session:
    """`device`: "cuda", or "cpu" to walk the same way without a GPU. `limit`: seconds after which nothing is started."""

    def __init__(self, binaries, out, device="cuda", limit=None):
        self.bin = pathlib.Path(binaries).resolve()
        self.out = pathlib.Path(out)
        self.out.mkdir(parents=True, exist_ok=True)
        self.device = device
        self.trainer = self.bin / ("fsdp-trainer-cuda" if device == "cuda" else "fsdp-trainer")
        self.failed = []
        self.environment = dict(os.environ)
        self.environment["LD_LIBRARY_PATH"] = library_path(self.bin)
        self.deadline = time.monotonic() + limit if limit else None

    def within(self, timeout):
        """Seconds of `timeout` that are left."""
        return min(timeout, self.deadline - time.monotonic()) if self.deadline else timeout

    def run(self, name, command, timeout=240, environment=None):
        """(exit code, output, seconds); the output is kept in --out."""
        timeout = self.within(timeout)
        if timeout < 1:
            return 124, "not run: the part's time is up (--limit-s)", 0
        began = time.time()
        try:
            done = subprocess.run([str(part) for part in command], stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                                  timeout=timeout, env=environment or self.environment, text=True, errors="replace",
                                  check=False)
            code, output = done.returncode, done.stdout
        except subprocess.TimeoutExpired as expired:
            code, output = 124, (expired.stdout or b"").decode(errors="replace")
        (self.out / (re.sub(r"[^A-Za-z0-9.-]+", "_", name) + ".log")).write_text(output)
        return code, output, time.time() - began

    def fail(self, name, output):
        self.failed.append(name)
        tail = "\n".join(output.strip().splitlines()[-8:])
        print(f"FAILED {name}:\n{tail}\n", flush=True)

    def verdict(self):
        """Says what failed; the exit code."""
        print("failed: " + ", ".join(self.failed) if self.failed else "everything passed", flush=True)
        return 1 if self.failed else 0


def last_json(output):
    for line in reversed(output.splitlines()):
        line = line.removeprefix("PEER ").strip()
        if line.startswith("{"):
            with contextlib.suppress(json.JSONDecodeError):
                return json.loads(line)
    return None


def median(reports, field="step_ms"):
    return statistics.median([report[field] for report in reports if report] or [0])


def num_gpus():
    try:
        listed = subprocess.run(["nvidia-smi", "-L"], stdout=subprocess.PIPE, text=True, check=False).stdout
    except FileNotFoundError:
        return 0
    return len(listed.strip().splitlines())


def collectives(session, worlds):
    """Every collective against sums formed on the host."""
    code, output, seconds = session.run("collectives", [session.bin / "nccl-test", *worlds])
    print(output.strip() + f"\ncollectives in {seconds:.0f} s\n", flush=True)
    if code != 0:
        session.fail("collectives", output)


def oracles(session, worlds, files=tuple(ORACLES), at_once=1):
    """Recorded trainings at `worlds`, which begin with 1; `at_once` of them side by side."""
    print("| oracle | precision | world | loss error | worst first gradient | final weights | bf16 rms / peer's "
          "| vs world 1 | s | |\n|---|---|--:|--:|--:|--:|--:|--:|--:|---|", flush=True)

    def measure(oracle, precision, world):
        return session.run(f"oracle {oracle.stem} {precision} {world}",
                           [session.trainer, "oracle", oracle, "--precision", precision, "--local-ranks", world],
                           timeout=90)

    with concurrent.futures.ThreadPoolExecutor(at_once) as pool:
        runs = [(oracle, precision, world, pool.submit(measure, oracle, precision, world))
                for oracle in files for precision in ("fp32", "bf16") for world in worlds]
        first = None
        for oracle, precision, world, future in runs:
            name = f"oracle {oracle.stem} {precision} {world}"
            code, output, seconds = future.result()
            report = last_json(output)
            if report is None:
                session.fail(name, output)
                first = None if world == 1 else first
                continue
            last = report["last_loss"]
            first = last if world == 1 else first
            drift = abs(last - first) / abs(first) if first else float("nan")
            rms = f"{report['bf16_rms']:.2e} / {report['peer_bf16_rms']:.2e}" if precision == "bf16" else ""
            print(f"| {oracle.stem} | {precision} | {world} | {report['loss_error']:.1e} "
                  f"| {report['gradient_error']:.1e} | {report['final_error']:.1e} | {rms} | {drift:.1e} "
                  f"| {seconds:.1f} | {'ok' if code == 0 else 'BEYOND'} |", flush=True)
            if code != 0:
                session.fail(name, "\n".join(report["failures"]))
            if precision == "fp32" and not drift <= MAX_DRIFT:
                session.fail(name, f"last loss differs from world 1's by {drift:.1e}")


def run_peer(session, shape, flags, name, world=1, steps=30, warmup=5):
    """(exit code, output, report): PyTorch FSDP2."""
    code, output, _ = session.run(
        name, [sys.executable, "-m", "torch.distributed.run", f"--nproc_per_node={world}", "--master_addr=127.0.0.1",
               "--master_port=29511", ROOT / "tests/bench/peers/torch_fsdp2.py", *shape, "--steps", steps, "--warmup",
               warmup, *flags], environment=dict(os.environ))
    return code, output, last_json(output)


def run_ours(session, shape, flags, name, steps=30, warmup=5, environment=None):
    """(exit code, output, report): `fsdp-trainer bench`."""
    code, output, _ = session.run(
        name, [session.trainer, "bench", *shape, "--steps", steps, "--warmup", warmup, *flags],
        environment=session.environment | environment if environment else None)
    return code, output, last_json(output)


def must(session, name, run):
    """The report of a run that has to succeed."""
    code, output, report = run
    if code != 0 or report is None:
        session.fail(name, output)
    return report


def ours(session, shape, flags, name, steps=30, warmup=5):
    return must(session, name, run_ours(session, shape, flags, name, steps, warmup))


def job_of(shape, world, **spec):
    """A job of this shape on `world` GPUs, as a document; `spec` is put into its sections."""
    flag = dict(zip(shape[::2], shape[1::2]))
    batch = int(flag["--batch"])
    document = {"apiVersion": "fsdp.v1", "kind": "TrainingJob", "metadata": {"name": "case"}, "spec": {
        "model": {"preset": flag["--model"]} | {
            field: int(flag[given]) for given, field in MODEL_FIELDS.items() if given in flag},
        "data": {"source": "synthetic", "sequenceLength": int(flag["--seq"]), "targets": "independent"},
        "train": {"globalBatch": batch * world, "microBatch": batch},
        "resources": {"nodes": 1, "devicesPerNode": world, "device": "cuda"}, "limits": {"maxSteps": 1}}}
    for section, values in spec.items():
        document["spec"].setdefault(section, {}).update(values)
    return document


def plan(session, name, shape, policy="auto", world=1):
    """What `fsdpctl plan` says of a step on H200s, in a process without a GPU: {"total", "context": bytes, "seconds"}.

    None: no fsdpctl in --bin, or the plan says that it does not fit.
    """
    program = session.bin / "fsdpctl"
    if not program.exists():
        return None
    path = session.out / "case.json"
    path.write_text(json.dumps(job_of(shape, world, train={"recompute": policy})))
    command = [program, "plan", path, "-o", "json", "--device-memory", H200_MEMORY]
    name = f"plan {policy} {name}"
    code, output, _ = session.run(name, command, environment=session.environment | {"CUDA_VISIBLE_DEVICES": ""})
    if code == 6:
        return None
    if code != 0:
        session.fail(name, output)
        return None
    report = json.loads(output[output.index("{"):])
    context = sum(entry["bytes"] for entry in report["memory"] if entry["kind"] in ("context and libraries", "NCCL"))
    return {"total": report["totalBytes"], "context": context, "seconds": report["predictedStepSeconds"]}


def train(session, name, job, world, settings):
    """`fsdp-trainer run`: a job's last line and its training loss."""
    command = [session.trainer, "run", ROOT / f"deploy/examples/{job}.yaml", "--local-ranks", world]
    for setting in (f"resources.device={session.device}", f"resources.devicesPerNode={world}", *settings):
        command += ["--set", setting]
    code, output, seconds = session.run(name, command)
    found = re.search(r"train loss ([0-9.]+)", output)
    if code != 0 or found is None:
        session.fail(name, output)
        return float("nan")
    lines = [line for line in output.strip().splitlines() if "train loss" in line]
    print(f"{name}: {lines[-1]} ({seconds:.1f} s with start)", flush=True)
    return float(found.group(1))


def resume_elsewhere(session, folder, moves):
    """The tiny job at each world of `moves`, and from its checkpoint of step 10 on the other: one loss."""
    losses = {}
    for world, other in moves.items():
        checkpoint = folder / f"world-{world}"
        losses[world] = train(session, f"tiny, world {world}", "tiny", world,
                              [f"checkpoint.dir={checkpoint}", "checkpoint.everySteps=10", "checkpoint.keepLast=4"])
        half = sorted(checkpoint.glob("*/step-*10*"))
        if not half:
            session.fail(f"checkpoint of world {world}", "no checkpoint of step 10")
            continue
        losses[f"{world} -> {other}"] = train(session, f"tiny, step 10 of world {world} on {other}", "tiny", other,
                                              [f"checkpoint.resumeFrom={half[0]}"])
    spread = max(losses.values()) - min(losses.values())
    print(f"losses of all tiny jobs lie within {spread:.1e}\n", flush=True)
    if not spread <= MAX_SPREAD:
        session.fail("tiny jobs", str(losses))
