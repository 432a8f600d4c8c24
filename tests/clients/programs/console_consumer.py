"""ConsoleConsumer by partition (no group): every printed line is what the producer wrote."""

from records import by_partition, same, sample


def run(bench):
    """Whole partitions, a read from an offset in the middle, and a bounded one."""
    topic = bench.topic("t", 2)
    written = sample(2, "console", count=60, printable=True)
    partitions = by_partition(bench.produce(topic, written, "batch.size=2000"))
    total = 0
    for partition, records in partitions.items():
        for first, count in ((0, len(records)), (23, len(records) - 23), (31, 5)):
            offset = "earliest" if first == 0 else str(first)
            arguments = ["--topic", topic, "--partition", str(partition), "--offset", offset]
            arguments += ["--max-messages", str(count), "--timeout-ms", "20000"]
            for name in ("timestamp", "partition", "offset", "headers", "key", "value"):
                arguments += ["--formatter-property", f"print.{name}=true"]
            tool = "org.apache.kafka.tools.consumer.ConsoleConsumer"
            lines = bench.tool(tool, *arguments).text.splitlines()
            same(f"{topic} {partition} from {offset}", "lines", count, len(lines))
            for record, found in zip(records[first : first + count], lines, strict=True):
                same(f"{topic} {partition}/{record.offset}", "line", line_of(record), found)
            total += count
    return f"{total} lines compared"


def line_of(record):
    """A record as the default formatter prints it."""
    headers = ",".join(f"{name}:{value.decode()}" for name, value in record.headers)
    fields = [f"CreateTime:{record.timestamp}", f"Partition:{record.partition}"]
    fields += [f"Offset:{record.offset}", headers or "NO_HEADERS"]
    return "\t".join(fields + [record.key.decode(), record.value.decode()])
