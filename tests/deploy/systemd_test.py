"""deploy/systemd: units that systemd accepts and finds well confined, whose command lines are the programs' own, and
whose limits the programs keep: a job is run under strace as the units' users would run it.
"""

import json
import os
import pathlib
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
import unittest

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "support"))
from cluster import BIN, SOURCE, wait_for  # noqa: E402

UNITS = SOURCE / "deploy" / "systemd"
SERVICES = ["fsdp-coordinator", "fsdp-worker"]
# systemd-analyze security, of 10; what is left is said in the units.
EXPOSURE = {"fsdp-coordinator": 1.5, "fsdp-worker": 2.0}
# Of no user of this machine.
UID = 64017
JOB = SOURCE / "deploy" / "examples" / "tiny.yaml"


def output(*command):
    return subprocess.run([str(word) for word in command], text=True, capture_output=True, check=True).stdout


def settings(unit):
    """key -> values in order, with continued lines joined."""
    text = (UNITS / f"{unit}.service").read_text(encoding="utf-8").replace("\\\n", " ")
    found = {}
    for key, value in re.findall(r"^([A-Za-z]+)=(.*)$", text, re.MULTILINE):
        found.setdefault(key, []).append(value.strip())
    return found


def command_line(unit, environment):
    """ExecStart as systemd expands it, with the state in `environment`'s %S and %t."""
    def specified(text):
        return text.replace("%S", environment["%S"]).replace("%t", environment["%t"])

    values = dict(specified(word).split("=", 1) for word in settings(unit)["Environment"])
    values.update(environment)
    words = []
    for word in settings(unit)["ExecStart"][0].split():
        if re.fullmatch(r"\$\w+", word):
            words += shlex.split(values[word[1:]])
        else:
            words.append(re.sub(r"\$\{(\w+)\}", lambda match: values[match[1]], specified(word)))
    return words


def system_calls(group):
    """The names in a group of systemd's, through the groups in it."""
    names = set()
    for line in output("systemd-analyze", "syscall-filter", group).splitlines()[1:]:
        word = line.strip()
        if word.startswith("@"):
            names |= system_calls(word)
        elif word and not word.startswith("#"):
            names.add(word)
    return names


def allowed_calls(unit):
    allowed = set()
    for line in settings(unit)["SystemCallFilter"]:
        for word in line.removeprefix("~").split():
            names = system_calls(word) if word.startswith("@") else {word}
            allowed = allowed - names if line.startswith("~") else allowed | names
    return allowed


class UnitsTest(unittest.TestCase):
    def test_systemd_accepts_them(self):
        with tempfile.TemporaryDirectory() as folder:
            for unit in UNITS.glob("*.service"):
                text = unit.read_text(encoding="utf-8").replace("/usr/bin/fsdp-", f"{BIN.resolve()}/fsdp-")
                copied = pathlib.Path(folder) / unit.name
                copied.write_text(text, encoding="utf-8")
            done = subprocess.run(["systemd-analyze", "verify", "--man=no", *sorted(pathlib.Path(folder).iterdir())],
                                  text=True, capture_output=True, check=False)
            self.assertEqual((done.returncode, done.stdout + done.stderr), (0, ""))
            # It says what it does not know; nothing else of this test would notice a misspelt setting.
            copied.write_text(copied.read_text(encoding="utf-8").replace("ProtectHome", "ProtectHouse"))
            done = subprocess.run(["systemd-analyze", "verify", "--man=no", copied], text=True, capture_output=True,
                                  check=False)
            self.assertIn("ProtectHouse", done.stderr)

    def test_confinement(self):
        for unit, limit in EXPOSURE.items():
            done = subprocess.run(["systemd-analyze", "security", "--offline=yes", f"--threshold={int(limit * 10)}",
                                   UNITS / f"{unit}.service"], text=True, capture_output=True, check=False)
            self.assertEqual(done.returncode, 0, done.stdout[-300:])
            self.assertIn("exposure level", done.stdout)
            print(done.stdout.strip().splitlines()[-1])

    def test_what_stopping_and_memory_need(self):
        for unit in SERVICES:
            self.assertEqual(settings(unit)["KillMode"], ["mixed"])
            self.assertEqual(settings(unit)["Restart"], ["always"])
            self.assertEqual(settings(unit)["StartLimitIntervalSec"], ["0"])
        worker = settings("fsdp-worker")
        # Of a job's grace period, 60 s, and the spool's delivery.
        self.assertGreater(int(worker["TimeoutStopSec"][0]), 65)
        self.assertEqual(worker["OOMPolicy"], ["continue"])
        self.assertEqual(worker["LimitMEMLOCK"], ["infinity"])
        self.assertNotIn("MemoryDenyWriteExecute", worker)
        self.assertNotIn("PrivateDevices", worker)
        self.assertGreater(int(settings("fsdp-coordinator")["TimeoutStopSec"][0]), 5)

    def test_users_exist(self):
        with tempfile.TemporaryDirectory() as folder:
            root = pathlib.Path(folder)
            (root / "etc").mkdir()
            (root / "usr/lib/sysusers.d").mkdir(parents=True)
            shutil.copy(UNITS / "fsdpctl.sysusers.conf", root / "usr/lib/sysusers.d/fsdpctl.conf")
            subprocess.run(["systemd-sysusers", f"--root={root}", "fsdpctl.conf"], check=True, capture_output=True)
            users = {line.split(":")[0]: line.split(":") for line in (root / "etc/passwd").read_text().splitlines()}
        for unit in SERVICES:
            (user,) = settings(unit)["User"]
            self.assertIn(user, users)
            self.assertRegex(users[user][6], r"nologin$")
            self.assertEqual(users[user][5], f"/var/lib/{settings(unit)['StateDirectory'][0]}")

    def test_flags_are_the_programs(self):
        places = {"%S": "/var/lib", "%t": "/run"}
        for unit in SERVICES:
            known = set(re.findall(r"^  --([a-z-]+) ", subprocess.run(
                [BIN / unit, "--help"], text=True, capture_output=True, check=False).stdout, re.MULTILINE))
            words = command_line(unit, places)
            self.assertEqual(words[0], f"/usr/bin/{unit}")
            file = UNITS / f"{unit.removeprefix('fsdp-')}.env"
            named = set(re.findall(r"--([a-z][a-z-]*)", " ".join(words) + file.read_text(encoding="utf-8")))
            self.assertGreaterEqual(len(named), 4)
            self.assertEqual(named - {"help"} - known, set(), unit)
        self.assertIn("--devices=all", command_line("fsdp-worker", places))
        for unit, flag in (("fsdp-coordinator", "--listen"), ("fsdp-coordinator", "--metrics-listen"),
                           ("fsdp-worker", "--metrics-listen")):
            (value,) = [word for word in command_line(unit, places) if word.startswith(flag + "=")]
            self.assertRegex(value, r"=127\.0\.0\.1:\d+$", "only loopback without a word of the administrator")

    def test_the_environment_files_set_what_the_units_use(self):
        for unit in SERVICES:
            text = (UNITS / f"{unit.removeprefix('fsdp-')}.env").read_text(encoding="utf-8")
            self.assertIn(f"-/etc/fsdpctl/{unit.removeprefix('fsdp-')}.env", settings(unit)["EnvironmentFile"])
            offered = set(re.findall(r"^#?(FSDP_\w+)=", text, re.MULTILINE))
            used = set(re.findall(r"\$\{?(FSDP_\w+)", settings(unit)["ExecStart"][0]))
            self.assertEqual(offered, used)
            self.assertEqual({word.split("=")[0] for word in settings(unit)["Environment"]} - {"HOME"}, used)
            self.assertRegex(text, r"--tls-certificate=\S+ --tls-key=\S+")


def strace_works():
    return subprocess.run(["strace", "-o", "/dev/null", "true"], capture_output=True, check=False).returncode == 0


@unittest.skipUnless(os.geteuid() == 0 and strace_works(), "needs root, to be another user, and strace")
class TraceTest(unittest.TestCase):
    """What the units forbid is nothing that the programs do."""

    @classmethod
    def setUpClass(cls):
        cls.root = pathlib.Path(tempfile.mkdtemp(prefix="fsdp-systemd-"))
        cls.root.chmod(0o755)
        cls.processes = []
        cls.addClassCleanup(shutil.rmtree, cls.root)
        cls.addClassCleanup(cls.stop)
        # The build may be where no other user can read.
        shutil.copytree(BIN, cls.root / "bin", ignore=lambda _, names: [n for n in names if n not in
                        ("fsdpctl", "fsdp-coordinator", "fsdp-worker", "fsdp-trainer")])
        ports = cls.start("fsdp-coordinator", {"FSDP_LISTEN": "127.0.0.1:0", "FSDP_METRICS_LISTEN": "127.0.0.1:0"})
        address = f"127.0.0.1:{ports['grpc']}"
        cls.start("fsdp-worker", {"FSDP_COORDINATOR": address, "FSDP_DEVICES": "cpu:2",
                                  "FSDP_METRICS_LISTEN": "127.0.0.1:0"})
        cls.shared = cls.folder("shared")
        cls.done = subprocess.run(
            [BIN / "fsdpctl", "submit", JOB, "--server", address, "--wait", "--set",
             f"checkpoint.dir={cls.shared}", "--set", "checkpoint.everySteps=5"],
            text=True, capture_output=True, check=False, timeout=240, env={"HOME": str(cls.root)})
        cls.stop()

    @classmethod
    def folder(cls, name):
        path = cls.root / name
        path.mkdir()
        os.chown(path, UID, UID)
        return path

    @classmethod
    def start(cls, unit, environment):
        """Under strace, without any right; returns what the port file says."""
        state = cls.folder(unit)
        (state / unit).mkdir()
        os.chown(state / unit, UID, UID)
        words = command_line(unit, {"%S": str(state), "%t": str(state), **environment})
        words[0] = words[0].replace("/usr/bin", str(cls.root / "bin"))
        trace = cls.root / f"{unit}.trace"
        log = (cls.root / f"{unit}.log").open("w", encoding="utf-8")
        process = subprocess.Popen(
            ["strace", "-ff", "-o", trace, "setpriv", f"--reuid={UID}", f"--regid={UID}", "--clear-groups",
             "--no-new-privs", "--bounding-set=-all", "--inh-caps=-all", *words],
            stdout=log, stderr=log, cwd="/", env={"HOME": str(state), "PATH": "/usr/bin:/bin"})
        cls.processes.append(process)
        log.close()
        file = state / unit / "ports.json"
        wait_for(lambda: file.exists() or process.poll() is not None, f"{unit} serves")
        assert process.poll() is None, (cls.root / f"{unit}.log").read_text()
        return json.loads(file.read_text())

    @classmethod
    def stop(cls):
        for process in reversed(cls.processes):
            # strace passes signals on to nobody; its child is the daemon.
            children = pathlib.Path(f"/proc/{process.pid}/task/{process.pid}/children")
            if process.poll() is None and children.exists():
                for child in children.read_text(encoding="ascii").split():
                    os.kill(int(child), 15)
            process.wait(timeout=60)
        cls.processes.clear()

    def lines(self, unit):
        """Of all threads, after setpriv gave way to the program."""
        lines = []
        for file in sorted(self.root.glob(f"{unit}.trace.*")):
            mine = file.read_text(encoding="utf-8", errors="replace").splitlines()
            start = [i for i, line in enumerate(mine) if line.startswith(f'execve("{self.root}/bin/{unit}"')]
            lines += mine[start[0] if start else 0:]
        self.assertGreater(len(lines), 1000)
        return lines

    def test_the_job_ends_well(self):
        self.assertEqual(self.done.returncode, 0, self.done.stdout + self.done.stderr)
        self.assertTrue(any(self.shared.iterdir()), "no checkpoint")

    def test_system_calls(self):
        for unit in SERVICES:
            called = {match[1] for line in self.lines(unit) if (match := re.match(r"(\w+)\(", line))}
            self.assertGreater(len(called), 50)
            print(f"{unit}: {len(called)} system calls of {len(allowed_calls(unit))} allowed")
            self.assertEqual(called - allowed_calls(unit), set(), unit)

    def test_address_families(self):
        for unit in SERVICES:
            text = "\n".join(self.lines(unit))
            used = set(re.findall(r"\bsocket\((AF_\w+)", text)) | set(re.findall(r"\bsocketpair\((AF_\w+)", text))
            self.assertEqual(used - set(settings(unit)["RestrictAddressFamilies"][0].split()), set(), unit)

    def test_files_are_written_in_the_unit_s_folders_alone(self):
        for unit in SERVICES:
            allowed = re.compile(rf"{self.root}/({unit}|shared)/|/tmp/(?!{self.root.name})|/dev/(null|shm/)")
            for line in self.lines(unit):
                written = re.search(r'\b(?:openat|open|creat)\([^"]*"([^"]+)", [A-Z_|]*(?:O_WRONLY|O_RDWR|O_CREAT)',
                                    line)
                made = re.search(r'\b(?:mkdir|mkdirat|rename|unlink|chmod)\([^"]*"([^"]+)"', line)
                for match in (written, made):
                    if match and " = -1 " not in line:
                        self.assertRegex(match[1] + "/", allowed, f"{unit}: {line}")

    def test_the_coordinator_maps_no_memory_to_write_and_execute(self):
        for line in self.lines("fsdp-coordinator"):
            self.assertNotRegex(line, r"PROT_WRITE\|PROT_EXEC")
        # oneDNN does: why the worker's unit leaves MemoryDenyWriteExecute out.
        self.assertTrue(any("PROT_EXEC" in line and "PROT_WRITE" in line for line in self.lines("fsdp-worker")))


if __name__ == "__main__":
    unittest.main()
