"""The files of a profile, read by implementations that are not ours, against the recordings that they were made of."""

import collections
import gzip
import html.parser
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import unittest
import xml.etree.ElementTree

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[4] / "support"))
import perfetto_trace  # noqa: E402

WRITER = pathlib.Path(os.environ["FSDP_BINARY_DIR"]) / "write_example_profile"
TRACKS = {"HOST": "host", "COMPUTE": "compute", "GATHER": "gather", "SCATTER": "scatter", "COPY": "copy",
          "PHASE": "phases"}
Span = collections.namedtuple("Span", "rank track name category begin_ns end_ns arguments")


def clean(text):
    """As traces and pages have users' texts: no control characters."""
    return re.sub(r"[\x00-\x1f\x7f-\x9f]", "\ufffd", text)


class Recording:
    """profile.json: what was recorded, on one time axis."""

    def __init__(self, folder):
        self.profile = json.loads((folder / "profile.json").read_text())
        clocks = {clock.get("rank", 0): int(clock.get("offsetNs", 0)) for clock in self.profile["clocks"]}
        begins = {rank.get("rank", 0): int(rank["beginNs"]) + clocks[rank.get("rank", 0)]
                  for rank in self.profile["ranks"]}
        origin = min(begins.values())
        self.spans, self.counters = [], []
        for rank in self.profile["ranks"]:
            number = rank.get("rank", 0)
            shift = begins[number] - origin
            for span in rank["spans"]:
                self.spans.append(self.span_of(rank, number, shift, span))
            for counter in rank["counters"]:
                for time_ns, value in zip(counter["timeNs"], counter["values"]):
                    self.counters.append((number, counter["name"], shift + int(time_ns), value))

    @staticmethod
    def span_of(rank, number, shift, span):
        text = {key: clean(rank["strings"][span.get(key, 0)]) for key in ("name", "family", "shape")}
        track = TRACKS[span["track"].removeprefix("PROFILE_TRACK_")]
        begin = shift + int(span.get("beginNs", 0))
        arguments = {key: text[key] for key in ("family", "shape") if text[key]}
        arguments.update({key: span[key] for key in ("flops", "bytes") if key in span})
        arguments["step"] = int(span.get("step", 0))
        if "sequence" in span:
            arguments["sequence"] = int(span["sequence"])
        return Span(number, track, text["name"], text["family"] or track, begin,
                    begin + int(span.get("durationNs", 0)), arguments)


def key(span):
    return span.rank, span.track, span.begin_ns, span.end_ns, span.name, span.category, \
        tuple(sorted((name, value if isinstance(value, str) else float(value))
                     for name, value in span.arguments.items()))


def rank_of(process):
    return int(re.match(r"rank (\d+)", process).group(1))


class PageParser(html.parser.HTMLParser):
    """Balanced tags, what the page loads or runs, its ids and links."""

    VOID = {"meta", "link", "br", "hr", "img", "input", "rect", "circle", "line", "polyline"}

    def __init__(self):
        super().__init__()
        self.open, self.faults, self.tags, self.ids, self.links, self.text = [], [], collections.Counter(), [], [], []
        self.policy = ""

    def handle_starttag(self, tag, attrs):
        self.tags[tag] += 1
        attributes = dict(attrs)
        for name in attributes:
            if name.startswith("on"):
                self.faults.append(f"{tag} has {name}")
        if attributes.get("http-equiv") == "Content-Security-Policy":
            self.policy = attributes["content"]
        if "id" in attributes:
            self.ids.append(attributes["id"])
        for name in ("src", "href"):
            if name in attributes:
                self.links.append(attributes[name])
        if tag not in self.VOID or tag in ("rect", "circle", "polyline"):
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.handle_starttag(tag, attrs)
        if self.open and self.open[-1] == tag and (tag not in self.VOID or tag in ("rect", "circle", "polyline")):
            self.open.pop()

    def handle_endtag(self, tag):
        if not self.open or self.open.pop() != tag:
            self.faults.append(f"</{tag}> closes nothing")

    def handle_data(self, data):
        self.text.append(data)


class ProfileFilesTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.temporary = tempfile.TemporaryDirectory()
        cls.folder = pathlib.Path(cls.temporary.name)
        subprocess.run([WRITER, cls.folder, "hostile"], check=True, capture_output=True)
        cls.recording = Recording(cls.folder)

    @classmethod
    def tearDownClass(cls):
        cls.temporary.cleanup()

    def test_perfetto_trace_has_the_recordings_events(self):
        trace = perfetto_trace.read(self.folder / "trace.perfetto-trace")
        found = [Span(rank_of(one.process), one.track, one.name, one.category, one.begin_ns, one.end_ns,
                      one.arguments) for one in trace.slices]
        self.assertEqual(sorted(map(key, found)), sorted(map(key, self.recording.spans)))
        counters = [(rank_of(one.process), one.track, one.time_ns, one.value) for one in trace.counters]
        self.assertEqual(sorted(counters), sorted(self.recording.counters))

    def test_perfetto_counts_by_track_and_category(self):
        trace = perfetto_trace.read(self.folder / "trace.perfetto-trace")
        expected = collections.Counter((span.rank, span.track, span.category) for span in self.recording.spans)
        expected.update((rank, name, "") for rank, name, _, _ in self.recording.counters)
        found = {(rank_of(process), track, category): count
                 for (process, track, category), count in trace.counts().items() if process}
        self.assertEqual(found, dict(expected))
        # softmax lies in attention.fwd, the mark in softmax.
        depths = {one.name: one.depth for one in trace.slices if one.track == "compute"}
        self.assertEqual([depths[name] for name in ("attention.fwd", "softmax 核 🚀", "mark")], [0, 1, 2])

    def test_perfetto_processes_and_units(self):
        trace = perfetto_trace.read(self.folder / "trace.perfetto-trace")
        processes = [track.process for track in trace.tracks.values() if track.parent is None and track.process]
        self.assertEqual(processes, ["rank 0", "rank 1 (±4 us)", "rank 3 (±12 us)"])
        units = {track.name: track.unit for track in trace.tracks.values() if track.unit is not None}
        self.assertEqual(units, {"memory": "bytes", "sm": "ratio"})

    def test_perfetto_flows_join_the_ranks(self):
        trace = perfetto_trace.read(self.folder / "trace.perfetto-trace")
        flows = collections.defaultdict(set)
        for one in trace.slices:
            for flow in one.flows:
                flows[flow].add((one.name, one.arguments["sequence"], rank_of(one.process)))
        self.assertEqual(len(flows), 6)
        for stops in flows.values():
            self.assertEqual(len({stop[:2] for stop in stops}), 1, stops)
            self.assertEqual({stop[2] for stop in stops}, {0, 1, 3})

    def test_perfetto_notes(self):
        trace = perfetto_trace.read(self.folder / "trace.perfetto-trace")
        names = [one.name for one in trace.instants]
        self.assertEqual(names, ["rank 0", "rank 1 (±4 us)", "rank 3 (±12 us)",
                                 "rank 2: its worker did not answer within 30s",
                                 "rank 0: counters: <b>not permitted</b>",
                                 "rank 1: 7 spans did not fit into the recording"])
        self.assertEqual(trace.instants[2].arguments["clock_uncertainty_ns"], 12000)
        self.assertEqual(trace.instants[2].arguments["clock_shift_ns"], 60000)

    def test_perfetto_cap_drops_and_tells(self):
        with tempfile.TemporaryDirectory() as name:
            folder = pathlib.Path(name)
            done = subprocess.run([WRITER, folder, "hostile", "9000"], check=True, capture_output=True, text=True)
            left_out = int(done.stdout)
            self.assertGreater(left_out, 0)
            self.assertLessEqual((folder / "trace.perfetto-trace").stat().st_size, 9000)
            trace = perfetto_trace.read(folder / "trace.perfetto-trace")
        self.assertIn(f"{left_out} events left out of this trace", [one.name for one in trace.instants])
        written = len(trace.slices) + len(trace.counters)
        self.assertEqual(written + left_out, len(self.recording.spans) + len(self.recording.counters))
        # What is there is as it was recorded.
        recorded = collections.Counter(map(key, self.recording.spans))
        for one in trace.slices:
            recorded[key(Span(rank_of(one.process), *one[1:6], one.arguments))] -= 1
        self.assertGreaterEqual(min(recorded.values()), 0)

    def test_broken_traces_are_refused(self):
        """That the reader can fail: it is what the other tests stand on."""
        subset = perfetto_trace.messages()
        good = (self.folder / "trace.perfetto-trace").read_bytes()
        cases = {
            "fields that the subset does not have": lambda trace: trace.packet[5].MergeFromString(b"\x98\x06\x01"),
            "without an end": lambda trace: trace.packet.remove(
                [p for p in trace.packet if p.track_event.type == 2][-1]),
            "is not defined": lambda trace: trace.packet[0].interned_data.event_names.pop(),
            "which is not described": lambda trace: trace.packet.remove(
                [p for p in trace.packet if p.track_descriptor.name == "compute"][0]),
        }
        for message, damage in cases.items():
            trace = subset.Trace.FromString(good)
            damage(trace)
            with self.assertRaisesRegex(perfetto_trace.TraceError, message):
                perfetto_trace.Reader(trace.SerializeToString())

    def test_chrome_trace_has_the_recordings_events(self):
        trace = json.loads(gzip.decompress((self.folder / "trace.json.gz").read_bytes()))
        threads = {(event["pid"], event["tid"]): event["args"]["name"] for event in trace["traceEvents"]
                   if event["name"] == "thread_name"}
        found, counters = [], []
        for event in trace["traceEvents"]:
            if event["ph"] == "X":
                begin, duration = round(event["ts"] * 1000), round(event["dur"] * 1000)
                found.append(Span(event["pid"] - 1, threads[event["pid"], event["tid"]], event["name"],
                                  event["cat"], begin, begin + duration, event["args"]))
            elif event["ph"] == "C":
                (value,) = event["args"].values()
                counters.append((event["pid"] - 1, event["name"], round(event["ts"] * 1000), value))
        self.assertEqual(sorted(map(key, found)), sorted(map(key, self.recording.spans)))
        self.assertEqual(sorted(counters), sorted(self.recording.counters))
        self.assertEqual(trace["otherData"]["job"], self.recording.profile["job"])

    def test_chrome_lanes_nest(self):
        trace = json.loads(gzip.decompress((self.folder / "trace.json.gz").read_bytes()))
        lanes = collections.defaultdict(list)
        for event in trace["traceEvents"]:
            if event["ph"] == "X":
                lanes[event["pid"], event["tid"]].append((round(event["ts"] * 1000), -round(event["dur"] * 1000)))
        for spans in lanes.values():
            ends = []
            for begin, minus_duration in sorted(spans):
                while ends and ends[-1] <= begin:
                    ends.pop()
                self.assertTrue(not ends or begin - minus_duration <= ends[-1])
                ends.append(begin - minus_duration)

    def test_page_is_whole_and_alone(self):
        page = (self.folder / "report.html").read_text()
        parser = PageParser()
        parser.feed(page)
        parser.close()
        self.assertEqual(parser.faults, [])
        self.assertEqual(parser.open, [])
        self.assertEqual(parser.tags["script"] + parser.tags["link"] + parser.tags["iframe"] + parser.tags["img"], 0)
        self.assertIn("default-src 'none'", parser.policy)
        self.assertEqual(len(parser.ids), len(set(parser.ids)))
        for link in parser.links:
            self.assertTrue(link.startswith("#") and link[1:] in parser.ids, link)
        without_namespace = page.replace("http://www.w3.org/2000/svg", "")
        self.assertNotRegex(without_namespace, r"https?:|//[a-z]|url\(|@import")
        text = "".join(parser.text)
        for expected in ("Example:", "jobs/minillm-<script>alert('x')</script>-ü", "softmax 核 🚀", "matmul.mlp",
                         "counters: <b>not permitted</b>", "rank 2: its worker did not answer"):
            self.assertIn(expected, text)

    def test_roofline_is_xml(self):
        root = xml.etree.ElementTree.parse(self.folder / "roofline.svg").getroot()
        self.assertEqual(root.tag, "{http://www.w3.org/2000/svg}svg")
        circles = [one for one in root.iter("{http://www.w3.org/2000/svg}circle") if len(one)]
        self.assertEqual(len(circles), 6)
        for circle in circles:
            self.assertTrue(84 <= float(circle.get("cx")) <= 774 and 44 <= float(circle.get("cy")) <= 404)


if __name__ == "__main__":
    unittest.main()
