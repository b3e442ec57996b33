"""Dashboards as Grafana's classic JSON, made of rows of panels.

A board in boards/ reads top to bottom as it looks: rows of a title, a height and panels; a panel has a title, what
it tells, a unit and its queries. Everything else that Grafana wants to be told is here.
"""

import json

SCHEMA_VERSION = 39
GRID_WIDTH = 24
DATASOURCE = {"type": "prometheus", "uid": "${datasource}"}
# Where the pages of docs/runbooks are served; `generate --runbooks` sets another base.
RUNBOOKS = "docs/runbooks"

# Phases that add up to a step; the others lie within these.
ADDING_PHASES = "data|compute|exposed_gather|exposed_scatter|optimizer|checkpoint|evaluate|other|unattributed"


def q(legend, expression):
    """One query. Spaces and line breaks of the expression are for its readers here."""
    return {"legendFormat": legend, "expr": " ".join(expression.split())}


def row(title, height, *panels):
    """Panels side by side, as wide as they say, or sharing what is left."""
    return {"title": title, "height": height, "panels": panels}


def _panel(kind, title, tells, unit, queries, *, instant=False, width=0, runbook="", defaults=None, overrides=(),
           options=None, transformations=()):
    panel = {
        "type": kind, "title": title, "description": tells, "datasource": DATASOURCE, "width": width,
        "fieldConfig": {"defaults": {"unit": unit, **(defaults or {})}, "overrides": list(overrides)},
        "options": options or {},
        "targets": [{"refId": chr(ord("A") + i), "datasource": DATASOURCE, "editorMode": "code", "instant": instant,
                     "range": not instant, **({"format": "table"} if kind == "table" else {}), **query}
                    for i, query in enumerate(queries)],
    }
    if transformations:
        panel["transformations"] = list(transformations)
    if runbook:
        panel["links"] = [{"title": f"Runbook {runbook}", "url": f"${{runbooks}}/{runbook}.md", "targetBlank": True}]
    return panel


def stat(title, tells, unit, query, *, steps=(), name=False, **more):
    """One number. `steps`: (from, colour); `name`: shows the legend instead of the value."""
    colours = [{"color": "text", "value": None}, *({"color": colour, "value": value} for value, colour in steps)]
    return _panel(
        "stat", title, tells, unit, [query], instant=True,
        defaults={"thresholds": {"mode": "absolute", "steps": colours}, "color": {"mode": "thresholds"}},
        options={"reduceOptions": {"calcs": ["lastNotNull"], "fields": "", "values": False}, "colorMode": "value",
                 "graphMode": "none", "textMode": "name" if name else "auto"}, **more)


def graph(title, tells, unit, *queries, stacked=False, share=False, step=False, ratio=False, log=False, roofs=False,
          **more):
    """Lines over time. `stacked`: areas that add up; `share`: the same, of 1; `ratio`: from 0 to 1; `roofs`: lines
    whose legend starts with "roof" are dashed."""
    custom = {"lineWidth": 1, "fillOpacity": 60 if stacked or share else 0, "showPoints": "never", "spanNulls": False,
              "lineInterpolation": "stepAfter" if step else "linear",
              "stacking": {"mode": "normal" if stacked or share else "none", "group": "A"},
              "scaleDistribution": {"type": "log", "log": 10} if log else {"type": "linear"}}
    limits = {"min": 0} if stacked else {"min": 0, "max": 1} if share or ratio else {}
    overrides = [{"matcher": {"id": "byRegexp", "options": "/^roof/"}, "properties": [
        {"id": "custom.lineStyle", "value": {"fill": "dash", "dash": [10, 10]}},
        {"id": "custom.lineWidth", "value": 2}]}] if roofs else []
    return _panel(
        "timeseries", title, tells, unit, queries, defaults={"custom": custom, **limits}, overrides=overrides,
        options={"legend": {"displayMode": "list", "placement": "bottom", "calcs": []},
                 "tooltip": {"mode": "multi", "sort": "desc"}}, **more)


def bars(title, tells, unit, *queries, limit=None, **more):
    """A bar per series, now. `limit`: the longest possible value."""
    return _panel(
        "bargauge", title, tells, unit, queries, instant=True,
        defaults={"min": 0, **({"max": limit} if limit else {}), "color": {"mode": "continuous-BlPu"}},
        options={"orientation": "horizontal", "displayMode": "basic", "valueMode": "text", "showUnfilled": True,
                 "reduceOptions": {"calcs": ["lastNotNull"], "fields": "", "values": False}}, **more)


def table(title, tells, columns, queries, *, labels, mappings=None, **more):
    """A row per set of `labels` (label -> heading), a column per query: `columns` are (heading, unit) in the
    queries' order. `mappings`: heading -> {value: text}."""
    headings = dict(labels)
    overrides = []
    for i, (heading, unit) in enumerate(columns):
        headings[f"Value #{chr(ord('A') + i)}" if len(columns) > 1 else "Value"] = heading
        overrides.append({"matcher": {"id": "byName", "options": heading},
                          "properties": [{"id": "unit", "value": unit}]})
    for heading, texts in (mappings or {}).items():
        overrides.append({"matcher": {"id": "byName", "options": heading}, "properties": [{"id": "mappings", "value": [
            {"type": "value", "options": {value: {"text": text, "index": i}
                                          for i, (value, text) in enumerate(texts.items())}}]}]})
    return _panel(
        "table", title, tells, "short", queries, instant=True, overrides=overrides,
        transformations=[
            *([{"id": "merge", "options": {}}] if len(columns) > 1 else []),
            {"id": "organize", "options": {"excludeByName": {"Time": True}, "renameByName": headings,
                                           "indexByName": {name: i for i, name in enumerate(headings)}}}],
        options={"showHeader": True, "cellHeight": "sm", "footer": {"show": False}}, **more)


def variable(name, label, query, *, multi=True):
    """What to choose at the top. `multi`: several, all at first."""
    current = {"current": {"text": ["All"], "value": ["$__all"]}, "allValue": ".*"} if multi else {"current": {}}
    return {"name": name, "label": label, "type": "query", "datasource": DATASOURCE, "definition": query,
            "query": {"query": query, "refId": name}, "refresh": 2, "sort": 3, "multi": multi, "includeAll": multi,
            "hide": 0, "regex": "", "options": [], "skipUrlSync": False, **current}


JOB = variable("job_id", "Job", "label_values(fsdp_rank_state, job_id)", multi=False)
RANK = variable("rank", "Rank", 'label_values(fsdp_rank_state{job_id="$job_id"}, rank)')
FAMILY = variable("kernel_family", "Kernel family",
                  'label_values(fsdp_kernel_launches_total{job_id="$job_id"}, kernel_family)')
WORKER = variable("worker", "Worker", "label_values(fsdp_worker_connected, worker)")


def _templating(variables, runbooks):
    datasource = {"name": "datasource", "label": "Data source", "type": "datasource", "query": "prometheus",
                  "refresh": 1, "hide": 0, "multi": False, "includeAll": False, "regex": "", "options": [],
                  "skipUrlSync": False, "current": {}}
    base = {"name": "runbooks", "label": "Runbooks", "type": "constant", "hide": 2, "query": runbooks,
            "skipUrlSync": True, "options": [], "current": {"text": runbooks, "value": runbooks}}
    return {"list": [datasource, *variables, base]}


def _place(rows):
    """Panels with ids and positions."""
    panels, y = [], 0
    for line in rows:
        panels.append({"type": "row", "title": line["title"], "collapsed": False, "panels": [],
                       "id": len(panels) + 1, "gridPos": {"x": 0, "y": y, "w": GRID_WIDTH, "h": 1}})
        y, x = y + 1, 0
        told = [panel["width"] for panel in line["panels"]]
        shared = (GRID_WIDTH - sum(told)) // max(1, told.count(0))
        for panel in line["panels"]:
            width = panel["width"] or shared
            assert x + width <= GRID_WIDTH, f"{line['title']}: {panel['title']} does not fit"
            placed = {key: value for key, value in panel.items() if key != "width"}
            panels.append({**placed, "id": len(panels) + 1,
                           "gridPos": {"x": x, "y": y, "w": width, "h": line["height"]}})
            x += width
        y += line["height"]
    return panels


def board(name, title, tells, variables, *rows):
    """Returns what render() takes."""
    return {"name": name, "title": title, "tells": tells, "variables": variables, "rows": rows}


def render(definition, runbooks=RUNBOOKS):
    """The JSON text of a board."""
    links = [{"type": "dashboards", "title": "FSDP", "tags": ["fsdp"], "asDropdown": True, "includeVars": True,
              "keepTime": True, "targetBlank": False, "icon": "external link", "tooltip": "", "url": ""},
             {"type": "link", "title": "Runbooks", "url": "${runbooks}/README.md", "tags": [], "asDropdown": False,
              "includeVars": False, "keepTime": False, "targetBlank": True, "icon": "doc", "tooltip": ""}]
    document = {
        "uid": f"fsdp-{definition['name']}", "title": definition["title"], "description": definition["tells"],
        "tags": ["fsdp"], "editable": False, "graphTooltip": 1, "schemaVersion": SCHEMA_VERSION, "version": 1,
        "id": None, "refresh": "10s", "time": {"from": "now-1h", "to": "now"}, "timepicker": {}, "timezone": "",
        "annotations": {"list": []}, "links": links,
        "templating": _templating(definition["variables"], runbooks), "panels": _place(definition["rows"]),
    }
    return json.dumps(document, indent=1, ensure_ascii=False) + "\n"
