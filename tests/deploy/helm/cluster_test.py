"""The command lines that the chart renders, run: coordinator, worker and the pod of `helm test`, on loopback. As root
each runs as the pod's user, without rights, on a root file system that is read-only but for what the pod mounts.
"""

import contextlib
import json
import os
import pathlib
import re
import shutil
import socket
import subprocess
import sys
import tempfile
import unittest
import urllib.error
import urllib.request

import grpc

import chart

sys.path.insert(0, str(chart.SOURCE / "tests" / "support"))
from cluster import wait_for  # noqa: E402

SERVING = b"\x08\x01"
PROGRAMS = ("fsdpctl", "fsdp-coordinator", "fsdp-worker", "fsdp-trainer")
# $1: the folder that stays writable; then user and group, then the command.
CONFINED = """
mount --make-rprivate / && mount --bind "$1" "$1" && mount -t tmpfs -o mode=1777 tmpfs /dev/shm &&
mount -o remount,ro,bind / && user=$2 group=$3 && shift 3 &&
exec setpriv --reuid="$user" --regid="$group" --clear-groups --no-new-privs --bounding-set=-all --inh-caps=-all "$@"
"""


def free_ports(count):
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for each in sockets:
            each.bind(("127.0.0.1", 0))
        return [each.getsockname()[1] for each in sockets]


class ClusterTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        self.folder.chmod(0o755)
        self.confined = os.geteuid() == 0
        # The build may be where no other user can read.
        self.bin = self.folder / "bin"
        self.bin.mkdir()
        for program in PROGRAMS:
            shutil.copy(chart.BIN / program, self.bin)
        self.grpc, metrics, self.worker_metrics = free_ports(3)
        self.values = {"coordinator": {"service": {"port": self.grpc, "metricsPort": metrics}},
                       "worker": {"devices": "cpu:1", "metricsPort": self.worker_metrics, "cpuThreads": 1}}
        code, text, errors = chart.template("helm4", self.values)
        self.assertEqual(code, 0, errors)
        self.objects = chart.objects_of(text)

    def pod(self, kind, name):
        (item,) = [item for item in self.objects if (item["kind"], item["metadata"]["name"]) == (kind, name)]
        return chart.pod_of(item)[1]

    def words(self, arguments, mounted):
        """As Kubernetes, DNS and the mounts would make them."""
        changed = []
        for word in arguments:
            for before, after in (("fsdp-coordinator.train.svc", "127.0.0.1"), ("$(POD_IP)", "127.0.0.1"),
                                  ("$(POD_NAME)", "fsdp-worker-0"), ("/var/lib", str(mounted)),
                                  ("/job/job.yaml", str(self.folder / "job.yaml"))):
                word = word.replace(before, after)
            changed.append(word)
        return changed

    def start(self, kind, name):
        pod = self.pod(kind, name)
        program = name
        mounted = self.folder / f"{name}-volumes"
        # A fresh volume: root's, open to the pod's group (fsGroup), with what mkfs left.
        (mounted / name / "lost+found").mkdir(parents=True, mode=0o700)
        command = [self.bin / program, *self.words(pod["containers"][0]["args"], mounted)]
        if self.confined:
            user, group = (str(pod["securityContext"][key]) for key in ("runAsUser", "runAsGroup"))
            os.chown(mounted / name, 0, int(group))
            (mounted / name).chmod(0o2775)
            command = ["unshare", "--mount", "sh", "-c", CONFINED, "sh", mounted, user, group, *command]
        log = (self.folder / f"{program}.log").open("w", encoding="utf-8")
        self.addCleanup(log.close)
        process = subprocess.Popen(command, stdout=log, stderr=log, cwd="/",
                                   env={"HOME": str(mounted), "PATH": "/usr/sbin:/usr/bin:/sbin:/bin"})
        self.addCleanup(process.wait)
        self.addCleanup(process.kill)
        return process

    def serving(self):
        with grpc.insecure_channel(f"127.0.0.1:{self.grpc}") as channel:
            check = channel.unary_unary("/grpc.health.v1.Health/Check")
            with contextlib.suppress(grpc.RpcError):
                return check(b"", timeout=2) == SERVING
        return False

    def worker_ready(self):
        with contextlib.suppress(urllib.error.URLError, ConnectionError):
            with urllib.request.urlopen(f"http://127.0.0.1:{self.worker_metrics}/metrics", timeout=5) as page:
                return b"fsdp_" in page.read()
        return False

    def succeeds(self, *words):
        """fsdpctl with these, and what it printed."""
        done = subprocess.run([self.bin / "fsdpctl", *words], text=True, capture_output=True, check=False, timeout=240,
                              env={"FSDPCTL_SERVER": f"127.0.0.1:{self.grpc}", "HOME": str(self.folder)})
        log = "".join(path.read_text() for path in self.folder.glob("*.log"))
        self.assertEqual(done.returncode, 0, f"{words}: {done.stdout}{done.stderr}\n{log}")
        return done.stdout + done.stderr

    def write_job(self, objects):
        (job,) = [item["data"]["job.yaml"] for item in objects
                  if item["metadata"]["name"] == "fsdp-test" and item["kind"] == "ConfigMap"]
        (self.folder / "job.yaml").write_text(job, encoding="utf-8")
        return job

    def test_the_test_pod_ends_with_success_and_the_notes_hold(self):
        coordinator = self.start("StatefulSet", "fsdp-coordinator")
        wait_for(lambda: self.serving() or coordinator.poll() is not None, "the coordinator's readiness probe")
        worker = self.start("StatefulSet", "fsdp-worker")
        wait_for(lambda: self.worker_ready() or worker.poll() is not None, "the worker's readiness probe")
        self.write_job(self.objects)
        submit = self.pod("Pod", "fsdp-test")["containers"][0]
        self.assertEqual(submit["command"], ["fsdpctl"])
        self.assertIn("SUCCEEDED", self.succeeds(*self.words(submit["args"], self.folder)))
        self.assertIn("fsdp-worker-0", self.succeeds("workers"))
        # The image's own health check.
        text = (chart.SOURCE / "deploy/docker/coordinator.Dockerfile").read_text(encoding="utf-8")
        health = json.loads(re.search(r"HEALTHCHECK .*\n +CMD (\[.*\])", text)[1])
        self.assertEqual(health[0], "/opt/fsdpctl/bin/fsdpctl")
        self.succeeds(*health[1:])
        told = re.findall(r"^  fsdpctl (.*)$", chart.notes(self.values), re.MULTILINE)
        self.assertEqual([line.split()[0] for line in told], ["workers", "submit", "drain", "uncordon"])
        for line in told:
            words = line.replace("WORKER", "fsdp-worker-0").replace("job.yaml", str(self.folder / "job.yaml"))
            self.succeeds(*words.split())
        for process in (worker, coordinator):
            process.terminate()
            self.assertEqual(process.wait(timeout=60), 0)

    def test_the_job_for_gpus_is_valid(self):
        code, text, errors = chart.template("helm4")
        self.assertEqual(code, 0, errors)
        self.assertIn("device: cuda", self.write_job(chart.objects_of(text)))
        self.succeeds("validate", self.folder / "job.yaml")


if __name__ == "__main__":
    unittest.main()
