"""Generates the messages, their type stubs and the services from the protos while it builds.

Needs protoc and its gRPC plugin for Python (Debian: protobuf-compiler, protobuf-compiler-grpc).
"""

import os
import pathlib
import shutil
import subprocess

from setuptools import setup
from setuptools.command.build_py import build_py

HERE = pathlib.Path(__file__).resolve().parent
# The repository's protos, or the copy of them that an installed tree has.
PROTOS = pathlib.Path(os.environ.get("FSDP_PROTOS", HERE.parents[1] / "proto"))
SERVICES = ("job_service", "cluster_service")


def needed_protos():
    """The services' files and what they import of this package, in a fixed order."""
    found, left = set(), [f"fsdp/v1/{name}.proto" for name in SERVICES]
    while left:
        name = left.pop()
        if name in found:
            continue
        found.add(name)
        for line in (PROTOS / name).read_text().splitlines():
            if line.startswith('import "fsdp/'):
                left.append(line.split('"')[1])
    return sorted(found)


def tool(name):
    path = shutil.which(name)
    if path is None:
        raise SystemExit(f"{name} is not there: install protobuf-compiler and protobuf-compiler-grpc")
    return path


def generate(folder):
    protoc, plugin = tool("protoc"), tool("grpc_python_plugin")
    common = [protoc, f"-I{PROTOS}"]
    subprocess.run([*common, f"--python_out={folder}", f"--pyi_out={folder}", *needed_protos()],
                   check=True)
    subprocess.run([*common, f"--plugin=protoc-gen-grpc_python={plugin}",
                    f"--grpc_python_out={folder}",
                    *(f"fsdp/v1/{name}.proto" for name in SERVICES)], check=True)
    # As data, loaded into a pool of its own: another package may have google.rpc too.
    subprocess.run([*common, f"--descriptor_set_out={folder / 'fsdp' / 'error_details.binpb'}",
                    "--include_imports", "google/rpc/status.proto",
                    "google/rpc/error_details.proto"], check=True)
    (folder / "fsdp" / "v1" / "__init__.py").touch()


class BuildWithProtos(build_py):
    def run(self):
        super().run()
        folder = pathlib.Path(self.build_lib)
        (folder / "fsdp" / "v1").mkdir(parents=True, exist_ok=True)
        generate(folder)


setup(cmdclass={"build_py": BuildWithProtos})
