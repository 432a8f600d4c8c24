"""kafkajs (non-flexible protocol versions) produces; librdkafka and Java read it back."""

import re

from records import by_partition, compare, same, sample, write_file


def run(bench):
    """Plain and gzip, idempotent and not; offsets as its admin client sees them."""
    total = 0
    for codec, idempotent in (("None", "false"), ("GZIP", "false"), ("GZIP", "true")):
        topic = bench.topic(f"{codec.lower()}-{idempotent}", 3)
        written = sample(3, codec, grouped_headers=True)
        for record in written:
            # kafkajs fails on a null header value before it sends anything.
            record.headers = [(name, value or b"") for name, value in record.headers]
        path = write_file(bench.scratch / f"{topic}.jsonl", written)
        text = bench.kafkajs(topic, path, codec, idempotent)
        total += compare(written, bench.confluent("consume", topic), f"{topic} read by librdkafka")
        total += compare(written, bench.consume(topic), f"{topic} read by Java")
        counts = [len(records) for records in by_partition(written).values()]
        ends = " ".join(f"{partition}:0-{count}" for partition, count in enumerate(counts))
        same(topic, "offsets", ends, re.search(r"^offsets (.*)$", text, re.MULTILINE)[1])
    return f"{total} records compared"


# librdkafka looks for the coordinator of the group id that confluent-kafka insists on, though the
# partitions are assigned by hand; it must not wait for an answer.
ASKS_FOR_A_COORDINATOR = True
