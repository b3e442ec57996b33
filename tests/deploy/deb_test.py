"""What the .deb does beside its programs, with cpack and dpkg as they are: units, users, settings; install, upgrade
with changed settings, removal, purge. The programs are stand-ins: tests/e2e/package_test packs and runs the real ones.
"""

import gzip
import os
import pathlib
import re
import shutil
import stat
import subprocess
import tempfile
import unittest

SOURCE = pathlib.Path(__file__).resolve().parents[2]
PROGRAMS = ["fsdpctl", "fsdp-coordinator", "fsdp-worker", "fsdp-trainer", "fsdp-tokenize"]
PROJECT = """
cmake_minimum_required(VERSION 3.25)
project(fsdpctl VERSION {version} LANGUAGES C)
foreach(name {programs})
  add_executable(${{name}} main.c)
endforeach()
foreach(page fsdpctl.1 fsdpctl-get.1 fsdp-worker.8)
  file(WRITE ${{CMAKE_BINARY_DIR}}/man/${{page}} ".TH X 1\\n")
endforeach()
set(FSDP_MAN_PAGES ${{CMAKE_BINARY_DIR}}/man/fsdpctl.1 ${{CMAKE_BINARY_DIR}}/man/fsdp-worker.8)
include(deploy/cmake/FsdpPackage.cmake)
"""
UNITS = ["usr/lib/systemd/system/fsdp-coordinator.service", "usr/lib/systemd/system/fsdp-worker.service",
         "usr/lib/systemd/system/fsdp-nvidia-devices.service", "usr/lib/sysusers.d/fsdpctl.conf"]
SETTINGS = ["etc/fsdpctl/coordinator.env", "etc/fsdpctl/worker.env"]


def pack(folder, version):
    """The .deb of a project that is this one but for what the programs do."""
    project = folder / f"project-{version}"
    project.mkdir()
    for name in ("deploy", "docs", "proto", "CHANGELOG.md", "LICENSE"):
        (project / name).symlink_to(SOURCE / name)
    (project / "main.c").write_text("int main(void) { return 0; }\n")
    (project / "CMakeLists.txt").write_text(PROJECT.format(version=version, programs=" ".join(PROGRAMS)))
    build = project / "build"
    for command in (["cmake", "-G", "Ninja", "-S", project, "-B", build], ["cmake", "--build", build],
                    ["cpack", "-G", "DEB", "--config", build / "CPackConfig.cmake", "-B", build]):
        subprocess.run([str(word) for word in command], check=True, capture_output=True, cwd=project)
    (package,) = build.glob("*.deb")
    return package


@unittest.skipUnless(os.geteuid() == 0, "dpkg runs a package's scripts in another root as root only")
class DebTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(folder.cleanup)
        cls.folder = pathlib.Path(folder.name)
        cls.old, cls.new = pack(cls.folder, "0.1.0"), pack(cls.folder, "0.2.0")

    def setUp(self):
        """A root with a shell and systemd-sysusers, and with systemctl as a program that notes how it is called."""
        self.root = pathlib.Path(tempfile.mkdtemp(dir=self.folder))
        for name in ("var/lib/dpkg/info", "var/lib/dpkg/updates", "var/lib/dpkg/triggers", "usr/bin", "usr/lib",
                     "usr/lib64", "etc", "tmp", "dev", "run/systemd/system"):
            (self.root / name).mkdir(parents=True)
        for name in ("bin", "lib", "lib64"):
            (self.root / name).symlink_to(f"usr/{name}")
        (self.root / "var/lib/dpkg/status").touch()
        (self.root / "dev/null").touch()
        for program in ("dash", "systemd-sysusers"):
            self.copy(pathlib.Path(shutil.which(program)))
        (self.root / "usr/bin/sh").symlink_to("dash")
        systemctl = self.root / "usr/bin/systemctl"
        systemctl.write_text('#!/bin/sh\necho "$@" >>/tmp/systemctl\n')
        systemctl.chmod(0o755)

    def copy(self, program):
        shutil.copy(program, self.root / "usr/bin" / program.name)
        linked = subprocess.run(["ldd", program], text=True, capture_output=True, check=True).stdout
        for library in re.findall(r"(/\S+\.so\S*)", linked):
            target = self.root / "usr" / library.removeprefix("/usr").lstrip("/")
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(library, target)

    def dpkg(self, *words):
        done = subprocess.run(["dpkg", f"--root={self.root}", "--log=/dev/null", "--force-depends",
                               "--force-confdef", "--force-confold", *map(str, words)], text=True, capture_output=True,
                              check=False)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)

    def called(self):
        file = self.root / "tmp/systemctl"
        words = file.read_text().splitlines() if file.exists() else []
        file.unlink(missing_ok=True)
        return words

    def test_install_upgrade_remove_purge(self):
        self.dpkg("--install", self.old)
        for name in (*UNITS, *SETTINGS):
            file = self.root / name
            self.assertTrue(file.is_file(), name)
            self.assertEqual((file.stat().st_uid, stat.S_IMODE(file.stat().st_mode)), (0, 0o644), name)
        for program in PROGRAMS:
            self.assertEqual(os.readlink(self.root / "usr/bin" / program), f"/opt/fsdpctl/bin/{program}")
        # Where man looks, packed as Debian has them.
        for page in ("man1/fsdpctl.1.gz", "man1/fsdpctl-get.1.gz", "man8/fsdp-worker.8.gz"):
            with gzip.open(self.root / "usr/share/man" / page, "rt") as text:
                self.assertTrue(text.read().startswith(".TH"), page)
        self.assertFalse((self.root / "opt/fsdpctl/share/man").exists())
        users = (self.root / "etc/passwd").read_text()
        self.assertRegex(users, r"(?m)^fsdp-coordinator:")
        self.assertRegex(users, r"(?m)^fsdp-worker:")
        # Known to systemd, and neither enabled nor started.
        self.assertEqual(self.called(), ["daemon-reload"])
        self.assertFalse((self.root / "etc/systemd").exists())

        settings = self.root / SETTINGS[1]
        settings.write_text("FSDP_COORDINATOR=10.0.0.1:7070\n")
        state = self.root / "var/lib/fsdp-coordinator"
        state.mkdir()
        self.dpkg("--install", self.new)
        self.assertEqual(settings.read_text(), "FSDP_COORDINATOR=10.0.0.1:7070\n")
        # What runs is left alone. The old package's postrm reloads too.
        self.assertEqual(set(self.called()), {"daemon-reload"})

        self.dpkg("--remove", "fsdpctl")
        self.assertEqual(self.called(), ["disable --now fsdp-worker.service", "disable --now fsdp-coordinator.service",
                                         "daemon-reload"])
        self.assertTrue(settings.is_file(), "settings stay until a purge")
        for name in UNITS:
            self.assertFalse((self.root / name).exists(), name)
        self.assertFalse((self.root / "opt").exists())
        self.dpkg("--purge", "fsdpctl")
        self.assertFalse((self.root / "etc/fsdpctl").exists())
        self.assertTrue(state.is_dir(), "jobs survive a purge")

    def test_without_systemd(self):
        """A container or another init: nothing to tell, nothing that fails."""
        (self.root / "run/systemd/system").rmdir()
        (self.root / "usr/bin/systemd-sysusers").unlink()
        self.dpkg("--install", self.old)
        self.dpkg("--remove", "fsdpctl")
        self.assertEqual(self.called(), [])

    def test_units_of_the_package_are_sound(self):
        self.dpkg("--install", self.old)
        for target in pathlib.Path("/usr/lib/systemd/system").glob("*.target"):
            shutil.copy(target, self.root / "usr/lib/systemd/system", follow_symlinks=False)
        # What ExecReload calls; procps has it on any host.
        (self.root / "bin").mkdir(exist_ok=True)
        shutil.copy("/bin/kill", self.root / "bin/kill")
        done = subprocess.run(["systemd-analyze", "verify", "--man=no", f"--root={self.root}",
                               "fsdp-coordinator.service", "fsdp-worker.service"], text=True, capture_output=True,
                              check=False)
        # Of systemd's own units this root has the targets only.
        said = [line for line in (done.stdout + done.stderr).splitlines() if "fsdp" in line]
        self.assertEqual((done.returncode, said), (0, []))

    def test_the_chart_in_the_package_is_whole(self):
        self.dpkg("--install", self.old)
        chart = self.root / "opt/fsdpctl/share/fsdpctl/helm/fsdp"
        for name in ("Chart.yaml", "values.yaml", "values.schema.json", "files/alerting_rules.yaml",
                     "files/recording_rules.yaml", "files/dashboards/job.json"):
            self.assertGreater((chart / name).stat().st_size, 100, name)


if __name__ == "__main__":
    unittest.main()
