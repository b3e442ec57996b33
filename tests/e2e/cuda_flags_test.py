"""Whether and for which GPUs ./quickstart and ./test build the CUDA backend, with stand-ins for the machine's tools."""

import os
import pathlib
import subprocess
import tempfile
import unittest

SOURCE = pathlib.Path(__file__).resolve().parents[2]
LISTED = 'case "$1" in -L) echo "GPU 0: NVIDIA H200 (UUID: GPU-1)" ;; *) printf "%s" ;; esac'


class CudaFlagsTest(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)
        self.tool("nvidia-smi", "exit 9")

    def tool(self, name, body):
        path = pathlib.Path(self.folder.name) / name
        path.write_text(f"#!/bin/sh\n{body}\n")
        path.chmod(0o755)
        return path

    def run_tool(self, *command):
        environment = {**os.environ, "PATH": f"{self.folder.name}:/usr/bin:/bin", "CUDACXX": "/nowhere/nvcc"}
        return subprocess.run([str(word) for word in command], env=environment, text=True, capture_output=True,
                              check=False)

    def flags(self):
        done = self.run_tool(SOURCE / "deploy/packages/cuda_flags")
        self.assertEqual(done.returncode, 0, done.stderr)
        return done.stdout.strip(), done.stderr

    def native(self):
        script = pathlib.Path(self.folder.name) / "native.cmake"
        script.write_text(f'set(FSDPCTL_CUDA OFF)\ninclude({SOURCE}/deploy/cmake/FsdpCuda.cmake)\n'
                          'fsdp_native_architectures(found)\nmessage("found: ${found}")\n')
        return self.run_tool("cmake", "-P", script)

    def test_a_machine_without_a_gpu_builds_for_the_cpu(self):
        self.assertEqual(self.flags()[0], "-DFSDPCTL_CUDA=OFF")

    def test_a_gpu_without_a_toolkit_builds_for_the_cpu_and_says_so(self):
        self.tool("nvidia-smi", LISTED % "9.0")
        out, error = self.flags()
        self.assertEqual(out, "-DFSDPCTL_CUDA=OFF")
        self.assertIn("no CUDA toolkit", error)

    def test_a_gpu_and_a_toolkit_build_for_this_gpu_only(self):
        self.tool("nvidia-smi", LISTED % "9.0")
        compiler = self.tool("nvcc", "exit 0")
        self.assertEqual(self.flags()[0], "-DFSDPCTL_CUDA=AUTO -DFSDPCTL_CUDA_ARCHITECTURES=native "
                                          f"-DCMAKE_CUDA_COMPILER={compiler}")

    def test_native_is_each_kind_of_gpu_once(self):
        self.tool("nvidia-smi", LISTED % r"9.0\n9.0\n8.0\n12.0\n")
        self.assertIn("found: 90a-real;80-real;120-real\n", self.native().stderr)

    def test_native_without_a_gpu_names_the_remedy(self):
        done = self.native()
        self.assertNotEqual(done.returncode, 0)
        self.assertIn("names no GPU", done.stderr)


if __name__ == "__main__":
    unittest.main()
