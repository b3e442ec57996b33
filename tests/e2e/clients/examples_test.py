"""The examples of the clients, as programs, against a real coordinator and real workers: in the clear on loopback, then
with mutual TLS and a token.

    examples_test.py PROGRAM...        .mjs are run by node
"""

import os
import pathlib
import re
import subprocess
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "support"))
from cluster import Cluster  # noqa: E402
from secure_cluster import SecureCluster  # noqa: E402


def check(cluster, program, environment):
    command = ["node", program] if program.endswith(".mjs") else [program]
    done = subprocess.run(command, text=True, capture_output=True, check=False, timeout=180,
                          env={**os.environ, **environment})
    print(f"{' '.join(command)}: exit {done.returncode}\n{done.stdout}{done.stderr}")
    lines = done.stdout.splitlines()
    assert done.returncode == 0, done.returncode
    name = re.fullmatch(r"submitted jobs/(from-\w+-\w{8})", lines[0]).group(1)
    steps = [(int(step), loss) for step, loss in
             re.findall(r"^step (\d+) loss (\d+\.\d{4})$", done.stdout, re.MULTILINE)]
    # What the service says itself.
    told = [(step, f"{loss:.4f}") for step, loss in sorted(cluster.losses(name).items())]
    assert len(told) == 5 and steps == told, (steps, told)
    assert lines[-1] == "ended SUCCEEDED", lines[-1]
    # Nobody there: an error and an exit code, no stack.
    lost = subprocess.run(command, text=True, capture_output=True, check=False, timeout=60,
                          env={**os.environ, **environment, "FSDPCTL_SERVER": "127.0.0.1:1"})
    assert lost.returncode == 1 and "127.0.0.1:1" in lost.stderr, lost
    assert len(lost.stderr.splitlines()) == 1, lost.stderr


def main():
    programs = sys.argv[1:]
    assert programs, __doc__
    with Cluster(workers=2) as cluster:
        for program in programs:
            check(cluster, program, {"FSDPCTL_SERVER": cluster.server})
    with tempfile.TemporaryDirectory(prefix="fsdp-secure-") as folder, SecureCluster(folder, workers=2) as cluster:
        for program in programs:
            check(cluster, program, cluster.environment)


if __name__ == "__main__":
    main()
