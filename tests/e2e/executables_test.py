"""What each executable links, and what it says about itself."""

import json
import os
import pathlib
import re
import socket
import subprocess
import tempfile
import unittest

BIN = pathlib.Path(os.environ["FSDP_BINARY_DIR"])
PROGRAMS = ["fsdpctl", "fsdp-coordinator", "fsdp-worker", "fsdp-trainer", "fsdp-tokenize"]
# A rank's process stays free of servers and their threads, the others of the engine; none needs a GPU's.
FORBIDDEN = {
    "fsdp-trainer": r"grpc|prometheus|civetweb|sqlite|cuda|cublas|nccl",
    "fsdp-worker": r"dnnl|gloo|gomp|sqlite|cuda|cublas|nccl",
    "fsdp-coordinator": r"dnnl|gloo|gomp|cuda|cublas|nccl",
    # sentencepiece carries a protobuf of its own: the two crash in one process.
    "fsdp-tokenize": r"protobuf|grpc|prometheus|sqlite|dnnl|gloo|gomp|cuda|cublas|nccl",
    "fsdpctl": r"sentencepiece|dnnl|gloo|gomp|sqlite|prometheus|civetweb|cuda|cublas|nccl",
}


def run(program, *arguments):
    done = subprocess.run([str(BIN / program), *arguments], text=True, capture_output=True, timeout=60, check=False)
    return done.returncode, done.stdout + done.stderr


class ExecutablesTest(unittest.TestCase):
    def test_links_no_more_than_its_part(self):
        for program, forbidden in FORBIDDEN.items():
            libraries = subprocess.run(["ldd", str(BIN / program)], text=True, capture_output=True,
                                       check=True).stdout
            names = re.findall(r"^\s*(\S+)", libraries, re.MULTILINE)
            self.assertTrue(any(name.startswith("libstdc++") for name in names), libraries)
            found = [name for name in names if re.search(forbidden, name)]
            self.assertEqual(found, [], program)

    def test_version(self):
        versions = set()
        for program in PROGRAMS:
            code, text = run(program, "version" if program == "fsdpctl" else "--version")
            self.assertEqual(code, 0, text)
            self.assertNotIn("Debug build", text)
            versions.update(re.findall(r"\d+\.\d+\.\d+", text.splitlines()[0]))
        self.assertEqual(len(versions), 1, versions)

    def test_help_lists_the_flags_and_no_library_s(self):
        for program, flag in (("fsdp-coordinator", "--suspect-after"), ("fsdp-worker", "--bind-address")):
            code, text = run(program, "--help")
            self.assertEqual(code, 0, text)
            self.assertIn(flag, text)
            self.assertNotIn("--parent-fd", text, "of one of our processes for another")
            self.assertIn("--state-dir=", text, "an example")
            self.assertNotIn("No flags matched", text)
            self.assertNotIn("--undefok", text)

    def test_help_of_every_command_of_the_trainer(self):
        for arguments, words in ((["--help"], "run JOB.yaml"), (["oracle", "--help"], "--micro-batch"),
                                 (["bench", "--help"], "--warmup"), (["run", "--help"], "run JOB.yaml")):
            code, text = run("fsdp-trainer", *arguments)
            self.assertEqual(code, 0, text)
            self.assertIn(words, text)
        code, text = run("fsdp-trainer", "oracle", "nosuch")
        self.assertEqual(code, 2, text)
        self.assertRegex(text, "^oracle: .*nosuch.*No such file")
        code, text = run("fsdp-trainer", "trian")
        self.assertEqual(code, 2, text)
        self.assertIn("no command trian", text)

    def test_a_usage_error_is_exit_code_2_and_says_what_was_meant(self):
        for program, arguments, words in (
                ("fsdp-coordinator", ["--state-dri=x"], "unknown flag --state-dri; did you mean --state-dir?"),
                ("fsdp-coordinator", ["--suspect-after=soon"], "--suspect-after=soon"),
                ("fsdp-coordinator", ["--state-dir"], "--state-dir needs a value"),
                ("fsdp-coordinator", ["--nolisten"], "unknown flag --nolisten"),
                ("fsdp-coordinator", ["serve"], "unexpected argument 'serve'"),
                ("fsdp-worker", ["--coordinater=x:1"], "did you mean --coordinator?"),
                ("fsdp-worker", ["--cpu-threads=many"], "--cpu-threads=many"),
                ("fsdp-worker", ["--undefok=x"], "unknown flag --undefok"),
                ("fsdp-trainer", ["run", "job.yaml", "--local-rank=2"], "did you mean --local-ranks?"),
                ("fsdp-trainer", ["--link-df", "3"], "did you mean --link-fd?")):
            with self.subTest(program=program, arguments=arguments):
                code, text = run(program, *arguments)
                self.assertEqual(code, 2, text)
                self.assertIn(words, text)
                self.assertEqual(len(text.splitlines()), 1, text)

    def test_switches_and_values_apart(self):
        code, text = run("fsdp-coordinator", "--state-dir", "/dev/null/no-folder", "--noreflection",
                         "--verbose", "--listen", "127.0.0.1:0")
        self.assertEqual(code, 1, text)
        self.assertIn("/dev/null/no-folder", text)

    def test_a_host_without_gpus_lists_its_cpu(self):
        done = subprocess.run([str(BIN / "fsdp-worker"), "--list-devices"], text=True, capture_output=True,
                              timeout=60, check=False)
        self.assertEqual(done.returncode, 0, done.stderr)
        devices = [json.loads(line) for line in done.stdout.splitlines()]
        if not any(device["type"] == "cuda" for device in devices):
            self.assertEqual([device["type"] for device in devices], ["cpu"])
            self.assertGreater(devices[0]["memory_bytes"], 0)
            self.assertGreater(devices[0]["cpu_threads"], 0)
            self.assertIn("no CUDA device on this host", done.stderr)
            self.assertEqual(run("fsdp-worker", "--list-devices", "--devices=cuda:0")[0], 2)

    def test_no_metrics_is_not_port_0(self):
        with tempfile.TemporaryDirectory() as folder:
            with subprocess.Popen([str(BIN / "fsdp-coordinator"), f"--state-dir={folder}", "--listen=127.0.0.1:0",
                                   "--metrics-listen="], text=True, stderr=subprocess.PIPE) as coordinator:
                line = next(line for line in coordinator.stderr if "serves at port" in line)
                coordinator.terminate()
            self.assertIn("no metrics (--metrics-listen is empty)", line)

    def test_nccl_without_cuda_is_a_usage_error(self):
        oracle = str(pathlib.Path(__file__).resolve().parents[1] / "oracle" / "llama-tiny.safetensors")
        bench = ["--model", "llama-tiny", "--batch", "1", "--seq", "8", "--steps", "1", "--warmup", "0"]
        job = str(pathlib.Path(__file__).resolve().parents[2] / "deploy" / "examples" / "tiny.yaml")
        for arguments in (["oracle", oracle], ["bench", *bench], ["run", job]):
            for ranks in ("1", "2"):
                with self.subTest(command=arguments[0], ranks=ranks):
                    code, text = run("fsdp-trainer", *arguments, "--local-ranks", ranks, "--communicator", "nccl")
                    self.assertEqual(code, 2, text)
                    self.assertIn("nccl needs --device cuda", text)

    def test_a_port_that_is_taken_is_one_line_with_a_remedy(self):
        with socket.socket() as taken, tempfile.TemporaryDirectory() as folder:
            taken.bind(("127.0.0.1", 0))
            taken.listen()
            address = f"127.0.0.1:{taken.getsockname()[1]}"
            for program, flags, remedy in (
                    ("fsdp-coordinator", [f"--listen={address}", "--metrics-listen="], "--listen"),
                    ("fsdp-coordinator", ["--listen=127.0.0.1:0", f"--metrics-listen={address}"], "--metrics-listen"),
                    ("fsdp-worker", ["--devices=cpu:1", f"--metrics-listen={address}"], "--metrics-listen")):
                with self.subTest(program=program, flags=flags):
                    code, text = run(program, f"--state-dir={folder}", *flags)
                    self.assertEqual(code, 1, text)
                    problems = [line for line in text.splitlines() if "taken" in line]
                    self.assertEqual(len(problems), 1, text)
                    self.assertIn(address, problems[0])
                    self.assertIn(f"{remedy} a free address", problems[0])
                    self.assertNotRegex(text, r"(?m)^E\d{4} |\"created|grpc_status", "gRPC's own lines")

    def test_dashes_and_underscores_are_the_same(self):
        for flag in ("--state-dir", "--state_dir"):
            code, text = run("fsdp-coordinator", flag + "=/dev/null/no-folder", "--listen=127.0.0.1:0",
                             "--metrics-listen=")
            self.assertNotEqual(code, 0)
            self.assertIn("/dev/null/no-folder", text)


if __name__ == "__main__":
    unittest.main(verbosity=2)
