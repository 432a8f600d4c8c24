"""kcat (librdkafka): produces with headers and all codecs, reads by partition, lists, queries."""

import re

from bench import milliseconds, now_window
from records import BASE_TIMESTAMP, Mismatch, Record, compare, same, sample


def run(bench):
    """What kcat writes is read by Java and by kcat; what Java writes is read by kcat."""
    total = 0
    for codec in ("none", "gzip", "snappy", "lz4", "zstd"):
        topic = bench.topic(codec, 2)
        expected, started = [], milliseconds()
        for partition, headers in ((0, HEADERS), (1, []), (0, HEADERS[:1])):
            count = len(expected)
            keys = [b"key %d" % (count + index) for index in range(150)]
            values = [b"" if index % 10 == 4 else b"value %d " % index * 20 for index in range(150)]
            pairs = list(zip(keys, values, strict=True))
            lines = b"".join(key + b"|" + value + b"\n" for key, value in pairs)
            arguments = ["-P", "-t", topic, "-p", str(partition), "-K", "|", "-Z", "-z", codec]
            arguments += [
                word for name, value in headers for word in ("-H", f"{name}={value.decode()}")
            ]
            bench.kcat(*arguments, input_bytes=lines)
            for key, value in pairs:
                expected.append(Record(partition, key, value or None, headers, None))
        for record in expected:
            record.timestamp = now_window(started)
        consumed = bench.consume(topic)
        total += compare(expected, consumed, f"{topic} read by Java")
        total += compare(consumed, read(bench, topic, 2), f"{topic} read by kcat")

    topic = bench.topic("java", 2)
    sent = sample(2, "kcat", printable=True)
    sent += [
        Record(0, None, b"no key", [], BASE_TIMESTAMP),
        Record(1, b"", None, [], BASE_TIMESTAMP),
    ]
    written = bench.produce(topic, sent, "compression.type=zstd")
    total += compare(written, read(bench, topic, 2), f"{topic} read by kcat")
    check_listing(bench, topic, written)
    return f"{total} records compared"


def read(bench, topic, partitions):
    """All records of a topic; lengths in the format make every byte exact."""
    records = []
    for partition in range(partitions):
        arguments = ["-C", "-t", topic, "-p", str(partition), "-o", "beginning", "-e", "-q"]
        arguments += ["-X", "check.crcs=true", "-f", "%p %o %T %K %S %h\\n%k%s\\n"]
        data = bench.kcat(*arguments).stdout
        while data:
            head, _, data = data.partition(b"\n")
            place, offset, timestamp, key_size, value_size, headers = head.split(b" ", 5)
            key, data = take(data, int(key_size))
            value, data = take(data, int(value_size))
            if data[:1] != b"\n":
                raise Mismatch(f"{topic}: kcat printed {data[:80]!r} after {head!r}")
            data = data[1:]
            pairs = [pair.split(b"=", 1) for pair in headers.split(b",")] if headers else []
            pairs = [(name.decode(), header) for name, header in pairs]
            records.append(Record(int(place), key, value, pairs, int(timestamp), int(offset)))
    return records


def take(data, size):
    """The next `size` bytes and the rest; -1 is null, printed as nothing with -f."""
    if size < 0:
        return None, data.removeprefix(b"NULL")
    return data[:size], data[size:]


def check_listing(bench, topic, written):
    """-L names the partitions, -Q finds the end and an offset by time."""
    listing = bench.kcat("-L", "-t", topic).text
    rows = re.findall(r"partition (\d+), leader (\d+), replicas: (\d+), isrs: (\d+)", listing)
    same("kcat -L", "partitions", ["0", "1"], [row[0] for row in rows])
    records = [record for record in written if record.partition == 0]
    answer = bench.kcat("-Q", "-t", f"{topic}:0:-1").text
    same("kcat -Q end", "offset", len(records), int(re.search(r"offset (-?\d+)", answer)[1]))
    first = next(record for record in records if record.timestamp >= BASE_TIMESTAMP)
    answer = bench.kcat("-Q", "-t", f"{topic}:0:{BASE_TIMESTAMP}").text
    same("kcat -Q time", "offset", first.offset, int(re.search(r"offset (-?\d+)", answer)[1]))


HEADERS = [("a", b"1"), ("b", b"2"), ("a", b"3"), ("a", b"1")]
