#!/usr/bin/python3
"""How long a user waits: submit to first step, death to all ranks stopped, death to training again.

    FSDP_BINARY_DIR=build/release/bin tests/bench/service/first_step.py [--rounds N] [--faults N]

Through the real binaries on loopback with two CPU ranks and the tests' tiny job. Prints one JSON line. The
client is python3-grpcio with the API's messages from protoc, so that no process start is
in the figures.
"""

import argparse
import importlib
import json
import os
import pathlib
import signal
import statistics
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "support"))
from cluster import SOURCE, Cluster, tiny_job  # noqa: E402


def load_api(folder):
    """Python messages of proto/, generated into `folder`."""
    protos = sorted(str(p.relative_to(SOURCE / "proto")) for p in (SOURCE / "proto" / "fsdp").rglob("*.proto"))
    subprocess.run(["protoc", f"-I{SOURCE / 'proto'}", f"--python_out={folder}", *protos], check=True)
    sys.path.insert(0, folder)
    return (importlib.import_module("fsdp.v1.job_pb2"), importlib.import_module("fsdp.v1.job_service_pb2"))


def with_enum_prefixes(descriptor, document):
    """The spec's short enum names as proto JSON has them: llama -> MODEL_FAMILY_LLAMA."""
    out = {}
    for key, value in document.items():
        field = next((f for f in descriptor.fields if f.json_name == key), None)
        if field is not None and field.enum_type is not None and isinstance(value, str):
            value = next(v.name for v in field.enum_type.values if v.name.endswith("_" + value.upper()))
        elif field is not None and field.message_type is not None and isinstance(value, dict):
            value = with_enum_prefixes(field.message_type, value)
        out[key] = value
    return out


class Api:
    """The few calls that are timed, over one open channel."""

    def __init__(self, server, modules):
        import grpc
        self.job_pb2, self.service = modules
        self.channel = grpc.insecure_channel(server)
        grpc.channel_ready_future(self.channel).result(timeout=10)

    def _method(self, kind, name, response):
        return getattr(self.channel, kind)(
            f"/fsdp.v1.JobService/{name}",
            request_serializer=lambda message: message.SerializeToString(),
            response_deserializer=getattr(self.service, response).FromString)

    def create(self, document):
        from google.protobuf import json_format
        request = self.service.CreateJobRequest()
        json_format.ParseDict(with_enum_prefixes(request.job.DESCRIPTOR, document), request.job)
        return self._method("unary_unary", "CreateJob", "CreateJobResponse")(request).job.name

    def cancel(self, name):
        self._method("unary_unary", "CancelJob", "CancelJobResponse")(self.service.CancelJobRequest(name=name))

    def wait(self, name, accept):
        """Follows the job until `accept`; returns it."""
        stream = self._method("unary_stream", "WatchJob", "WatchJobResponse")(
            self.service.WatchJobRequest(name=name), timeout=60)
        for update in stream:
            if accept(update.job):
                stream.cancel()
                return update.job
        raise RuntimeError(f"{name} ended before it got there")

    def first_metric(self, name, accept):
        """Waits for a step report."""
        stream = self._method("unary_stream", "StreamMetrics", "StreamMetricsResponse")(
            self.service.StreamMetricsRequest(name=name, follow=True), timeout=60)
        for update in stream:
            if any(accept(metrics) for metrics in update.metrics):
                stream.cancel()
                return
        raise RuntimeError(f"{name} ended without such a step")

    def events(self, name):
        """(type, epoch, seconds) of each, in order."""
        stream = self._method("unary_stream", "StreamEvents", "StreamEventsResponse")(
            self.service.StreamEventsRequest(name=name), timeout=60)
        return [(event.type, event.epoch, event.time.ToNanoseconds() / 1e9)
                for update in stream for event in update.events]


def gone(pid):
    try:
        with open(f"/proc/{pid}/stat", encoding="ascii") as stat:
            return stat.read().rsplit(")", 1)[1].split()[0] in "ZX"
    except (FileNotFoundError, ProcessLookupError):
        return True


def submit_to_first_step(api):
    start = time.monotonic()
    name = api.create(tiny_job(name="first", ranks=2, steps=2))
    api.first_metric(name, lambda metrics: metrics.step >= 1)
    seconds = time.monotonic() - start
    api.wait(name, lambda job: job.HasField("end_time"))
    return seconds


# What lies between the events of a recovery.
PARTS = {
    "all_ranks_gone_and_decided": ("RANK_DIED", "RESTARTING"),
    "placed": ("RESTARTING", "EPOCH_STARTED"),
    "trainers_started_and_joined": ("EPOCH_STARTED", "EPOCH_COMMITTED"),
    "connected_and_loaded": ("EPOCH_COMMITTED", "RUNNING"),
}


def parts_of_recovery(events):
    """Seconds of each part, from the death in epoch 1 to the first step of epoch 2."""
    times = {}
    for kind, epoch, seconds in events:
        wanted = 1 if kind in ("RANK_DIED", "RESTARTING") else 2
        if epoch == wanted:
            times.setdefault(kind, seconds)
    return {part: times[end] - times[begin] for part, (begin, end) in PARTS.items()}


def detection_and_recovery(api, folder):
    name = api.create(tiny_job(name="killed", ranks=2, steps=1000000, checkpoint=folder,
                               train={"globalBatch": 32, "microBatch": 4}))
    job = api.wait(name, lambda job: job.progress.step >= 8 and job.HasField("checkpoint"))
    pids = [rank.pid for rank in job.ranks]
    start = time.monotonic()
    os.kill(pids[1], signal.SIGKILL)
    while not all(gone(pid) for pid in pids):
        time.sleep(0.0005)
    stopped = time.monotonic() - start
    api.first_metric(name, lambda metrics: metrics.epoch >= 2)
    training = time.monotonic() - start
    api.cancel(name)
    api.wait(name, lambda job: job.HasField("end_time"))
    return stopped, training, parts_of_recovery(api.events(name))


def summary(seconds):
    return {"median_s": round(statistics.median(seconds), 3), "max_s": round(max(seconds), 3),
            "rounds": len(seconds)}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--faults", type=int, default=5)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder, Cluster(workers=2) as cluster:
        api = Api(cluster.server, load_api(folder))
        submit_to_first_step(api)  # page cache
        first = [submit_to_first_step(api) for _ in range(options.rounds)]
        faults = [detection_and_recovery(api, f"{folder}/checkpoints") for _ in range(options.faults)]
        print(json.dumps({
            "bench": "first_step", "ranks": 2, "cpus": os.cpu_count(),
            "load_1m": round(os.getloadavg()[0], 1),
            "submit_to_first_step": summary(first),
            "kill_to_all_ranks_stopped": summary([stopped for stopped, _, _ in faults]),
            "kill_to_next_step": summary([training for _, training, _ in faults]),
            "of_that": {part: summary([parts[part] for _, _, parts in faults]) for part in PARTS},
        }))


if __name__ == "__main__":
    main()
