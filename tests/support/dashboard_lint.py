"""What makes a dashboard hard to use or wrong, found in its JSON. The rules are those of Grafana's own linter that
fit dashboards without a job and instance chooser, and that names and labels exist.
"""

import json
import re
import subprocess
import tempfile

import promql

# Of Grafana's units, those that fit base units.
UNITS = {"none", "short", "s", "bytes", "Bps", "percentunit", "cps", "reqps", "flops", "watt", "celsius", "hertz"}
# In Grafana by themselves.
BUILT_IN = {"__rate_interval", "__range"}


def panels_of(board):
    """Those with queries."""
    return [panel for panel in board["panels"] if panel["type"] != "row"]


def queries_of(board):
    """(panel, target) of all queries."""
    return [(panel, target) for panel in panels_of(board) for target in panel["targets"]]


def substitute(expression, **values):
    """Variables replaced, as Grafana does it: by `values`, else by something of the right shape."""
    values = {"__rate_interval": "1m", "__range": "1h", **values}
    return re.sub(r"\$\{?(\w+)(?::\w+)?\}?", lambda match: values.get(match.group(1), ".*"), expression)


def _head(board):
    if not re.fullmatch(r"fsdp-[a-z]+", board.get("uid") or ""):
        yield "uid is not fixed"
    if board.get("editable") is not False:
        yield "editable is not false"
    if board.get("schemaVersion") != 39:
        yield "schemaVersion is not 39"
    if board.get("id") is not None:
        yield "id belongs to one Grafana"
    for field in ("title", "description", "tags"):
        if not board.get(field):
            yield f"no {field}"


def _datasources(board):
    templated = [v["name"] for v in board["templating"]["list"] if v["type"] == "datasource"]
    if templated != ["datasource"]:
        yield "no variable datasource"
    for place in re.findall(r'"datasource": (\{[^{}]*\}|"[^"]*"|null)', json.dumps(board)):
        if place != '{"type": "prometheus", "uid": "${datasource}"}':
            yield f"datasource {place} is not the variable"


def _variables(board):
    names = {v["name"] for v in board["templating"]["list"]}
    used = set(re.findall(r"\$\{?(\w+)", json.dumps(board["panels"]) + json.dumps(board["links"]))) - BUILT_IN
    # One variable may narrow another.
    text = json.dumps([v.get("definition", "") for v in board["templating"]["list"]])
    for name in used - names:
        yield f"${name} is not declared"
    for name in names - used - set(re.findall(r"\$(\w+)", text)):
        yield f"variable {name} is not used"
    for variable in board["templating"]["list"]:
        if variable["type"] != "query":
            continue
        match = re.fullmatch(r"label_values\((.*), (\w+)\)", variable["definition"])
        if not match:
            yield f"variable {variable['name']} is no label_values()"
            continue
        selector, label = match.groups()
        for fault in promql.faults(f"count by ({label}) ({substitute(selector)})"):
            if "is not in rate()" not in fault:
                yield f"variable {variable['name']}: {fault}"


def _places(board):
    taken, ids = set(), set()
    for panel in board["panels"]:
        at = panel["gridPos"]
        cells = {(x, y) for x in range(at["x"], at["x"] + at["w"]) for y in range(at["y"], at["y"] + at["h"])}
        if at["x"] + at["w"] > 24 or taken & cells:
            yield f"{panel['title']}: overlaps or leaves the grid"
        if panel["id"] in ids:
            yield f"{panel['title']}: its id is taken"
        taken |= cells
        ids.add(panel["id"])


def _panel(panel):
    if not panel.get("title"):
        yield "no title"
    if len(panel.get("description", "")) < 10:
        yield "no description"
    if not panel["targets"]:
        yield "no query"
    told = [panel["fieldConfig"]["defaults"].get("unit")]
    told += [p["value"] for o in panel["fieldConfig"]["overrides"] for p in o["properties"] if p["id"] == "unit"]
    for unit in told:
        if unit not in UNITS:
            yield f"unit {unit} is none of Grafana's, or not for base units"
    for link in panel.get("links", []):
        page = link["url"].removeprefix("${runbooks}/")
        if not (promql.SOURCE / "docs" / "runbooks" / page).exists():
            yield f"link to {link['url']}, which does not exist"


def _query(panel, target):
    expression = target["expr"]
    for window in re.findall(r"\[([^\]]*)\]", expression):
        if window not in ("$__rate_interval", "$__range"):
            yield f"window [{window}] does not follow the time range"
    plain = substitute(expression)
    yield from promql.faults(plain)
    selectors, groupings = promql.read(plain)
    kept = {label for keyword, labels in groupings if keyword == "by" for label in labels}
    if not any(keyword == "by" for keyword, _ in groupings):
        kept = promql.TARGET_LABELS.union(*(promql.metrics()[s.name].labels for s in selectors
                                            if s.name in promql.metrics()))
    for label in re.findall(r"\{\{(\w+)\}\}", target.get("legendFormat", "")):
        if label not in kept:
            yield f"the legend's {label} is not in the result"
    if panel["type"] != "timeseries" and not target.get("instant"):
        yield "shows the present with a query of a range"


def lint(board):
    """Faults as texts, each with the panel that it is of."""
    found = [fault for rule in (_head, _datasources, _variables, _places) for fault in rule(board)]
    titles = [panel["title"] for panel in panels_of(board)]
    found += [f"{title}: two panels are called so" for title in sorted({t for t in titles if titles.count(t) > 1})]
    for panel in panels_of(board):
        found += [f"{panel.get('title')}: {fault}" for fault in _panel(panel)]
    for panel, target in queries_of(board):
        found += [f"{panel.get('title')}: {fault}: {target['expr']}" for fault in _query(panel, target)]
    return found


def parse_faults(expressions):
    """What promtool says of expressions that are not valid; variables are replaced before."""
    rules = [{"record": "query", "expr": substitute(text), "labels": {"of": str(i)}}
             for i, text in enumerate(expressions)]
    with tempfile.NamedTemporaryFile("w", suffix=".yaml") as file:
        # JSON is YAML.
        json.dump({"groups": [{"name": "queries", "rules": rules}]}, file)
        file.flush()
        done = subprocess.run(["promtool", "check", "rules", file.name], text=True, capture_output=True, check=False)
    return "" if done.returncode == 0 else done.stdout + done.stderr
