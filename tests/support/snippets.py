"""Fenced blocks of the documentation pages, so that tests can run what readers are told to run.

Every block says what it is:

    sh        commands, run line by line; behind two blanks and # is a comment
    console   "$ command", then what it prints, exactly
    python    a program
    text      not to be run: a picture, output that differs each time

A block that a test cannot run is preceded by a line that says why and which test does it instead:

    <!-- not run here: REASON; instead: PATH OF A TEST -->
"""

import dataclasses
import pathlib
import re

KINDS = ("sh", "console", "python", "text")
_INSTEAD = re.compile(r"<!-- not run here: (.+); instead: (\S+) -->")


@dataclasses.dataclass
class Snippet:
    kind: str
    line: int
    text: str
    # Of a block that is not run: (reason, path).
    instead: tuple | None = None

    def commands(self):
        """Of sh: one string per command, continued lines joined, comments cut."""
        joined = self.text.replace("\\\n", " ")
        lines = (re.sub(r"\s+#.*$", "", line).strip() for line in joined.splitlines())
        return [line for line in lines if line and not line.startswith("#")]

    def dialogue(self):
        """Of console: (command, output) pairs."""
        pairs = []
        for line in self.text.splitlines(keepends=True):
            if line.startswith("$ "):
                pairs.append([line[2:].strip(), ""])
            else:
                pairs[-1][1] += line
        return [tuple(pair) for pair in pairs]


def read(page):
    """All blocks of a page; ValueError for one that does not say what it is."""
    lines = pathlib.Path(page).read_text(encoding="utf-8").splitlines()
    found, at = [], 0
    while at < len(lines):
        opening = re.match(r"^( *)```(\S*)$", lines[at])
        if not opening:
            at += 1
            continue
        indent, kind = opening.groups()
        if kind not in KINDS:
            raise ValueError(f"{page}:{at + 1}: a block must say what it is: one of {', '.join(KINDS)}")
        end = next((i for i in range(at + 1, len(lines)) if lines[i] == f"{indent}```"), None)
        if end is None:
            raise ValueError(f"{page}:{at + 1}: this block does not end")
        instead = _INSTEAD.search(lines[at - 1]) if at else None
        text = "".join(line.removeprefix(indent) + "\n" for line in lines[at + 1:end])
        found.append(Snippet(kind, at + 1, text, instead.groups() if instead else None))
        at = end + 1
    return found
