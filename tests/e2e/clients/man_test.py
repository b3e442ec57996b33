"""The manual pages: well formed by mandoc and by man itself, complete by what the programs say of themselves."""

import os
import pathlib
import re
import shutil
import subprocess
import unittest

BIN = pathlib.Path(os.environ.get("FSDP_BINARY_DIR", "build/dev/bin"))
MAN = BIN.parent / "man"
PROGRAMS = {"fsdp-coordinator": 8, "fsdp-worker": 8, "fsdp-trainer": 1, "fsdp-tokenize": 1}


def said(*command):
    return subprocess.run([BIN / command[0], *command[1:]], text=True, capture_output=True, check=True).stdout


def verbs():
    listed = re.search(r"Verbs:\n(.*?)\n\n", said("fsdpctl", "help"), re.DOTALL)[1]
    return [line.split()[0] for line in listed.splitlines()]


def shown(page):
    """As a reader sees it."""
    done = subprocess.run(["man", "--warnings=w", "--encoding=UTF-8", "--local-file", str(page)], text=True,
                          capture_output=True, check=True,
                          env={**os.environ, "MANWIDTH": "200", "MAN_KEEP_FORMATTING": "0", "LC_ALL": "C.UTF-8",
                               "MANPAGER": "cat", "MANROFFOPT": "-c", "GROFF_NO_SGR": "1"})
    assert not done.stderr, (page, done.stderr)
    return re.sub(".\b", "", done.stdout)


class ManTest(unittest.TestCase):
    def test_every_program_and_verb_has_its_page(self):
        pages = {page.name for page in MAN.glob("*.[18]")}
        self.assertEqual(pages, {"fsdpctl.1", *(f"fsdpctl-{verb}.1" for verb in verbs()),
                                 *(f"{name}.{section}" for name, section in PROGRAMS.items())})

    @unittest.skipUnless(shutil.which("mandoc"), "no mandoc (deploy/packages/install_deps test)")
    def test_mandoc_finds_no_fault(self):
        pages = sorted(MAN.glob("*.[18]"))
        done = subprocess.run(["mandoc", "-T", "lint", "-W", "warning", *pages], text=True, capture_output=True,
                              check=False)
        # "cross reference to a page that is not installed" is no fault of a page that is not installed itself.
        faults = [line for line in done.stdout.splitlines() if "referenced manual not found" not in line]
        self.assertEqual(faults, [])

    @unittest.skipUnless(shutil.which("man"), "no man (deploy/packages/install_deps test)")
    def test_a_page_says_what_help_says(self):
        for verb in verbs():
            text = shown(MAN / f"fsdpctl-{verb}.1")
            told = said("fsdpctl", verb, "--help")
            for flag in re.findall(r"^  (?:-\w, |    )(--[\w-]+)", told, re.MULTILINE):
                self.assertRegex(text, rf"(?m)^ +(-\w, )?{flag}\b", verb)
            for command in re.findall(r"^  (fsdpctl .*)$", told[told.index("Examples:"):], re.MULTILINE):
                self.assertIn(" ".join(command.split()), " ".join(text.split()), verb)
        general = shown(MAN / "fsdpctl.1")
        for word in (*verbs(), "FSDPCTL_CONTEXT", "FSDPCTL_SERVER", "tokenFile", "103 job cancelled"):
            self.assertIn(word, general)

    @unittest.skipUnless(shutil.which("man"), "no man (deploy/packages/install_deps test)")
    def test_a_daemon_s_page_has_all_its_flags(self):
        for name, section in PROGRAMS.items():
            text = shown(MAN / f"{name}.{section}")
            flags = set(re.findall(r"(?<![\w-])--[a-z][\w-]+", said(name, "--help")))
            self.assertTrue(flags)
            for flag in flags:
                self.assertIn(flag, text, name)


if __name__ == "__main__":
    unittest.main()
