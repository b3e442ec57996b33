"""Reads Dockerfiles and names what is wrong with them: the checks that this repository holds its images to."""

import dataclasses
import json
import re
import shlex

LABELS = ["title", "description", "version", "revision", "created", "licenses"]


@dataclasses.dataclass
class Stage:
    image: str
    name: str
    steps: list  # (instruction, text)


def instructions(text):
    """(instruction, arguments) with continued lines joined and comments dropped."""
    lines = [line for line in text.splitlines() if not line.lstrip().startswith("#")]
    for line in re.sub(r"\\\n\s*", " ", "\n".join(lines)).splitlines():
        if line.strip():
            word, _, rest = line.strip().partition(" ")
            yield word.upper(), rest.strip()


def stages(text):
    """The global arguments, and the stages with these put in for what FROM names."""
    arguments, found = {}, []
    for word, rest in instructions(text):
        if word == "FROM":
            image, _, name = re.sub(r"\$\{(\w+)\}", lambda m: arguments[m[1]], rest).partition(" AS ")
            found.append(Stage(image, name, []))
        elif not found:
            assert word == "ARG", word
            key, _, value = rest.partition("=")
            arguments[key] = value
        else:
            found[-1].steps.append((word, rest))
    return arguments, found


def ignored(patterns, path):
    """Whether .dockerignore leaves `path` (a file or folder at the top, or below one) out of the context."""
    out = False
    for line in patterns.splitlines():
        if not line or line.startswith("#"):
            continue
        pattern = line.removeprefix("!")
        if pattern == "*" or path == pattern or path.startswith(pattern + "/"):
            out = not line.startswith("!")
    return out


def _apt_faults(command):
    if "apt-get install" not in command and "install_deps" not in command:
        return
    if "rm -rf /var/lib/apt/lists/*" not in command:
        yield "package lists stay in the layer: end the RUN with rm -rf /var/lib/apt/lists/*"
    if "apt-get install" in command:
        if "--no-install-recommends" not in command or " -y" not in command:
            yield "apt-get install without -y --no-install-recommends"
        if "apt-get update" not in command:
            yield "apt-get install without apt-get update in the same RUN: a stale layer"


def _step_faults(word, rest, names, exists):
    if word == "ADD":
        yield "ADD: use COPY; what comes from elsewhere is a package or an image"
    if word == "RUN":
        yield from _apt_faults(rest)
        if re.search(r"\b(curl|wget)\b", rest):
            yield f"RUN fetches by itself: {rest[:60]}"
        if re.search(r"\bsudo\b", rest):
            yield "sudo in a RUN"
    if word in ("ENV", "ARG") and re.search(r"(?i)(passw|secret|token|private_key)", rest):
        yield f"{word} with a secret stays in the image: {rest.split('=')[0]}"
    if word in ("ENTRYPOINT", "CMD"):
        try:
            json.loads(rest)
        except json.JSONDecodeError:
            yield f"{word} in shell form: signals would reach a shell"
    if word == "COPY":
        words = shlex.split(rest)
        source = [w.removeprefix("--from=") for w in words if w.startswith("--from=")]
        if source and source[0] not in names:
            yield f"COPY --from={source[0]}: no such stage"
        if not source:
            for path in words[:-1]:
                if not exists(path):
                    yield f"COPY {path}: not in the context"


def faults(text, exists):
    """What is wrong, in words. exists(path): whether the context has it."""
    arguments, found = stages(text)
    names = set()
    for stage in found:
        if not re.fullmatch(r"[\w./-]+:\d+\.\d+[\w.-]*(@sha256:[0-9a-f]{64})?", stage.image):
            yield f"FROM {stage.image}: pin a release, such as debian:12.12-slim"
        for word, rest in stage.steps:
            yield from _step_faults(word, rest, names, exists)
        names.add(stage.name)
    last = found[-1]
    if len(found) < 2:
        yield "one stage: compilers stay in the image"
    users = [rest for word, rest in last.steps if word == "USER"]
    if not users or not re.fullmatch(r"[1-9]\d*:[1-9]\d*", users[-1]):
        yield f"USER {users[-1:]}: end as a user that is not root, by numbers, which Kubernetes can check"
    after = [word for word, _ in last.steps]
    if "USER" in after and "RUN" in after[after.index("USER"):]:
        yield "RUN after USER"
    labels = " ".join(rest for word, rest in last.steps if word == "LABEL")
    for name in LABELS:
        if f"org.opencontainers.image.{name}=" not in labels:
            yield f"no label org.opencontainers.image.{name}"
    for word in ("HEALTHCHECK", "ENTRYPOINT"):
        if word not in after:
            yield f"no {word}"
    if "sbom document" not in " ".join(rest for word, rest in last.steps if word == "RUN"):
        yield "no bill of materials"
    if not arguments:
        yield "base images cannot be replaced by their digests: name them by ARG"
