"""Records in one plain form, whoever wrote or read them, and the comparison of two lists of them.

Owns: the record set that every producing program sends (null, empty and binary keys and values,
duplicate headers in a chosen order, timestamps out of order, one large value) and the rule for
"the same". The form on disk is one JSON object a line: p partition, o offset, t timestamp in
milliseconds, k key, v value (base64 or null), h a list of [name, base64 or null].
Must never: compare loosely. A field that the producing program could not choose (its own clock)
is given as a window, and only that field.
"""

import base64
import dataclasses
import json
import random


@dataclasses.dataclass
class Record:
    """One record. `offset` None means: the next one of its partition."""

    partition: int
    key: bytes | None
    value: bytes | None
    headers: list
    timestamp: int | tuple
    offset: int | None = None

    def to_line(self):
        """The JSON line."""
        fields = {"p": self.partition, "o": self.offset, "t": self.timestamp}
        fields["k"], fields["v"] = encode(self.key), encode(self.value)
        fields["h"] = [[name, encode(value)] for name, value in self.headers]
        return json.dumps(fields, separators=(",", ":")) + "\n"


def from_line(line):
    """A record of its JSON line."""
    fields = json.loads(line)
    headers = [(name, decode(value)) for name, value in fields["h"]]
    key, value = decode(fields["k"]), decode(fields["v"])
    return Record(fields["p"], key, value, headers, fields["t"], fields["o"])


def from_text(text):
    """Records of JSON lines; other lines of a program's output are passed over."""
    return [from_line(line) for line in text.splitlines() if line.startswith("{")]


def write_file(path, records):
    """Writes JSON lines."""
    with open(path, "w", encoding="utf-8") as file:
        file.writelines(record.to_line() for record in records)
    return path


class Mismatch(Exception):
    """What was read is not what was written."""


def compare(expected, actual, what):
    """Raises `Mismatch` at the first difference in count, order, offset, timestamp, key, value or
    headers; returns how many records were compared. Both lists keep the order within a partition.
    """
    wanted, found = by_partition(expected), by_partition(actual)
    if sorted(wanted) != sorted(found):
        raise Mismatch(f"{what}: partitions {sorted(found)}, expected {sorted(wanted)}")
    for partition, records in wanted.items():
        others = found[partition]
        for index, (record, other) in enumerate(zip(records, others, strict=False)):
            offset = index if record.offset is None else record.offset
            place = f"{what}: partition {partition} record {index}"
            same(place, "offset", offset, other.offset)
            if isinstance(record.timestamp, tuple):
                low, high = record.timestamp
                if not low <= other.timestamp <= high:
                    raise Mismatch(f"{place}: timestamp {other.timestamp} not in {low}..{high}")
            else:
                same(place, "timestamp", record.timestamp, other.timestamp)
            same(place, "key", record.key, other.key)
            same(place, "value", record.value, other.value)
            same(
                place, "headers", list(map(tuple, record.headers)), list(map(tuple, other.headers))
            )
        same(f"{what}: partition {partition}", "record count", len(records), len(others))
    return len(actual)


def same(place, field, expected, actual):
    """Raises `Mismatch` unless both are equal."""
    if expected != actual:
        raise Mismatch(f"{place}: {field} {shorten(actual)}, expected {shorten(expected)}")


def sample(partitions, seed, count=40, printable=False, large=True, grouped_headers=False):
    """`count` records for each of the first `partitions` partitions. `printable` keeps to text
    without tabs, line ends, commas and colons; `grouped_headers` keeps equal names together."""
    generator = random.Random(seed)
    records = []
    for partition in range(partitions):
        for index in range(count):
            headers = HEADERS[index % len(HEADERS)]
            if printable:
                headers = PRINTABLE_HEADERS[index % len(PRINTABLE_HEADERS)]
            if grouped_headers:
                names = list(dict.fromkeys(name for name, _ in headers))
                headers = [pair for name in names for pair in headers if pair[0] == name]
            key = f"key {seed} {partition}/{index}".encode()
            value = f"value {seed} {partition}/{index} ".encode() * (1 + index % 7)
            if not printable:
                key, value = odd(index, key, value, generator)
            timestamp = BASE_TIMESTAMP + generator.randrange(-86_400_000, 86_400_000)
            if index == 5:
                timestamp = 1
            records.append(Record(partition, key, value, list(headers), timestamp))
        if large and not printable:
            value = generator.randbytes(LARGE_VALUE_BYTES)
            records.append(Record(partition, b"large", value, [("size", b"large")], BASE_TIMESTAMP))
    return records


def odd(index, key, value, generator):
    """Nulls, empty ones and bytes that are no text, every so often."""
    choice = index % 10
    if choice == 1:
        return None, value
    if choice == 2:
        return key, None
    if choice == 3:
        return b"", b""
    if choice == 4:
        return None, None
    if choice == 6:
        return generator.randbytes(16), generator.randbytes(1000)
    if choice == 8:
        return "schlüssel-ключ-鍵".encode(), b"\x00\xff\n\t" * 50
    return key, value


def by_partition(records):
    """Lists of records by partition, order kept."""
    lists = {}
    for record in records:
        lists.setdefault(record.partition, []).append(record)
    return lists


def shorten(value):
    """A value for an error message."""
    text = repr(value)
    return text if len(text) <= 160 else f"{text[:140]}... ({len(text)} characters)"


def encode(data):
    """base64 or None."""
    return None if data is None else base64.b64encode(data).decode()


def decode(text):
    """Bytes or None."""
    return None if text is None else base64.b64decode(text)


BASE_TIMESTAMP = 1_700_000_000_000
# That is older than any retention: brokers do not look at it unless a program says so.
NO_RETENTION = {"log.initial.task.delay.ms": "3600000"}
LARGE_VALUE_BYTES = 700_000
HEADERS = [
    [],
    [("a", b"1")],
    [("a", b"1"), ("b", b"2"), ("a", b"3"), ("a", b"1")],
    [("b", b""), ("a", None), ("b", b"\x00\xff")],
    [("größe", "日本".encode()), ("z", b"x" * 300)],
    [(f"n{number % 3}", str(number).encode()) for number in range(20)],
]
PRINTABLE_HEADERS = [
    [],
    [("a", b"1")],
    [("a", b"1"), ("b", b"2"), ("a", b"3"), ("a", b"1")],
    [("z", b"last"), ("y", b"first"), ("z", b"again")],
]
