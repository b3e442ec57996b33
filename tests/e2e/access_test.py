"""Tokens, roles, the audit log and allowed paths, through the real programs."""

import contextlib
import json
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import unittest

import grpc

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "support"))
from cluster import BIN, Cluster, tiny_job, wait_for  # noqa: E402
from small_disk import small_disk  # noqa: E402


@contextlib.contextmanager
def token_of(path):
    """What fsdpctl sends within; None: nothing."""
    before = os.environ.pop("FSDPCTL_TOKEN_FILE", None)
    if path is not None:
        os.environ["FSDPCTL_TOKEN_FILE"] = str(path)
    try:
        yield
    finally:
        os.environ.pop("FSDPCTL_TOKEN_FILE", None)
        if before is not None:
            os.environ["FSDPCTL_TOKEN_FILE"] = before


class AccessTest(unittest.TestCase):
    def setUp(self):
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="fsdp-access-"))
        self.access = self.folder / "access.yaml"
        self.audit = self.folder / "audit.jsonl"
        for name, role, *more in (("admin", "admin"), ("alice", "submitter", "--queue", "default"),
                                  ("bob", "viewer", "--expires", "1h"), ("hosts", "worker")):
            self.create_token(name, role, *more)

    def tearDown(self):
        subprocess.run(["rm", "-rf", self.folder], check=True)

    def token(self, name):
        return self.folder / f"{name}.token"

    def create_token(self, name, role, *more):
        subprocess.run([BIN / "fsdpctl", "admin", "create-token", "--name", name, "--role", role, "--access",
                        self.access, "--to", self.token(name), *more], check=True)

    def cluster(self, workers=1, coordinator_flags=(), worker_flags=()):
        return Cluster(workers=workers,
                       coordinator_flags=[f"--access={self.access}", f"--audit-log={self.audit}", *coordinator_flags],
                       worker_flags=[f"--token-file={self.token('hosts')}", *worker_flags])

    def lines(self):
        return [json.loads(line) for line in self.audit.read_text().splitlines()]

    def refused(self, cluster, text, *arguments, code=5, **more):
        done = cluster.ctl(*arguments, check=False, **more)
        self.assertEqual(done.returncode, code, done.stderr)
        self.assertIn(text, done.stderr)
        return done.stderr

    def test_a_job_with_tokens_and_what_others_may_not(self):
        with token_of(self.token("alice")), self.cluster(workers=2) as cluster:
            name = cluster.submit(tiny_job(steps=5))
            cluster.wait_state(name, "SUCCEEDED")
            self.assertEqual(cluster.job(name)["owner"], "alice")
            self.refused(cluster, "alice may not submit a job: that takes the role submitter in queue prod", "submit",
                         "-f", "-", stdin=json.dumps(tiny_job(queue="prod")))
            self.refused(cluster, "[ROLE_INSUFFICIENT]", "drain", cluster.json("workers")[0]["name"])
            with token_of(self.token("bob")):
                self.assertEqual(cluster.state(name), "SUCCEEDED")
                self.refused(cluster, "bob may not delete the job", "delete", name)
            with token_of(None):
                self.refused(cluster, "[TOKEN_MISSING]", "list")
            wrong = self.folder / "wrong.token"
            wrong.write_text("fsdp_" + "x" * 43 + "\n")
            error = self.refused(cluster, "[TOKEN_UNKNOWN]", "list", "--token-file", wrong)
            self.assertNotIn("xxx", error)
            self.refused(cluster, "cannot read the token file", "list", "--token-file", self.folder / "none", code=2)
            # A worker's token is no person's.
            self.refused(cluster, "hosts may not list jobs", "list", "--token-file", self.token("hosts"))

            done = {(line["subject"], line["method"], line["code"]) for line in self.lines()}
            for wanted in (("alice", "JobService.CreateJob", "OK"),
                           ("alice", "JobService.CreateJob", "PERMISSION_DENIED"),
                           ("alice", "ClusterService.DrainWorker", "PERMISSION_DENIED"),
                           ("bob", "JobService.DeleteJob", "PERMISSION_DENIED"),
                           ("", "JobService.ListJobs", "UNAUTHENTICATED"),
                           ("hosts", "JobService.ListJobs", "PERMISSION_DENIED")):
                self.assertIn(wanted, done)
            created = [line for line in self.lines() if line["code"] == "OK"]
            self.assertEqual([line["resource"] for line in created], [f"jobs/{name.removeprefix('jobs/')}"])
            self.no_secret_anywhere(cluster, name)

    def no_secret_anywhere(self, cluster, name):
        secrets = {path.read_text().strip() for path in self.folder.glob("*.token")}
        texts = [path.read_text(errors="replace") for path in cluster.root.glob("*.log")]
        texts += [self.audit.read_text(), cluster.ctl("describe", name).stdout, cluster.ctl("logs", name).stdout,
                  cluster.ctl("get", name, "-o", "json").stdout, self.access.read_text()]
        for pid in (process.pid for process in cluster.processes.values()):
            texts.append(pathlib.Path(f"/proc/{pid}/cmdline").read_text())
            texts.append(pathlib.Path(f"/proc/{pid}/environ").read_text(errors="replace"))
        for text in texts:
            for secret in secrets:
                self.assertNotIn(secret, text)

    def test_a_worker_without_its_token_gets_nothing(self):
        with token_of(self.token("admin")):
            cluster = Cluster(workers=0, coordinator_flags=[f"--access={self.access}"])
            cluster.start_workers = lambda: None
            with cluster:
                for key, flags in (("none", []), ("person", [f"--token-file={self.token('alice')}"])):
                    cluster.worker_flags = flags
                    cluster._spawn_worker(key, "cpu", f"--name={key}")
                for key, text in (("none", "UNAUTHENTICATED"), ("person", "alice may not connect as a worker")):
                    log = cluster.root / f"{key}.log"
                    wait_for(lambda log=log, text=text: text in log.read_text(), f"{key} to be refused")
                self.assertEqual(cluster.json("workers"), [])

    def alone(self):
        """A coordinator without workers."""
        cluster = self.cluster()
        cluster.start_workers = lambda: None
        return cluster

    def test_a_changed_access_file_counts_and_a_broken_one_does_not(self):
        with token_of(self.token("admin")), self.alone() as cluster:
            self.create_token("carol", "viewer")
            with token_of(self.token("carol")):
                wait_for(lambda: cluster.ctl("list", check=False).returncode == 0, "carol to be let in")
                good = self.access.read_text()
                self.access.write_text(good.replace("viewer", "veiwer"))
                cluster.kill("coordinator", signal.SIGHUP, wait=False)
                log = cluster.root / "coordinator.log"
                wait_for(lambda: "did you mean viewer?" in log.read_text(), "the mistake to be told")
                self.assertEqual(cluster.ctl("list", check=False).returncode, 0)
                # Without her.
                entry = good.index('  - name: "carol"')
                self.access.write_text(good[:entry])
                wait_for(lambda: cluster.ctl("list", check=False).returncode == 5, "carol to be shut out")
            done = subprocess.run([BIN / "fsdpctl", "admin", "check-access", self.access], text=True,
                                  capture_output=True, check=True)
            self.assertIn("submitter in default", done.stdout)

    def test_a_full_disk_under_the_audit_log(self):
        with small_disk(256) as disk:
            self.audit = disk.path / "audit.jsonl"
            with token_of(self.token("admin")), self.alone() as cluster:
                first = cluster.submit(tiny_job(name="first"))
                # Calls that go on until the room is used up that was set aside ahead.
                disk.fill()
                refused = None
                for index in range(400):
                    refused = cluster.ctl("submit", "-f", "-", stdin=json.dumps(tiny_job(name=f"job{index}")),
                                          check=False)
                    if refused.returncode != 0:
                        break
                self.assertEqual(refused.returncode, 4, refused.stderr)
                for text in ("[AUDIT_FAILED]", "No space left on device", "make room on that disk"):
                    self.assertIn(text, refused.stderr)
                names = [entry["name"] for entry in cluster.json("list")]
                self.assertIn(f"jobs/{first.removeprefix('jobs/')}", names)
                self.assertFalse([name for name in names if f"job{index}-" in name], "nothing is half there")
                disk.free()
                last = cluster.submit(tiny_job(name="last"))
                on_record = {line.get("resource") for line in self.lines() if line["code"] == "OK"}
                self.assertEqual(on_record, {*names, f"jobs/{last.removeprefix('jobs/')}"})

    def test_the_log_is_rotated(self):
        with token_of(self.token("admin")), self.alone() as cluster:
            cluster.submit(tiny_job(name="before"))
            self.audit.rename(self.folder / "audit.1")
            cluster.kill("coordinator", signal.SIGHUP, wait=False)
            wait_for(self.audit.exists, "a new file")
            cluster.submit(tiny_job(name="after"))
            self.assertEqual(len((self.folder / "audit.1").read_text().splitlines()), 1)
            self.assertEqual([line["method"] for line in self.lines()], ["JobService.CreateJob"])

    def test_paths_lie_where_they_may(self):
        data = self.folder / "data"
        data.mkdir()
        (self.folder / "secret.bin").write_bytes(b"\1\0" * 5000)
        (data / "good.bin").write_bytes(b"\1\0" * 5000)
        (data / "link.bin").symlink_to(self.folder / "secret.bin")

        def job(path):
            return tiny_job(steps=2, data={"source": "tokens", "path": str(path)}, ranks=1)

        with token_of(self.token("alice")), self.cluster(coordinator_flags=[f"--allow-path={data}"],
                                                         worker_flags=[f"--allow-path={data}"]) as cluster:
            for path in (self.folder / "secret.bin", f"{data}/../secret.bin"):
                self.refused(cluster, "must be an absolute path", "submit", "-f", "-", code=3,
                             stdin=json.dumps(job(path)))
            # Only the worker's host can tell that this one leads out.
            name = cluster.submit(job(data / "link.bin"))
            cluster.wait_state(name, "FAILED")
            cause = cluster.job(name)["rootCause"]["message"]
            self.assertIn("spec.data.path", cause)
            self.assertIn("copy it there instead of linking it", cause)
            cluster.wait_state(cluster.submit(job(data / "good.bin")), "SUCCEEDED")

    def test_there_is_no_reflection(self):
        with token_of(self.token("admin")), self.alone() as cluster, \
                grpc.insecure_channel(cluster.server) as channel:
            call = channel.stream_stream("/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo",
                                         request_serializer=bytes, response_deserializer=bytes)
            with self.assertRaises(grpc.RpcError) as caught:
                list(call(iter([b""]), timeout=30))
            self.assertEqual(caught.exception.code(), grpc.StatusCode.UNIMPLEMENTED)

    def start(self, *flags):
        return subprocess.run([BIN / "fsdp-coordinator", f"--state-dir={self.folder / 'state'}",
                               "--listen=127.0.0.1:0", "--metrics-listen=", *flags], text=True, capture_output=True,
                              timeout=60, check=False)

    def test_hardened_starts_with_nothing_missing(self):
        done = self.start("--hardened")
        self.assertEqual(done.returncode, 2)
        for flag in ("--tls-certificate", "--access", "--audit-log", "--allow-path"):
            self.assertIn(flag, done.stderr)

    def ca(self, *arguments):
        subprocess.run([BIN / "fsdpctl", "ca", *arguments, "--dir", self.folder / "ca"], check=True, capture_output=True)

    def test_hardened_serves_with_all_of_it(self):
        """Certificates instead of tokens: a person's has an entry, a worker's needs none."""
        self.ca("init")
        self.ca("issue", "server", "coordinator", "--host", "127.0.0.1")
        for kind, name in (("user", "dora"), ("user", "eve"), ("worker", "node1-*")):
            self.ca("issue", kind, name)
        self.access.write_text(self.access.read_text() + "  - name: dora\n    certificate: fsdp://user/dora\n"
                               "    grants: [{role: submitter}]\n")

        def client(name):
            files = self.folder / "ca"
            return [f"--tls-ca={files / 'ca.crt'}", f"--tls-certificate={files / (name + '.crt')}",
                    f"--tls-key={files / (name + '.key')}"]

        files = self.folder / "ca"
        server = [f"--tls-certificate={files / 'coordinator.crt'}", f"--tls-key={files / 'coordinator.key'}",
                  f"--tls-client-ca={files / 'ca.crt'}"]
        with Cluster(workers=2, client_flags=client("dora"), worker_flags=[*client("node1-any"), "--name=node1"],
                     coordinator_flags=["--hardened", *server, f"--access={self.access}", f"--audit-log={self.audit}",
                                        f"--allow-path={self.folder}"]) as cluster:
            name = cluster.submit(tiny_job(ranks=1, steps=3))
            cluster.wait_state(name, "SUCCEEDED")
            self.assertEqual(cluster.job(name)["owner"], "dora")
            cluster.client_flags = client("eve")
            self.refused(cluster, "[CERTIFICATE_UNKNOWN]", "list")
            cluster.client_flags = client("node1-any")
            self.refused(cluster, "fsdp://worker/node1-* may not list jobs", "list")
            # A token says who calls where there is a certificate too.
            with token_of(self.token("bob")):
                self.assertEqual(cluster.ctl("list").returncode, 0)

    def test_what_is_wrong_at_the_start_is_told(self):
        done = self.start(f"--access={self.folder / 'none'}")
        self.assertNotEqual(done.returncode, 0)
        self.assertIn("cannot read the access file", done.stderr)
        self.access.write_text("identities: {}\n")
        done = self.start(f"--access={self.access}")
        self.assertEqual(done.returncode, 2)
        self.assertIn("access.yaml:1:13: identities: must be a list", done.stderr)
        done = self.start("--allow-path=data")
        self.assertEqual(done.returncode, 2)
        self.assertIn("--allow-path=data: want an absolute folder", done.stderr)

    def test_a_token_does_not_go_far_in_the_clear(self):
        for command in ([BIN / "fsdpctl", "list", "--server", "192.0.2.1:7070", "--token-file", self.token("alice")],
                        [BIN / "fsdp-worker", "--coordinator=192.0.2.1:7070", f"--state-dir={self.folder}",
                         "--devices=cpu", f"--token-file={self.token('hosts')}"]):
            done = subprocess.run(command, text=True, capture_output=True, timeout=60, check=False)
            self.assertEqual(done.returncode, 2, done.stderr)
            self.assertIn("would travel in the clear", done.stderr)


if __name__ == "__main__":
    unittest.main(verbosity=2)
