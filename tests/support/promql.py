"""What PromQL expressions refer to, and the metrics that there are. No parser: promtool says whether an
expression is valid, this finds the names and labels in valid ones.
"""

import dataclasses
import functools
import pathlib
import re

SOURCE = pathlib.Path(__file__).resolve().parents[2]
# Given by Prometheus to every series that it scrapes.
TARGET_LABELS = {"job", "instance"}
# Made by Prometheus itself.
OWN_METRICS = {"up": set(), "scrape_duration_seconds": set(), "scrape_samples_scraped": set(),
               "ALERTS": {"alertname", "alertstate", "severity", "job_id", "rank", "worker", "device"}}

TOKEN = re.compile(r"""
    (?P<string>"(?:\\.|[^"\\])*"|'(?:\\.|[^'\\])*')
  | (?P<variable>\$\{\w+(?::\w+)?\}|\$\w+)
  | (?P<number>\d[\w.]*)
  | (?P<name>[A-Za-z_:][\w:]*)
  | (?P<mark>=~|!~|!=|==|<=|>=|[-+*/%^<>=(){}\[\],:@])
""", re.VERBOSE)
GROUPING = {"by", "without", "on", "ignoring", "group_left", "group_right"}
OPERATORS = {"and", "or", "unless", "offset", "bool", "inf", "nan"}
AGGREGATIONS = {"sum", "min", "max", "avg", "count", "group", "stddev", "topk", "bottomk", "quantile", "count_values"}


@dataclasses.dataclass(frozen=True)
class Metric:
    """A row of docs/metrics.md."""
    kind: str
    unit: str
    labels: frozenset


@dataclasses.dataclass
class Selector:
    """`name{label="value"}[range]` in a call of `function`."""
    name: str
    # label -> (operator, value)
    matchers: dict
    range: str
    function: str


@functools.cache
def metrics():
    """name -> Metric, of the page that the build keeps equal to the table in the code."""
    page = (SOURCE / "docs" / "metrics.md").read_text()
    found = {}
    for row in re.findall(r"^\| `(fsdp_\w+)` \| (\w+) \| ([^|]*) \| ([^|]*) \|", page, re.MULTILINE):
        name, kind, unit, labels = row
        names = frozenset(re.findall(r"`(\w+)`", labels))
        if kind == "histogram":
            found[f"{name}_bucket"] = Metric("counter", "", names | {"le"})
            found[f"{name}_sum"] = Metric("counter", unit, names)
            found[f"{name}_count"] = Metric("counter", "", names)
        else:
            found[name] = Metric(kind, unit, names)
    assert len(found) > 90, "docs/metrics.md has no tables any more"
    return found


def tokens(expression):
    found = [(match.lastgroup, match.group()) for match in TOKEN.finditer(expression)]
    assert "".join(text for _, text in found) == re.sub(
        r"\s+(?=(?:[^\"']|\"[^\"]*\"|'[^']*')*$)", "", expression), f"cannot read {expression}"
    return found


def _matchers(found, position):
    """From behind a `{` to behind its `}`."""
    matchers = {}
    while found[position][1] != "}":
        if found[position][1] != ",":
            matchers[found[position][1]] = (found[position + 1][1], found[position + 2][1][1:-1])
            position += 2
        position += 1
    return matchers, position + 1


def read(expression):
    """Returns (selectors, groupings): groupings are (keyword, [labels])."""
    found, position = tokens(expression), 0
    selectors, groupings, calls = [], [], []

    def at(index):
        return found[index][1] if index < len(found) else ""

    while position < len(found):
        kind, text = found[position]
        position += 1
        if kind == "name" and text.lower() in GROUPING:
            labels = []
            if at(position) == "(":
                end = next(i for i in range(position, len(found)) if at(i) == ")")
                labels = [label for _, label in found[position + 1:end] if label != ","]
                position = end + 1
            groupings.append((text.lower(), labels))
        elif kind == "name" and text.lower() in OPERATORS:
            continue
        elif kind == "name" and (text.lower() in AGGREGATIONS or at(position) == "("):
            if at(position) == "(":
                calls.append(text)
                position += 1
        elif kind == "name" or text == "{":
            matchers, window = {}, ""
            if text == "{" or at(position) == "{":
                matchers, position = _matchers(found, position + (text != "{"))
            if at(position) == "[":
                end = next(i for i in range(position, len(found)) if at(i) == "]")
                window = "".join(part for _, part in found[position + 1:end])
                position = end + 1
            selectors.append(Selector(text.strip("{"), matchers, window, calls[-1] if calls else ""))
        elif text == "(":
            calls.append("")
        elif text == ")":
            calls.pop()
    return selectors, groupings


def faults(expression, recorded=(), counted=()):
    """What an expression says of metrics that is not so, as texts. `recorded`: name -> labels of recording
    rules; `counted`: counters whose count itself is meant."""
    selectors, groupings = read(expression)
    recorded, known, wrong = dict(recorded), metrics(), []
    # What may be grouped by: labels of the metrics that take part.
    labels_of_all = set(TARGET_LABELS)
    for selector in selectors:
        name = selector.name
        if name in known:
            labels = known[name].labels
        elif name in recorded or name in OWN_METRICS:
            labels = recorded.get(name) or OWN_METRICS.get(name, set())
        else:
            wrong.append(f"no metric is named {name}" if name else "a selector without a name")
            continue
        labels_of_all |= set(labels)
        wrong += [f"{name} has no label {label}" for label in selector.matchers
                  if label not in set(labels) | TARGET_LABELS]
        counter = name in known and known[name].kind == "counter"
        if counter and name not in counted and not (selector.range and selector.function in ("rate", "increase", "irate", "resets")):
            wrong.append(f"the counter {name} is not in rate() or increase()")
        if not counter and selector.function in ("rate", "increase", "irate", "resets"):
            wrong.append(f"{name} is no counter, but in {selector.function}()")
    wrong += [f"none of the metrics has the label {label} of {keyword}()"
              for keyword, labels in groupings for label in labels if label not in labels_of_all]
    return wrong
