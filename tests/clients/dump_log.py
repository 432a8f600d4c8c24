#!/usr/bin/env python3
"""Apache Kafka's DumpLogSegments over segment files, read back into records and batches.

Owns: running `org.apache.kafka.tools.DumpLogSegments --deep-iteration --print-data-log` and parsing
what it prints. Keys and values are printed as hex (HexDecoder.java), so bytes are exact; of headers
the tool prints the names only. Also what it makes of `__transaction_state`, of `.snapshot` and of
`.txnindex` files. As a command: dump_log.py DIRECTORY... prints a line per record.
Must never: pass over a line it cannot read, a batch that the tool calls invalid, or bytes that
belong to no batch.
"""

import json
import pathlib
import re
import sys

sys.dont_write_bytecode = True

import kafka_peer  # noqa: E402
import peer_cache  # noqa: E402
import processes  # noqa: E402
import records  # noqa: E402


class Batch:
    """One batch as printed: its header fields by the tool's names, and its records. A control
    batch has a marker instead: COMMIT or ABORT, and the coordinator's epoch."""

    def __init__(self, file, fields):
        self.file = file
        self.fields = fields
        self.records = []
        self.marker = None

    def number(self, name):
        """A numeric header field."""
        return int(self.fields[name])


def segment_files(directory):
    """The .log files of a partition directory in offset order."""
    return sorted(pathlib.Path(directory).glob("*.log"))


def dump(files, timeout_seconds=120, log_path=None, compacted=False):
    """All batches of these files, in their order. Of a compacted log offsets may be missing, at the
    ends of batches too, and a batch may have lost all of its records."""
    options = ["--deep-iteration", "--print-data-log", "--max-message-size", "20000000"]
    options += ["--key-decoder-class", "HexDecoder", "--value-decoder-class", "HexDecoder"]
    batches = parse(run_tool(files, options, timeout_seconds, log_path, compacted))
    for file in files:
        own = [batch for batch in batches if batch.file == str(file)]
        check_file(pathlib.Path(file), own, compacted)
    return batches


def check_indexes(files, log_path=None):
    """The tool's own verdict on these indexes: what Kafka asks of them at a start, and whether
    every entry is that of a batch in the log beside it. How many of them have entries."""
    found = 0
    for line in run_tool(files, ["--index-sanity-check"], 120, log_path).splitlines():
        if line.endswith(" passed sanity check."):
            found += 1
        elif not line.startswith("Dumping ") and not line.endswith(" is empty."):
            raise records.Mismatch(f"DumpLogSegments printed: {line[:200]}")
    for line in run_tool(files, ["--verify-index-only"], 120, log_path).splitlines():
        if not line.startswith("Dumping ") and not line.endswith(" is empty."):
            raise records.Mismatch(f"DumpLogSegments printed: {line[:200]}")
    return found


def dump_transaction_states(files, log_path=None):
    """What stands in segments of `__transaction_state`: (partition, transactional id, value) in
    log order, the value as the fields of TransactionLogValue or None."""
    found, partition = [], None
    for line in run_tool(files, ["--transaction-log-decoder"], 120, log_path).splitlines():
        if line.startswith("Dumping "):
            partition = partition_of(line[len("Dumping ") :])
        elif match := STATE.search(line):
            value = json.loads(match["value"]) if match["value"] else None
            if value is not None:
                value = value["data"]
            found.append((partition, json.loads(match["key"])["data"]["transactionalId"], value))
        elif line.startswith("| "):
            raise records.Mismatch(f"DumpLogSegments printed a transaction as: {line[:300]}")
    return found


def dump_side_files(files, log_path=None):
    """The lines of `.snapshot` and `.txnindex` files as dictionaries, by file. A number is an int;
    `OptionalLong[5]` is 5 and `OptionalLong.empty` None."""
    found, file = {}, None
    for line in run_tool(files, [], 120, log_path).splitlines():
        if line.startswith("Dumping "):
            file = pathlib.Path(line[len("Dumping ") :])
            found[file] = []
        elif line.startswith(("producerId: ", "version: ")):
            found[file].append({name: number_of(text) for name, text in FIELD.findall(line)})
        elif line.strip():
            raise records.Mismatch(f"DumpLogSegments printed: {line[:200]}")
    return found


def run_tool(files, options, timeout_seconds, log_path, compacted=False):
    """The tool's standard output. It goes on after a file that it cannot read and exits with 0:
    whatever it says on standard error is a fault. (But a segment that begins with a marker after
    offset 0 is called non-consecutive: "-1 is followed by" its offset.)"""
    class_path = peer_cache.kafka_class_path()
    classes = peer_cache.java_classes(class_path)
    command = kafka_peer.java(f"{class_path}:{classes}", TOOL, heap="1g")
    command += ["--files", ",".join(str(file) for file in files), *options]
    finished = processes.run(command, timeout_seconds, log_path)
    lines = finished.error_text.strip().splitlines()
    faults = [line for line in lines if not line.startswith(NO_FAULTS)]
    if compacted:
        faults = [line for line in faults if not GAP.fullmatch(line)]
    if faults:
        raise records.Mismatch(f"DumpLogSegments complained: {' | '.join(faults)[:300]}")
    return finished.text


def number_of(text):
    """A printed number, optional or not; other text as it is."""
    if text == "OptionalLong.empty":
        return None
    text = text.removeprefix("OptionalLong[").removesuffix("]")
    return int(text) if re.fullmatch(r"-?\d+", text) else text


def parse(text):
    """Batches of the tool's output."""
    batches, file = [], None
    for line in text.splitlines():
        if line.startswith("Dumping "):
            file = line[len("Dumping ") :]
        elif line.startswith("baseOffset: "):
            batches.append(Batch(file, dict(FIELD.findall(line))))
        elif match := MARKER.fullmatch(line):
            batches[-1].marker = (match["kind"], int(match["epoch"]))
        elif line.startswith("| offset: "):
            batches[-1].records.append(record_of(line, batches[-1]))
        elif line.strip() and not line.startswith("Log starting offset: "):
            raise records.Mismatch(f"DumpLogSegments printed: {line[:200]}")
    return batches


def record_of(line, batch):
    """A record of its line; `headers` holds (name, None) pairs."""
    match = RECORD.fullmatch(line)
    if match is None:
        raise records.Mismatch(f"DumpLogSegments printed a record as: {line[:200]}")
    key = bytes.fromhex(match["key"]) if match["key"] is not None else None
    value = bytes.fromhex(match["value"]) if match["value"] is not None else None
    for size, data in ((int(match["key_size"]), key), (int(match["value_size"]), value)):
        records.same(f"{batch.file} offset {match['offset']}", "size", size, size_of(data))
    names = match["headers"].split(",") if match["headers"] else []
    headers = [(name, None) for name in names]
    partition = partition_of(batch.file)
    offset, timestamp = int(match["offset"]), int(match["timestamp"])
    return records.Record(partition, key, value, headers, timestamp, offset)


def partition_of(file):
    """The number behind the topic in the name of the directory."""
    return int(pathlib.Path(file).parent.name.rsplit("-", 1)[1])


def directory_of(batch):
    """The name of the partition's directory."""
    return pathlib.Path(batch.file).parent.name


def check_file(file, batches, compacted=False):
    """Batches are valid, back to back, and fill the file to its last byte."""
    position = 0
    for batch in batches:
        place = f"{file} at {position}"
        records.same(place, "isvalid", "true", batch.fields["isvalid"])
        records.same(place, "magic", 2, batch.number("magic"))
        records.same(place, "position", position, batch.number("position"))
        control = batch.fields["isControl"] == "true"
        is_empty = compacted and batch.number("count") == 0
        records.same(place, "marker", control and not is_empty, batch.marker is not None)
        count = len(batch.records) or int(control and not is_empty)
        records.same(place, "count", batch.number("count"), count)
        check_bounds(place, batch, compacted)
        position += batch.number("size")
    records.same(str(file), "bytes in batches", file.stat().st_size, position)
    if batches and not compacted:
        records.same(str(file), "name", int(file.stem), batches[0].number("baseOffset"))


def check_bounds(place, batch, compacted):
    """The offsets of a batch are those of its records, or reach beyond what is left of them."""
    if not batch.records:
        return
    first, last = batch.records[0].offset, batch.records[-1].offset
    base_offset, last_offset = batch.number("baseOffset"), batch.number("lastOffset")
    if not compacted:
        records.same(place, "baseOffset", first, base_offset)
        records.same(place, "lastOffset", last, last_offset)
    records.same(place, "offsets in bounds", True, base_offset <= first and last <= last_offset)


def size_of(data):
    """Length, or -1 for null as the tool prints it."""
    return -1 if data is None else len(data)


def main():
    """The command line."""
    files = [file for directory in sys.argv[1:] for file in segment_files(directory)]
    if not files:
        print("usage: dump_log.py PARTITION-DIRECTORY...", file=sys.stderr)
        return 2
    for batch in dump(files):
        for record in batch.records:
            print(record.partition, record.offset, record.timestamp, record.key, record.value)
    return 0


NO_FAULTS = ("Non-consecutive offsets in ", "  -1 is followed by ")
GAP = re.compile(r"\s*\d+ is followed by \d+")
TOOL = "org.apache.kafka.tools.DumpLogSegments"
FIELD = re.compile(r"(\w+): (\S+)")
STATE = re.compile(r" key: (?P<key>\{.*?\}\})(?: payload: (?P<value>\{.*\}))?")
MARKER = re.compile(
    r"\| offset: \d+ (?:CreateTime|LogAppendTime): -?\d+ keySize: 4 valueSize: 6 sequence: -1 "
    r"headerKeys: \[\] endTxnMarker: (?P<kind>\w+) coordinatorEpoch: (?P<epoch>-?\d+)"
)
RECORD = re.compile(
    r"\| offset: (?P<offset>\d+) (?:CreateTime|LogAppendTime): (?P<timestamp>-?\d+) "
    r"keySize: (?P<key_size>-?\d+) valueSize: (?P<value_size>-?\d+) sequence: -?\d+ "
    r"headerKeys: \[(?P<headers>.*?)\]"
    r"(?: key: (?P<key>[0-9a-f]*))?(?: payload: (?P<value>[0-9a-f]*))?"
)

if __name__ == "__main__":
    sys.exit(main())
