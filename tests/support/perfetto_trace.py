#!/usr/bin/python3
"""Reads Perfetto traces with classes that protoc makes of perfetto_subset.proto, and refuses what a viewer would get
wrong: unknown fields, references to nothing, ends without begins, slices that do not nest.

    perfetto_trace.py FILE      prints the events of each process, track and category as JSON
"""

import collections
import functools
import importlib
import json
import pathlib
import subprocess
import sys
import tempfile

Track = collections.namedtuple("Track", "uuid name process parent unit")
Slice = collections.namedtuple("Slice", "process track name category begin_ns end_ns depth arguments flows")
Counter = collections.namedtuple("Counter", "process track time_ns value")
Instant = collections.namedtuple("Instant", "track name arguments")


class TraceError(Exception):
    """The trace is not one that a viewer shows as it was meant."""


@functools.cache
def messages():
    """The generated module."""
    source = pathlib.Path(__file__).resolve().with_name("perfetto_subset.proto")
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run(["protoc", f"-I{source.parent}", f"--python_out={folder}", str(source)], check=True)
        sys.path.insert(0, folder)
        try:
            return importlib.import_module("perfetto_subset_pb2")
        finally:
            sys.path.remove(folder)


class Reader:
    """One trace: tracks by uuid, slices, counters and instants in order of time."""

    def __init__(self, data):
        trace = messages().Trace()
        trace.ParseFromString(data)
        size = trace.ByteSize()
        trace.DiscardUnknownFields()
        if trace.ByteSize() != size:
            raise TraceError(f"{size - trace.ByteSize()} bytes are in fields that the subset does not have")
        self.tracks = {}
        self.slices = []
        self.counters = []
        self.instants = []
        self._interned = {}
        self._cleared = False
        events = []
        for packet in trace.packet:
            self._take_state(packet)
            if packet.HasField("track_event"):
                if not packet.sequence_flags & 2 or not self._cleared:
                    raise TraceError("an event before the interned data that it refers to")
                events.append(packet)
        # As trace_processor does: by time, what is at one time in the order of the file.
        events.sort(key=lambda packet: packet.timestamp)
        self._open = collections.defaultdict(list)
        for packet in events:
            self._take_event(packet.timestamp, packet.track_event)
        left = [stack for stack in self._open.values() if stack]
        if left:
            raise TraceError(f"{len(left)} tracks have slices without an end")
        self.slices.sort(key=lambda one: (one.begin_ns, one.depth))

    def _take_state(self, packet):
        if packet.trusted_packet_sequence_id != 1:
            raise TraceError("a packet of another sequence")
        if packet.sequence_flags & 1:
            self._interned.clear()
            self._cleared = True
        for field, entries in packet.interned_data.ListFields():
            for entry in entries:
                text = entry.str.decode() if field.name == "debug_annotation_string_values" else entry.name
                if entry.iid == 0 or self._interned.setdefault((field.name, entry.iid), text) != text:
                    raise TraceError(f"{field.name} {entry.iid} stands for two texts")
        if packet.HasField("track_descriptor"):
            self._take_track(packet.track_descriptor)

    def _take_track(self, descriptor):
        parent = descriptor.parent_uuid if descriptor.HasField("parent_uuid") else None
        if parent is not None and parent not in self.tracks:
            raise TraceError(f"track {descriptor.name} has no parent")
        if descriptor.uuid == 0 or descriptor.uuid in self.tracks:
            raise TraceError(f"track {descriptor.uuid} twice")
        process = descriptor.process.process_name if descriptor.HasField("process") else (
            self.tracks[parent].process if parent is not None else "")
        unit = None
        if descriptor.HasField("counter"):
            is_bytes = descriptor.counter.unit == messages().CounterDescriptor.UNIT_SIZE_BYTES
            unit = "bytes" if is_bytes else descriptor.counter.unit_name
        self.tracks[descriptor.uuid] = Track(descriptor.uuid, descriptor.name, process, parent, unit)

    def _text(self, table, iid):
        try:
            return self._interned[(table, iid)]
        except KeyError:
            raise TraceError(f"{table} {iid} is not defined") from None

    def _arguments(self, event):
        arguments = {}
        for one in event.debug_annotations:
            kind = one.WhichOneof("value")
            value = getattr(one, kind)
            if kind == "string_value_iid":
                value = self._text("debug_annotation_string_values", value)
            name = self._text("debug_annotation_names", one.name_iid)
            if name in arguments:
                raise TraceError(f"argument {name} twice")
            arguments[name] = value
        return arguments

    def _take_event(self, time_ns, event):
        kinds = messages().TrackEvent
        if event.track_uuid not in self.tracks:
            raise TraceError(f"an event on track {event.track_uuid}, which is not described")
        track = self.tracks[event.track_uuid]
        if (event.type == kinds.TYPE_COUNTER) != (track.unit is not None):
            raise TraceError(f"an event of type {event.type} on track {track.name}")
        stack = self._open[track.uuid]
        if event.type == kinds.TYPE_SLICE_BEGIN:
            categories = [self._text("event_categories", iid) for iid in event.category_iids]
            stack.append((time_ns, self._text("event_names", event.name_iid), ",".join(categories),
                          self._arguments(event), tuple(event.flow_ids)))
        elif event.type == kinds.TYPE_SLICE_END:
            if not stack:
                raise TraceError(f"an end without a begin on {track.name}")
            begin_ns, name, category, arguments, flows = stack.pop()
            self.slices.append(Slice(track.process, track.name, name, category, begin_ns, time_ns, len(stack),
                                     arguments, flows))
        elif event.type == kinds.TYPE_COUNTER:
            self.counters.append(Counter(track.process, track.name, time_ns, event.double_counter_value))
        elif event.type == kinds.TYPE_INSTANT:
            self.instants.append(Instant(track.name, event.name, self._arguments(event)))
        else:
            raise TraceError(f"an event of type {event.type}")

    def counts(self):
        """Events by (process, track, category); counters and instants have the category ""."""
        result = collections.Counter((one.process, one.track, one.category) for one in self.slices)
        result.update((one.process, one.track, "") for one in self.counters)
        result.update(("", one.track, "") for one in self.instants)
        return result


def read(path):
    """The trace in the file."""
    return Reader(pathlib.Path(path).read_bytes())


def main():
    """Prints the counts of a file."""
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    try:
        counts = read(sys.argv[1]).counts()
    except (OSError, TraceError) as error:
        sys.exit(f"{sys.argv[1]}: {error}")
    rows = [{"process": process, "track": track, "category": category, "events": count}
            for (process, track, category), count in sorted(counts.items())]
    json.dump(rows, sys.stdout, indent=1, ensure_ascii=False)
    print()


if __name__ == "__main__":
    main()
