"""Builds the Python client's wheel and installs it as its users do: into a virtual environment, offline."""

import os
import pathlib
import shutil
import subprocess

SOURCE = pathlib.Path(__file__).resolve().parents[2]


def install(folder):
    """A python that has the client; Debian's grpcio, protobuf and yaml shine through."""
    folder = pathlib.Path(folder)
    # The build leaves folders beside its sources.
    shutil.copytree(SOURCE / "client/python", folder / "source",
                    ignore=shutil.ignore_patterns("build", "*.egg-info", "__pycache__", ".mypy_cache"))
    subprocess.run(["/usr/bin/python3", "-m", "build", "--wheel", "--no-isolation", "--outdir", folder,
                    folder / "source"], check=True, stdout=subprocess.DEVNULL,
                   env={**os.environ, "FSDP_PROTOS": str(SOURCE / "proto")})
    wheels = list(folder.glob("*.whl"))
    assert len(wheels) == 1, wheels
    venv = folder / "venv"
    subprocess.run(["/usr/bin/python3", "-m", "venv", "--system-site-packages", venv], check=True)
    subprocess.run([venv / "bin/pip", "install", "--quiet", "--no-index", "--no-deps", wheels[0]],
                   check=True)
    return venv / "bin/python"
