"""GetOffsetShell: ends, beginnings, newest timestamp and look-up by time of every partition."""

from records import BASE_TIMESTAMP, Record, same


def run(bench):
    """Compares every answer with what was written; timestamps rise but for the first partition."""
    topic = bench.topic("t", 3)
    written = []
    for index in range(30):
        stamp = BASE_TIMESTAMP + 1000 * (index if index != 20 else 500)
        written.append(Record(0, None, b"v%d" % index, [], stamp))
    for index in range(10):
        written.append(Record(1, None, b"v%d" % index, [], BASE_TIMESTAMP + 1000 * index))
    bench.produce(topic, written, "batch.size=300", "linger.ms=0")

    expected = {
        "-1": {0: 30, 1: 10, 2: 0},
        "-2": {0: 0, 1: 0, 2: 0},
        # The newest timestamp is that of offset 20; an empty partition has none and is left out.
        "-3": {0: 20, 1: 9},
        str(BASE_TIMESTAMP - 1): {0: 0, 1: 0},
        str(BASE_TIMESTAMP + 4500): {0: 5, 1: 5},
        str(BASE_TIMESTAMP + 9500): {0: 10},
        str(BASE_TIMESTAMP + 499_000): {0: 20},
        str(BASE_TIMESTAMP + 600_000): {},
    }
    if bench.quick:
        # Every look-up starts a JVM.
        for time in ("-2", str(BASE_TIMESTAMP - 1), str(BASE_TIMESTAMP + 9500)):
            del expected[time]
    for time, offsets in expected.items():
        words = ["--topic", topic] if time == "-1" else ["--topic", topic, "--time", time]
        text = bench.tool("org.apache.kafka.tools.GetOffsetShell", *words).text
        found = dict(
            line.rsplit(":", 2)[1:] for line in text.splitlines() if line.startswith(topic)
        )
        found = {int(partition): int(offset) for partition, offset in found.items() if offset}
        same(f"--time {time}", "offsets", offsets, found)
    return f"{len(expected)} look-ups"
