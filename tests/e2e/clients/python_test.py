"""The Python client's wheel, built, installed into a virtual environment and driven against real daemons."""

import os
import pathlib
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parents[1] / "support"))
import python_client  # noqa: E402


def main():
    with tempfile.TemporaryDirectory(prefix="fsdp-wheel-") as folder:
        python = python_client.install(folder)
        # From elsewhere, so that nothing of the tree is found by chance.
        for cases in ("python_parts.py", "python_cases.py"):
            done = subprocess.run([python, HERE / cases, *sys.argv[1:]], cwd=folder, check=False,
                                  env={**os.environ, "PYTHONDONTWRITEBYTECODE": "1"})
            if done.returncode != 0:
                return done.returncode
        # Its types hold: its own code, and what a user writes with it.
        user = pathlib.Path(folder) / "user.py"
        user.write_text("import fsdp\n\n\ndef losses(server: str, job: str) -> list[float]:\n"
                        "    with fsdp.Client(server) as client:\n"
                        "        return [step.loss for step in client.metrics(job)]\n\n\n"
                        "reveal_type(fsdp.Client('a:1').get('x').progress.step)\n")
        typed = subprocess.run(["mypy", "--strict", "--python-executable", python, "--config-file",
                                pathlib.Path(folder) / "source/pyproject.toml", user], cwd=folder,
                               check=False, text=True, capture_output=True)
        print(typed.stdout, typed.stderr)
        if typed.returncode != 0 or 'Revealed type is "builtins.int"' not in typed.stdout:
            return 1
        return subprocess.run(["mypy", "--python-executable", python, "--config-file", "pyproject.toml",
                               "-p", "fsdp"], cwd=pathlib.Path(folder) / "source",
                              check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
