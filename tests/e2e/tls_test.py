"""TLS and mTLS with real daemons: certificates of `fsdpctl ca`, a job end to end, what is refused and how it is
explained, and certificates that are replaced while everything runs."""

import os
import pathlib
import shutil
import socket
import ssl
import subprocess
import sys
import tempfile
import unittest
import urllib.request

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "support"))
from cluster import BIN, Cluster, tiny_job, wait_for  # noqa: E402

UNREACHABLE, AUTH, USAGE = 4, 5, 2


def ca(*arguments, check=True):
    done = subprocess.run([str(BIN / "fsdpctl"), "ca", *map(str, arguments)], text=True, capture_output=True, check=False)
    if check and done.returncode != 0:
        raise AssertionError(f"fsdpctl ca {arguments}: {done.returncode}\n{done.stdout}\n{done.stderr}")
    return done


class Pki:
    """Two authorities, and certificates of both."""

    def __init__(self, root):
        self.root = pathlib.Path(root)
        for name in ("ca", "foreign"):
            ca("init", "--dir", self.root / name, "--name", name)
        hosts = ("--host", "127.0.0.1", "--host", "localhost")
        ca("issue", "server", "coordinator", *hosts, "--dir", self.root / "ca")
        ca("issue", "server", "metrics", *hosts, "--dir", self.root / "ca")
        ca("issue", "user", "alice", "--dir", self.root / "ca")
        ca("issue", "user", "eve", "--dir", self.root / "foreign")
        ca("issue", "worker", "node1-*", "--dir", self.root / "ca")
        ca("issue", "worker", "w0", "--dir", self.root / "ca")
        self.authority = self.root / "ca" / "ca.crt"

    def path(self, name, authority="ca"):
        return self.root / authority / name

    def client(self, name=None, authority="ca", trust=None):
        """Flags of fsdpctl and fsdp-worker."""
        flags = [f"--tls-ca={trust or self.authority}"]
        if name is not None:
            flags += [f"--tls-certificate={self.path(name + '.crt', authority)}",
                      f"--tls-key={self.path(name + '.key', authority)}"]
        return flags

    def server(self, mutual=True):
        flags = [f"--tls-certificate={self.path('coordinator.crt')}", f"--tls-key={self.path('coordinator.key')}",
                 "--tls-reload-period=100ms"]
        return flags + ([f"--tls-client-ca={self.authority}"] if mutual else [])

    def metrics(self, mutual=False):
        flags = [f"--metrics-tls-certificate={self.path('metrics.crt')}",
                 f"--metrics-tls-key={self.path('metrics.key')}"]
        return flags + ([f"--metrics-tls-client-ca={self.authority}"] if mutual else [])

    def context(self, name=None):
        context = ssl.create_default_context(cafile=self.authority)
        if name is not None:
            context.load_cert_chain(self.path(name + ".crt"), self.path(name + ".key"))
        return context


def shown_serial(port):
    """Of the certificate that a new connection is shown."""
    context = ssl.create_default_context()
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    context.set_alpn_protocols(["h2"])
    with socket.create_connection(("127.0.0.1", port), timeout=20) as raw, context.wrap_socket(raw) as tls:
        pem = ssl.DER_cert_to_PEM_cert(tls.getpeercert(binary_form=True))
    return subprocess.run(["openssl", "x509", "-noout", "-serial"], input=pem, text=True, check=True,
                          capture_output=True).stdout.strip()


class TlsTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory(prefix="fsdp-tls-")
        cls.pki = Pki(cls.folder.name)

    @classmethod
    def tearDownClass(cls):
        cls.folder.cleanup()

    def scrape(self, port, context):
        with urllib.request.urlopen(f"https://127.0.0.1:{port}/metrics", context=context, timeout=30) as answer:
            return answer.read().decode()

    def test_a_job_runs_end_to_end_under_mutual_tls(self):
        pki = self.pki
        with Cluster(workers=2, coordinator_flags=[*pki.server(), "--require-client-certificate", *pki.metrics(mutual=True)],
                     worker_flags=[*pki.client("node1-any"), "--name=node1", *pki.metrics()],
                     client_flags=pki.client("alice")) as cluster:
            name = cluster.submit(tiny_job(ranks=2, steps=5))
            cluster.wait_state(name, "SUCCEEDED")
            self.assertEqual(len(cluster.losses(name)), 5)
            text = self.scrape(cluster.ports["metrics"], pki.context("alice"))
            self.assertIn('fsdp_jobs{state="succeeded"} 1', text)
            for kind in ("server", "server_ca", "metrics", "metrics_ca"):
                self.assertIn(f'fsdp_tls_certificate_expiry_timestamp_seconds{{kind="{kind}"}}', text)
            self.assertIn('fsdp_tls_files_unusable{kind="server"} 0', text)
            with self.assertRaises((ssl.SSLError, OSError)):
                self.scrape(cluster.ports["metrics"], pki.context())
            port = cluster._port_file("workers")["metrics"]
            worker = self.scrape(port, pki.context())
            self.assertIn('fsdp_tls_certificate_expiry_timestamp_seconds{kind="worker"}', worker)
            # Nothing behind the front answers a neighbour on this machine.
            self.check_no_plain_metrics(cluster.processes["coordinator"].pid)

    def test_a_job_runs_with_a_certificate_of_the_coordinator_alone(self):
        pki = self.pki
        with Cluster(workers=1, coordinator_flags=pki.server(mutual=False), worker_flags=pki.client(),
                     client_flags=pki.client()) as cluster:
            name = cluster.submit(tiny_job(ranks=1, steps=3))
            cluster.wait_state(name, "SUCCEEDED")
            self.assertEqual(len(cluster.losses(name)), 3)

    def check_no_plain_metrics(self, pid):
        listening = subprocess.run(["ss", "-Hltnp"], text=True, capture_output=True, check=False).stdout
        ports = [line.split()[3].rsplit(":", 1)[1] for line in listening.splitlines() if f"pid={pid}," in line]
        for port in ports:
            try:
                with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10) as answer:
                    self.fail(f"port {port} answers in the clear: {answer.status}")
            except OSError as error:
                if getattr(error, "code", None) is not None:
                    self.assertEqual(error.code, 403)

    def test_who_does_not_get_in_is_told_why(self):
        pki = self.pki
        flags = [*pki.server(), "--require-client-certificate"]
        with Cluster(workers=0, coordinator_flags=flags, client_flags=pki.client("alice")) as cluster:
            cases = [
                ("no TLS", [], AUTH, "speaks TLS: give --tls-ca"),
                ("no certificate", pki.client(), AUTH, "wants a client certificate"),
                ("certificate of another authority", pki.client("eve", "foreign"), AUTH,
                 "refuses the certificate of fsdp://user/eve"),
                ("server of an unknown authority", pki.client("alice", trust=pki.path("ca.crt", "foreign")), AUTH,
                 "signed by CN = ca, which is not in --tls-ca"),
                ("wrong name", [*pki.client("alice"), "--tls-server-name=other.example"], AUTH,
                 "not for other.example"),
                ("key alone", [f"--tls-key={pki.path('alice.key')}"], USAGE, "add --tls-certificate"),
                ("missing file", ["--tls-ca=/nowhere/ca.crt"], 102, "/nowhere/ca.crt"),
                ("key of another", [f"--tls-ca={pki.authority}", f"--tls-certificate={pki.path('alice.crt')}",
                                    f"--tls-key={pki.path('w0.key')}"], USAGE, "is not the key of"),
            ]
            for what, client, code, text in cases:
                with self.subTest(what):
                    cluster.client_flags = client
                    done = cluster.ctl("list", check=False)
                    self.assertIn(text, done.stderr)
                    self.assertEqual(done.returncode, code, done.stderr)
            # A server's certificate is none of a client.
            cluster.client_flags = pki.client("coordinator")
            done = cluster.ctl("list", check=False)
            self.assertEqual(done.returncode, AUTH, done.stderr)

    def test_an_ended_certificate_is_told(self):
        pki = self.pki
        old = pathlib.Path(self.folder.name) / "old"
        shutil.copytree(pki.root / "ca", old)
        # Made with the system's tool: ours makes none that have ended.
        for name, extensions in (("ended", "subjectAltName=IP:127.0.0.1"), ("past", "subjectAltName=URI:fsdp://user/past")):
            subprocess.run(["openssl", "req", "-new", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes",
                            "-keyout", old / f"{name}.key", "-out", old / f"{name}.csr", "-subj", f"/CN={name}",
                            "-addext", extensions], check=True, capture_output=True)
            (old / "index.txt").write_text("")
            (old / "serial").write_text("1000\n" if name == "ended" else "1001\n")
            (old / "openssl.cnf").write_text(
                "[ca]\ndefault_ca=c\n[c]\ndatabase=%s\nserial=%s\nnew_certs_dir=%s\nprivate_key=%s\ncertificate=%s\n"
                "default_md=sha256\npolicy=p\ncopy_extensions=copy\n[p]\ncommonName=supplied\n"
                % (old / "index.txt", old / "serial", old, old / "ca.key", old / "ca.crt"))
            subprocess.run(["openssl", "ca", "-batch", "-notext", "-config", old / "openssl.cnf", "-in", old / f"{name}.csr",
                            "-out", old / f"{name}.crt", "-startdate", "20200101000000Z", "-enddate", "20200201000000Z"],
                           check=True, capture_output=True)
            os.chmod(old / f"{name}.key", 0o600)
        done = subprocess.run([str(BIN / "fsdp-coordinator"), f"--state-dir={old / 'state'}", "--listen=127.0.0.1:0",
                               "--metrics-listen=", f"--tls-certificate={old / 'ended.crt'}",
                               f"--tls-key={old / 'ended.key'}"], text=True, capture_output=True, timeout=60, check=False)
        self.assertEqual(done.returncode, 2, done.stderr)
        self.assertIn("ended 2020-02-01", done.stderr)
        self.assertIn("fsdpctl ca renew", done.stderr)
        with Cluster(workers=0, coordinator_flags=pki.server(), client_flags=pki.client("alice")) as cluster:
            cluster.client_flags = [f"--tls-ca={pki.authority}", f"--tls-certificate={old / 'past.crt'}",
                                    f"--tls-key={old / 'past.key'}"]
            done = cluster.ctl("list", check=False)
            self.assertIn("ended 2020-02-01", done.stderr)
            self.assertEqual(done.returncode, USAGE, done.stderr)

    def test_certificates_are_replaced_without_a_restart(self):
        with tempfile.TemporaryDirectory(prefix="fsdp-tls-rotate-") as folder:
            pki = Pki(folder)
            certificate, key = pki.path("coordinator.crt"), pki.path("coordinator.key")
            with Cluster(workers=2, coordinator_flags=pki.server(), worker_flags=[*pki.client("node1-any"), "--name=node1"],
                         client_flags=pki.client("alice")) as cluster:
                name = cluster.submit(tiny_job(ranks=2, steps=100_000))
                cluster.wait_step(name, 1)
                port = cluster.ports["grpc"]
                first = shown_serial(port)
                incarnations = {w["name"]: w["incarnation"] for w in cluster.json("workers")}
                connects = {w["name"]: w["connectTime"] for w in cluster.json("workers")}

                # A certificate without its key: the old pair stays, and metrics say so.
                ca("issue", "server", "next", "--host", "127.0.0.1", "--dir", pki.root / "ca")
                shutil.copy(pki.path("next.crt"), certificate)
                wait_for(lambda: 'fsdp_tls_files_unusable{kind="server"} 1' in self.plain(cluster), "the metric")
                self.assertEqual(shown_serial(port), first)
                self.assertIn("is not the key of", (cluster.root / "coordinator.log").read_text())

                os.replace(pki.path("next.key"), key)
                second = wait_for(lambda: (now := shown_serial(port)) != first and now, "the new certificate")
                self.assertIn('fsdp_tls_files_unusable{kind="server"} 0', self.plain(cluster))
                ca("renew", certificate, "--dir", pki.root / "ca")
                wait_for(lambda: shown_serial(port) not in (first, second), "the renewed certificate")

                # Nobody was cut off.
                step = int(cluster.job(name)["progress"]["step"])
                cluster.wait_step(name, step + 10)
                workers = cluster.json("workers")
                self.assertEqual({w["name"]: w["incarnation"] for w in workers}, incarnations)
                self.assertEqual({w["name"]: w["connectTime"] for w in workers}, connects)
                self.assertEqual(cluster.job(name).get("attempt", 1), 1)
                cluster.ctl("cancel", name)

    def plain(self, cluster):
        with urllib.request.urlopen(cluster.metrics_url, timeout=30) as answer:
            return answer.read().decode()

    def test_a_worker_says_what_is_wrong(self):
        pki = self.pki
        with Cluster(workers=0, coordinator_flags=[*pki.server(), "--require-client-certificate"],
                     client_flags=pki.client("alice")) as cluster:
            cluster.worker_flags = []
            cluster.start_worker(0)
            log = cluster.root / "worker0.log"
            wait_for(lambda: "speaks TLS: give --tls-ca" in log.read_text(), "the worker's reason")


    def test_a_worker_is_who_its_certificate_names(self):
        pki = self.pki
        with Cluster(workers=0, separate=True, coordinator_flags=pki.server(),
                     client_flags=pki.client("alice")) as cluster:
            # With another worker's certificate, and with a person's.
            for index, certificate in ((1, "w0"), (2, "alice")):
                cluster.worker_flags = pki.client(certificate)
                cluster.start_worker(index)
                log = cluster.root / f"worker{index}.log"
                wait_for(lambda log=log, index=index: f"not of worker w{index}" in log.read_text(), "the refusal")
            self.assertEqual(cluster.json("workers"), [])
            cluster.worker_flags = pki.client("w0")
            cluster.start_worker(0)
            cluster.wait_workers(1)
            self.assertEqual([w["name"] for w in cluster.json("workers")], ["workers/w0"])
            self.assertIn("refused: PERMISSION_DENIED", (cluster.root / "coordinator.log").read_text())


if __name__ == "__main__":
    unittest.main()
