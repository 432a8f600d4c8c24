"""confluent-kafka (current librdkafka): produces and consumes (assign), both ways with Java."""

from records import compare, sample, write_file


def run(bench):
    """Every codec with and without idempotence; each side reads what the other wrote."""
    total = 0
    for codec in ("none", "gzip", "snappy", "lz4", "zstd"):
        topic = bench.topic(codec, 3)
        written = sample(3, codec)
        settings = [f"compression.type={codec}", "message.max.bytes=1000000"]
        settings.append(f"enable.idempotence={str(codec in ('none', 'lz4')).lower()}")
        acknowledged = send(bench, topic, written, *settings)
        compare(written, acknowledged, f"{topic} as acknowledged")
        total += compare(acknowledged, bench.consume(topic), f"{topic} read by Java")
        total += compare(acknowledged, bench.confluent("consume", topic), f"{topic} read by itself")
    for codec in ("none", "zstd"):
        topic = bench.topic(f"java-{codec}", 3)
        acknowledged = bench.produce(topic, sample(3, codec), f"compression.type={codec}")
        total += compare(
            acknowledged, bench.confluent("consume", topic), f"{topic} written by Java"
        )
    return f"{total} records compared"


def send(bench, topic, written, *settings):
    """Sends with confluent-kafka; the records as acknowledged."""
    path = write_file(bench.scratch / f"{topic}.jsonl", written)
    return bench.confluent("produce", topic, path, *settings)


# librdkafka looks for the coordinator of the group id that confluent-kafka insists on, though the
# partitions are assigned by hand; it must not wait for an answer.
ASKS_FOR_A_COORDINATOR = True
