"""The status page over a real coordinator, without a browser: what it answers, and what it does not let in."""

import http.client
import json
import os
import pathlib
import shutil
import socket
import ssl
import subprocess
import sys
import tempfile
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "support"))
from cluster import BIN, Cluster, tiny_job, wait_for  # noqa: E402

HOSTILE = "<script>alert(1)</script>"


class WebTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.cluster = Cluster(workers=2, coordinator_flags=("--web-listen=127.0.0.1:0",)).__enter__()
        cls.port = cls.cluster.ports["web"]

    @classmethod
    def tearDownClass(cls):
        cls.cluster.__exit__(None, None, None)

    def ask(self, path, method="GET", headers=None):
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        try:
            connection.request(method, path, headers=headers or {})
            answer = connection.getresponse()
            return answer.status, dict(answer.getheaders()), answer.read().decode()
        finally:
            connection.close()

    def test_a_job_from_its_queue_to_its_end(self):
        name = self.cluster.submit(tiny_job("seen", steps=30))
        self.assertIn(f'href="/jobs/{name}"', self.ask("/")[2])
        self.cluster.wait_state(name, "SUCCEEDED")
        body = wait_for(lambda: (lambda page: page if "SUCCEEDED" in page else None)(self.ask(f"/jobs/{name}")[2]),
                        "the page to show the end")
        self.assertIn("at step 30, lowest", body)
        self.assertIn("<polyline", body)
        for text in ("matmul.mlp", "compute", "EPOCH_STARTED", "finished after step 30"):
            self.assertIn(text, body)
        # The trainers leave a moment after the job's end.
        wait_for(lambda: "2 ready" in self.ask("/")[2], "the page to show the workers as ready")

    def test_texts_of_others_stay_texts(self):
        name = self.cluster.submit(tiny_job("hostile", ranks=2, steps=10_000_000))
        self.cluster.ctl("cancel", name, "--reason", HOSTILE)
        body = wait_for(lambda: (lambda page: page if "alert(1)" in page else None)(self.ask(f"/jobs/{name}")[2]),
                        "the page to show the reason")
        self.assertNotIn(HOSTILE, body)
        self.assertIn("&lt;script&gt;alert(1)", body)

    def test_every_answer_has_the_headers_that_keep_it_safe(self):
        for path, method, expected in (("/", "GET", 200), ("/", "HEAD", 200), ("/page.js", "GET", 200),
                                       ("/jobs/none", "GET", 404), ("/%2e%2e/etc/passwd", "GET", 404),
                                       ("/", "POST", 405), ("/", "DELETE", 405), ("/jobs/x", "PUT", 405)):
            with self.subTest(path=path, method=method):
                status, headers, body = self.ask(path, method)
                self.assertEqual(status, expected)
                self.assertEqual(headers["Cache-Control"], "no-store")
                self.assertEqual(headers["X-Content-Type-Options"], "nosniff")
                self.assertIn("frame-ancestors 'none'", headers["Content-Security-Policy"])
                self.assertNotIn("unsafe", headers["Content-Security-Policy"])
                self.assertEqual(body == "", method == "HEAD")

    def test_a_name_that_is_not_this_machine_s_reads_nothing(self):
        status, _, body = self.ask("/", headers={"Host": f"evil.example:{self.port}"})
        self.assertEqual(status, 421)
        self.assertNotIn("Workers</h2>", body)

    def test_oversized_requests_are_refused(self):
        status, _, _ = self.ask("/", headers={"X-Long": "a" * 20_000})
        self.assertGreaterEqual(status, 400)
        self.assertEqual(self.ask("/")[0], 200)

    def test_slow_clients_hold_the_page_up_for_seconds_and_the_service_not_at_all(self):
        slow = [socket.create_connection(("127.0.0.1", self.port)) for _ in range(40)]
        try:
            for connection in slow:
                connection.sendall(b"GET / HTTP/1.1\r\nHost:")
            self.assertEqual(len(self.cluster.json("workers")), 2)
            # They are cut off, and the page is there again.
            wait_for(lambda: self.page_answers(), "the page to answer again")
        finally:
            for connection in slow:
                connection.close()

    def page_answers(self):
        try:
            return self.ask("/")[0] == 200
        except OSError:
            return False

    def test_it_binds_to_loopback_unless_told_otherwise(self):
        with tempfile.TemporaryDirectory() as folder:
            done = subprocess.run([str(BIN / "fsdp-coordinator"), f"--state-dir={folder}", "--listen=127.0.0.1:0",
                                   "--metrics-listen=", "--web-listen=0.0.0.0:0"], text=True, capture_output=True,
                                  check=False, timeout=60)
        self.assertEqual(done.returncode, 2)
        self.assertIn("--web-listen=0.0.0.0:0 is reachable from other machines", done.stderr)

    def test_it_speaks_ipv6(self):
        with Cluster(workers=0, separate=True, coordinator_flags=("--web-listen=[::1]:0",)) as cluster:
            connection = http.client.HTTPConnection("::1", cluster.ports["web"], timeout=60)
            try:
                connection.request("GET", "/")
                answer = connection.getresponse()
                self.assertEqual((answer.status, "Workers</h2>" in answer.read().decode()), (200, True))
            finally:
                connection.close()

    def test_a_taken_port_is_said(self):
        with tempfile.TemporaryDirectory() as folder:
            done = subprocess.run([str(BIN / "fsdp-coordinator"), f"--state-dir={folder}", "--listen=127.0.0.1:0",
                                   "--metrics-listen=", f"--web-listen=127.0.0.1:{self.port}"], text=True,
                                  capture_output=True, check=False, timeout=60)
        self.assertNotEqual(done.returncode, 0)
        self.assertIn(f"127.0.0.1:{self.port}", done.stderr)
        self.assertIn("--web-listen", done.stderr)


class ClosedWebTest(unittest.TestCase):
    """With an access file: the page shows what a token's owner may see, and to nobody else anything."""

    def setUp(self):
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="fsdp-web-"))
        self.addCleanup(shutil.rmtree, self.folder, ignore_errors=True)
        self.access = self.folder / "access.yaml"
        for name, role, *more in (("admin", "admin"), ("night", "viewer", "--queue", "night"), ("host", "worker")):
            subprocess.run([BIN / "fsdpctl", "admin", "create-token", "--name", name, "--role", role, "--access",
                            self.access, "--to", self.folder / name, *more], check=True, capture_output=True)

    def token(self, name):
        return (self.folder / name).read_text().strip()

    def ask(self, path, method="GET", body=None, **headers):
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        try:
            connection.request(method, path, body=body, headers=headers)
            answer = connection.getresponse()
            return answer.status, dict(answer.getheaders()), answer.read().decode()
        finally:
            connection.close()

    def test_a_token_opens_its_queues_and_nothing_opens_without(self):
        os.environ["FSDPCTL_TOKEN_FILE"] = str(self.folder / "admin")
        self.addCleanup(os.environ.pop, "FSDPCTL_TOKEN_FILE", None)
        with Cluster(workers=1, coordinator_flags=("--web-listen=127.0.0.1:0", f"--access={self.access}"),
                     worker_flags=(f"--token-file={self.folder / 'host'}",)) as cluster:
            self.port = cluster.ports["web"]
            seen = cluster.submit(tiny_job("seen", ranks=4, queue="night"))
            hidden = cluster.submit(tiny_job("hidden", ranks=4, queue="day"))
            for path in ("/", f"/jobs/{seen}", "/jobs/none"):
                status, _, body = self.ask(path)
                self.assertEqual(status, 401)
                self.assertNotIn(seen, body.replace("/jobs/", ""))
            self.assertEqual(self.ask("/", Authorization="Bearer nonsense")[0], 401)
            # A worker's token is for a worker.
            self.assertEqual(self.ask("/", Authorization=f"Bearer {self.token('host')}")[0], 403)
            status, headers, _ = self.ask("/login", "POST", f"token={self.token('night')}")
            self.assertEqual((status, headers["Location"]), (303, "/"))
            self.assertIn("HttpOnly; SameSite=Strict", headers["Set-Cookie"])
            cookie = headers["Set-Cookie"].split(";")[0]
            status, _, body = self.ask("/", Cookie=cookie)
            self.assertEqual(status, 200)
            self.assertIn(seen, body)
            self.assertNotIn(hidden, body)
            self.assertEqual(self.ask(f"/jobs/{hidden}", Cookie=cookie)[0], 404)
            self.assertIn(hidden, self.ask("/", Authorization=f"Bearer {self.token('admin')}")[2])
            log = (cluster.root / "coordinator.log").read_text()
            for name in ("admin", "night", "host"):
                self.assertNotIn(self.token(name), log)


class EncryptedWebTest(unittest.TestCase):
    """With the gRPC port's certificate."""

    def test_the_page_speaks_tls_and_nothing_else(self):
        with tempfile.TemporaryDirectory() as name:
            folder = pathlib.Path(name)
            for words in (("init", "--dir", folder / "ca", "--name", "ca"),
                          ("issue", "server", "coordinator", "--host", "localhost", "--dir", folder / "ca")):
                subprocess.run([BIN / "fsdpctl", "ca", *words], check=True, capture_output=True)
            subprocess.run([BIN / "fsdpctl", "admin", "create-token", "--name", "v", "--role", "viewer", "--access",
                            folder / "access.yaml", "--to", folder / "token"], check=True, capture_output=True)
            coordinator = subprocess.Popen(
                [str(BIN / "fsdp-coordinator"), f"--state-dir={folder / 'state'}", "--listen=127.0.0.1:0",
                 "--metrics-listen=", "--web-listen=0.0.0.0:0", f"--port-file={folder / 'ports'}",
                 f"--access={folder / 'access.yaml'}", f"--tls-certificate={folder / 'ca' / 'coordinator.crt'}",
                 f"--tls-key={folder / 'ca' / 'coordinator.key'}", f"--tls-client-ca={folder / 'ca' / 'ca.crt'}"],
                stderr=subprocess.DEVNULL)
            try:
                wait_for((folder / "ports").exists, "the coordinator to serve")
                self.look(json.loads((folder / "ports").read_text())["web"], folder)
            finally:
                coordinator.terminate()
                coordinator.wait(timeout=60)

    def look(self, port, folder):
        context = ssl.create_default_context(cafile=folder / "ca" / "ca.crt")

        def ask(path, method="GET", body=None, **headers):
            connection = http.client.HTTPSConnection("localhost", port, timeout=60, context=context)
            connection.request(method, path, body=body, headers=headers)
            answer = connection.getresponse()
            return answer.status, dict(answer.getheaders()), answer.read().decode()

        self.assertEqual(ask("/")[0], 401)
        status, headers, _ = ask("/login", "POST", f"token={(folder / 'token').read_text().strip()}")
        self.assertEqual(status, 303)
        self.assertTrue(headers["Set-Cookie"].startswith("__Host-fsdp_token="), headers)
        self.assertTrue(headers["Set-Cookie"].endswith("; Secure"), headers)
        status, _, body = ask("/", Cookie=headers["Set-Cookie"].split(";")[0])
        self.assertEqual(status, 200)
        self.assertIn("No worker has connected.", body)
        with socket.create_connection(("localhost", port), timeout=60) as clear:
            clear.sendall(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")
            self.assertNotIn(b"HTTP/1.1", clear.recv(4096))


if __name__ == "__main__":
    unittest.main()
