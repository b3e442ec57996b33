"""A real Prometheus on loopback, configured as deploy/prometheus/prometheus.example.yaml says but for addresses and
intervals.
"""

import json
import pathlib
import shutil
import socket
import subprocess
import tempfile
import urllib.error
import urllib.parse
import urllib.request

import yaml
from cluster import SOURCE, wait_for

EXAMPLE = SOURCE / "deploy" / "prometheus" / "prometheus.example.yaml"


class QueryError(AssertionError):
    """Prometheus refused a query; the text is its own."""


class Prometheus:
    """Use as a context manager. `targets`: scrape job of the example -> [/metrics addresses]."""

    def __init__(self, targets):
        self.targets = targets
        self.root = pathlib.Path(tempfile.mkdtemp(prefix="fsdp-prometheus-"))

    def _configuration(self):
        config = yaml.safe_load(EXAMPLE.read_text())
        config["global"] = {"scrape_interval": "1s", "scrape_timeout": "1s", "evaluation_interval": "1s"}
        config["rule_files"] = [str(EXAMPLE.parent / file) for file in config["rule_files"]]
        for scrape in config["scrape_configs"]:
            addresses = [urllib.parse.urlparse(url).netloc for url in self.targets[scrape["job_name"]]]
            scrape["static_configs"] = [{"targets": addresses}]
        return config

    def __enter__(self):
        file = self.root / "prometheus.yaml"
        file.write_text(yaml.safe_dump(self._configuration()))
        with socket.create_server(("127.0.0.1", 0)) as free:
            self.port = free.getsockname()[1]
        with open(self.root / "log", "wb") as log:
            # Ends with its own folder: nothing of it outlives the test.
            self.process = subprocess.Popen(
                ["prometheus", f"--config.file={file}", f"--storage.tsdb.path={self.root / 'data'}",
                 f"--web.listen-address=127.0.0.1:{self.port}", "--log.level=warn"],
                stdout=log, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL)
        try:
            wait_for(self._serves, "Prometheus and its first scrape of every target", 60, 0.2)
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_):
        self.process.terminate()
        self.process.wait()
        shutil.rmtree(self.root, ignore_errors=True)

    def _serves(self):
        if self.process.poll() is not None:
            raise AssertionError("Prometheus ended: " + (self.root / "log").read_text())
        try:
            return len(self.query("up == 1")) == sum(map(len, self.targets.values()))
        except OSError:
            return False

    def api(self, path, **parameters):
        url = f"http://127.0.0.1:{self.port}/api/v1/{path}?" + urllib.parse.urlencode(parameters)
        try:
            return json.loads(urllib.request.urlopen(url, timeout=20).read())["data"]
        except urllib.error.HTTPError as error:
            if error.code == 503:  # it starts: no answer of the API, and plain text
                raise
            raise QueryError(f"{parameters}: {json.loads(error.read())['error']}") from error

    def query(self, expression, **parameters):
        """The instant vector: [(labels, value)]."""
        answer = self.api("query", query=expression, **parameters)
        if answer["resultType"] == "scalar":
            return [({}, float(answer["result"][1]))]
        return [(row["metric"], float(row["value"][1])) for row in answer["result"]]
