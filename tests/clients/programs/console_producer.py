"""ConsoleProducer: lines with headers, key and value, all codecs; read back by Java."""

from bench import milliseconds, now_window
from records import Record, compare


def run(bench):
    """Equal header names, nulls and empty values of the line format arrive as typed."""
    total = 0
    for codec in ("none", "gzip", "snappy", "lz4", "zstd"):
        topic = bench.topic(codec, 1)
        lines, expected = [], []
        started = milliseconds()
        for index in range(200 if bench.quick else 1000):
            text, headers = HEADERS[index % len(HEADERS)]
            key = None if index % 9 == 3 else b"key %d" % index
            value = None if index % 11 == 4 else f"wért {index} ".encode() * (1 + index % 5)
            fields = [text, key or b"NULL", value or b"NULL"]
            lines.append(b"\t".join(fields) + b"\n")
            expected.append(Record(0, key, value, headers, None))
        arguments = ["--topic", topic, "--compression-codec", codec]
        for setting in ("parse.key=true", "parse.headers=true", "null.marker=NULL"):
            arguments += ["--reader-property", setting]
        tool = "org.apache.kafka.tools.ConsoleProducer"
        bench.tool(tool, *arguments, input_bytes=b"".join(lines))
        for record in expected:
            record.timestamp = now_window(started)
        total += compare(expected, bench.consume(topic), topic)
    return f"{total} records compared"


HEADERS = [
    (b"NULL", []),
    (b"a:1", [("a", b"1")]),
    (b"a:1,b:2,a:3,a:1", [("a", b"1"), ("b", b"2"), ("a", b"3"), ("a", b"1")]),
    (b"z:,y:NULL", [("z", b""), ("y", None)]),
]
