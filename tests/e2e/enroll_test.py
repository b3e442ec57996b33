"""Hosts that enrol by a join token: once, for the ids that it is for, and by no other coordinator; certificates that
renew themselves; and nobody without one gets anything."""

import os
import pathlib
import stat
import subprocess
import sys
import tempfile
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "support"))
from cluster import BIN, Cluster, tiny_job, wait_for  # noqa: E402

AUTH = 5


def ca(*arguments):
    subprocess.run([str(BIN / "fsdpctl"), "ca", *map(str, arguments)], check=True, capture_output=True, text=True)


class EnrollTest(unittest.TestCase):
    def setUp(self):
        holder = tempfile.TemporaryDirectory(prefix="fsdp-enroll-")
        self.addCleanup(holder.cleanup)
        self.root = pathlib.Path(holder.name)
        self.ca = self.root / "ca"
        ca("init", "--dir", self.ca)
        ca("issue", "server", "coordinator", "--host", "127.0.0.1", "--dir", self.ca)
        ca("issue", "user", "alice", "--dir", self.ca)
        self.client = [f"--tls-ca={self.ca}/ca.crt", f"--tls-certificate={self.ca}/alice.crt",
                       f"--tls-key={self.ca}/alice.key"]

    def cluster(self, *more):
        return Cluster(workers=0, separate=True, client_flags=self.client, coordinator_flags=[
            f"--tls-certificate={self.ca}/coordinator.crt", f"--tls-key={self.ca}/coordinator.key",
            f"--enroll-ca={self.ca}", *more])

    def token(self, cluster, *arguments):
        path = self.root / f"token{len(list(self.root.glob('token*')))}"
        path.write_text(cluster.ctl("ca", "join-token", *arguments).stdout)
        return path

    def enroll(self, cluster, token, name, folder=None, devices="cpu", check=True):
        folder = folder or self.root / name
        done = subprocess.run([str(BIN / "fsdp-worker"), "enroll", f"--coordinator={cluster.server}",
                               f"--join-token-file={token}", f"--identity={folder}", f"--name={name}",
                               f"--devices={devices}"], text=True, capture_output=True, timeout=120, check=False)
        if check and done.returncode != 0:
            raise AssertionError(f"enroll {name}: {done.returncode}\n{done.stdout}{done.stderr}")
        return done if not check else folder

    def test_an_enrolled_host_trains(self):
        with self.cluster() as cluster:
            folder = self.enroll(cluster, self.token(cluster), "node1", devices="cpu:2")
            self.assertEqual(stat.S_IMODE(os.stat(folder / "worker.key").st_mode), 0o600)
            shown = subprocess.run([str(BIN / "fsdpctl"), "ca", "show", str(folder / "worker.crt")], text=True,
                                   capture_output=True, check=True).stdout
            self.assertIn("fsdp://worker/node1-cpu-0, fsdp://worker/node1-cpu-1", shown)
            cluster.worker_flags = [f"--identity={folder}", "--name=node1"]
            cluster._spawn_worker("workers", "cpu:2")
            cluster.wait_workers(2)
            name = cluster.submit(tiny_job(ranks=2, steps=5))
            cluster.wait_state(name, "SUCCEEDED")

    def test_a_token_lets_in_once_and_never_again(self):
        with self.cluster() as cluster:
            token = self.token(cluster)
            self.enroll(cluster, token, "a")
            replay = self.enroll(cluster, token, "b", check=False)
            self.assertNotEqual(replay.returncode, 0)
            self.assertIn("was used", replay.stderr)
            self.assertFalse((self.root / "b").exists())
            cluster.kill("coordinator")
            cluster.start_coordinator()
            replay = self.enroll(cluster, token, "b", check=False)
            self.assertIn("was used", replay.stderr)
            secret = token.read_text().split(".")[2]
            for file in (cluster.root / "coordinator").glob("jobs.db*"):
                self.assertNotIn(secret.encode(), file.read_bytes())
            self.assertNotIn(secret, (cluster.root / "coordinator.log").read_text() + replay.stderr)

    def test_a_token_is_for_whom_it_was_made(self):
        with self.cluster() as cluster:
            scoped = self.token(cluster, "--worker", "a")
            self.assertIn("not for worker b", self.enroll(cluster, scoped, "b", check=False).stderr)
            self.enroll(cluster, scoped, "a")
            taken = self.enroll(cluster, self.token(cluster), "a", folder=self.root / "again", check=False)
            self.assertIn("join-token --worker a", taken.stderr)
            self.enroll(cluster, self.token(cluster, "--worker", "a"), "a", folder=self.root / "again")
            # The folder that is there is not overwritten.
            twice = self.enroll(cluster, self.token(cluster), "c", folder=self.root / "again", check=False)
            self.assertIn("this host is enrolled already", twice.stderr)

    def test_tokens_are_listed_and_revoked(self):
        with self.cluster() as cluster:
            lost, used = self.token(cluster, "--worker", "lost"), self.token(cluster)
            self.enroll(cluster, used, "a")
            tokens = {item["name"]: item for item in cluster.json("ca", "join-token", "list")}
            names = {path: "joinTokens/" + path.read_text().split(".")[1] for path in (lost, used)}
            self.assertEqual(set(tokens), set(names.values()))
            waiting, gone = tokens[names[lost]], tokens[names[used]]
            self.assertEqual((waiting["state"], waiting["worker"], waiting["creator"]),
                             ("WAITING", "lost", "fsdp://user/alice"))
            self.assertEqual((gone["state"], gone["enrolledWorkers"]), ("USED", ["a"]))
            table = cluster.ctl("ca", "join-token", "list").stdout
            self.assertRegex(table, r"USED +any new +fsdp://user/alice .* ipv4:127\.0\.0\.1:\d+ +a\n")
            for path in (lost, used):
                self.assertNotIn(path.read_text().split(".")[2], table)
            identifier = lost.read_text().split(".")[1]
            self.assertIn("revoked", cluster.ctl("ca", "join-token", "revoke", identifier).stdout)
            self.assertIn("was revoked", self.enroll(cluster, lost, "lost", check=False).stderr)
            self.assertEqual(cluster.ctl("ca", "join-token", "list", "-o", "name").stdout,
                             used.read_text().split(".")[1] + "\n")
            again = cluster.ctl("ca", "join-token", "revoke", identifier, check=False)
            self.assertEqual(again.returncode, 102, again.stderr)
            late = cluster.ctl("ca", "join-token", "revoke", names[used], check=False)
            self.assertEqual(late.returncode, 2, late.stderr)
            self.assertIn("[JOIN_TOKEN_USED]", late.stderr)

    def test_a_revoked_certificate_is_good_for_nothing(self):
        access = self.root / "access.yaml"
        people = "identities:\n" + "".join(
            f"  - {{name: {name}, certificate: fsdp://user/{name}, grants: [{{role: admin}}]}}\n" for name in ("alice", "bob"))
        access.write_text(people)
        ca("issue", "user", "bob", "--dir", self.ca)
        with self.cluster(f"--access={access}") as cluster:
            folders = [self.enroll(cluster, self.token(cluster), f"w{i}") for i in range(2)]
            for i, folder in enumerate(folders):
                cluster.worker_flags = [f"--identity={folder}"]
                cluster.start_worker(i)
            cluster.wait_workers(2)
            job = cluster.submit(tiny_job(ranks=1, steps=10_000_000))
            cluster.wait_state(job, "RUNNING")
            host = next(item["name"] for item in cluster.json("workers") if item.get("job")).removeprefix("workers/")
            other = "w1" if host == "w0" else "w0"
            shown = subprocess.run([str(BIN / "fsdpctl"), "ca", "show", str(self.ca / "bob.crt")], text=True,
                                   capture_output=True, check=True).stdout
            serial = next(line.split()[-1] for line in shown.splitlines() if "serial:" in line)
            access.write_text(f"revoked:\n  - certificate: fsdp://worker/{host}\n  - serial: \"{serial}\"\n{people}")
            # Its stream ends, it does not come back, and the job goes on elsewhere.
            wait_for(lambda: any(item["name"] == f"workers/{other}" and item.get("job") for item in cluster.json("workers")),
                     "the job to move")
            log = cluster.root / f"worker{host.removeprefix('w')}.log"
            wait_for(lambda: "CERTIFICATE_REVOKED" in log.read_text() or "was revoked" in log.read_text(), "the refusal")
            # A person's, by its number.
            cluster.client_flags = [f"--tls-ca={self.ca}/ca.crt", f"--tls-certificate={self.ca}/bob.crt",
                                    f"--tls-key={self.ca}/bob.key"]
            done = cluster.ctl("list", check=False)
            self.assertEqual(done.returncode, AUTH, done.stderr)
            self.assertIn("[CERTIFICATE_REVOKED]", done.stderr)
            # One that is made anew is another.
            ca("issue", "user", "bob", "--dir", self.ca, "--out", self.root)
            cluster.client_flags = [f"--tls-ca={self.ca}/ca.crt", f"--tls-certificate={self.root}/bob.crt",
                                    f"--tls-key={self.root}/bob.key"]
            self.assertEqual(cluster.ctl("list").returncode, 0)
            # And one that was taken back is given back.
            access.write_text(people)
            cluster.ctl("cancel", job)
            cluster.wait_workers(2)

    def test_a_token_of_another_cluster_goes_nowhere(self):
        with self.cluster() as cluster:
            token = self.token(cluster)
            ca("init", "--dir", self.root / "evil", "--name", "evil")
            ca("issue", "server", "coordinator", "--host", "127.0.0.1", "--dir", self.root / "evil")
            self.ca = self.root / "evil"
            with self.cluster() as impostor:
                done = self.enroll(impostor, token, "a", check=False)
                self.assertNotEqual(done.returncode, 0)
                self.assertIn("does not show the authority of the join token", done.stderr)
                self.assertNotIn("EnrollWorker", (impostor.root / "coordinator.log").read_text())
            # It was sent to nobody, and is still good.
            self.enroll(cluster, token, "a")

    def test_without_a_certificate_nothing_but_enrolment_is_answered(self):
        with self.cluster() as cluster:
            self.enroll(cluster, self.token(cluster), "a")
            cluster.client_flags = self.client[:1]
            for call in (["list"], ["workers"], ["ca", "join-token"]):
                done = cluster.ctl(*call, check=False)
                self.assertEqual(done.returncode, AUTH, done.stderr)
                self.assertIn("CERTIFICATE_MISSING", done.stderr)
            # A rogue worker: none, another's certificate, one of an authority of its own.
            cluster.worker_flags = self.client[:1]
            cluster.start_worker(1)
            wait_for(lambda: "client certificate" in (cluster.root / "worker1.log").read_text(), "the refusal")
            cluster.worker_flags = [f"--identity={self.root / 'a'}"]
            cluster.start_worker(2)
            wait_for(lambda: "not of worker w2" in (cluster.root / "worker2.log").read_text(), "the refusal")
            # A worker's certificate is none of a person.
            cluster.client_flags = [*self.client[:1], f"--tls-certificate={self.root / 'a' / 'worker.crt'}",
                                    f"--tls-key={self.root / 'a' / 'worker.key'}"]
            self.assertEqual(cluster.ctl("list", check=False).returncode, AUTH)
            cluster.client_flags = self.client
            self.assertEqual(cluster.json("workers"), [])

    def test_certificates_renew_themselves(self):
        with self.cluster("--enroll-validity=20s") as cluster:
            folder = self.enroll(cluster, self.token(cluster), "w0")
            first, key = (folder / "worker.crt").read_text(), (folder / "worker.key").read_text()
            cluster.worker_flags = [f"--identity={folder}", "--tls-reload-period=200ms"]
            cluster.start_worker(0)
            cluster.wait_workers(1)
            renewed = wait_for(lambda: (now := (folder / "worker.crt").read_text()) != first and now, "a renewal")
            self.assertNotEqual(renewed, first)
            self.assertEqual((folder / "worker.key").read_text(), key)
            # With it, also after the first one's end.
            cluster.kill("coordinator")
            wait_for(lambda: subprocess.run(["openssl", "x509", "-checkend", "0", "-noout"], input=first, text=True,
                                            capture_output=True, check=False).returncode != 0, "the first one's end")
            cluster.start_coordinator()
            cluster.wait_workers(1)

    def test_what_does_not_fit_is_refused_at_the_start(self):
        for flags, text in (
                ([f"--enroll-ca={self.ca}"], "--tls-certificate"),
                ([f"--enroll-ca={self.root}/none", f"--tls-certificate={self.ca}/coordinator.crt",
                  f"--tls-key={self.ca}/coordinator.key"], "none"),
                ([f"--enroll-ca={self.ca}", f"--tls-certificate={self.ca}/coordinator.crt",
                  f"--tls-key={self.ca}/coordinator.key", f"--tls-client-ca={self.ca}/ca.crt",
                  "--require-client-certificate"], "exclude each other")):
            done = subprocess.run([str(BIN / "fsdp-coordinator"), f"--state-dir={self.root}/state", "--metrics-listen=",
                                   "--listen=127.0.0.1:0", *flags], text=True, capture_output=True, timeout=60, check=False)
            self.assertNotEqual(done.returncode, 0)
            self.assertIn(text, done.stderr)
        done = subprocess.run([str(BIN / "fsdp-worker"), "enroll", "--coordinator=127.0.0.1:1", "--devices=cpu"], text=True,
                              capture_output=True, timeout=60, check=False)
        self.assertEqual(done.returncode, 2)
        self.assertIn("--identity=: is required", done.stderr)


if __name__ == "__main__":
    unittest.main()
