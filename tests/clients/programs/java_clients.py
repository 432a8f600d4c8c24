"""KafkaProducer and KafkaConsumer (assign): all codecs, acks settings, offsets by time."""

from records import BASE_TIMESTAMP, Record, compare, same, sample


def run(bench):
    """Acknowledged and consumed records are those sent; look-ups by time agree with a scan."""
    total = 0
    variants = [(codec, [f"compression.type={codec}"]) for codec in CODECS]
    variants += [("acks-1", ["acks=1", "enable.idempotence=false"])]
    variants += [("no-idempotence", ["enable.idempotence=false"]), ("tiny", ["batch.size=0"])]
    for name, settings in variants:
        topic = bench.topic(name, 3)
        written = sample(3, name) + [Record(1, b"epoch", b"v", [], 0)]
        acknowledged = bench.produce(topic, written, *settings)
        compare(written, acknowledged, f"{topic} as acknowledged")
        total += compare(acknowledged, bench.consume(topic), topic)
    total += log_append_time(bench)
    offsets(bench, topic, acknowledged)
    return f"{total} records compared"


def log_append_time(bench):
    """The broker's clock goes into the records and into the answer."""
    topic = bench.topic("log-append-time", 1, message_timestamp_type="LogAppendTime")
    written = sample(1, "append", large=False)
    acknowledged = bench.produce(topic, written, "compression.type=lz4")
    for record, answer in zip(written, acknowledged, strict=True):
        same(
            f"{topic} {answer.offset}", "newer than sent", True, answer.timestamp > record.timestamp
        )
        record.timestamp = answer.timestamp
    return compare(written, bench.consume(topic), topic)


def offsets(bench, topic, written):
    """beginningOffsets, endOffsets and offsetsForTimes."""
    times = [0, 1, BASE_TIMESTAMP - 50_000_000, BASE_TIMESTAMP, BASE_TIMESTAMP + 86_000_000]
    times.append(BASE_TIMESTAMP * 2)
    expected = {"beginning": {}, "end": {}, **{str(time): {} for time in times}}
    for partition in range(3):
        records = [record for record in written if record.partition == partition]
        expected["beginning"][partition] = "0"
        expected["end"][partition] = str(len(records))
        for time in times:
            # Kafka answers the first record in offset order that is not older.
            found = next((record for record in records if record.timestamp >= time), None)
            answer = "none" if found is None else f"{found.offset}@{found.timestamp}"
            expected[str(time)][partition] = answer
    text = bench.records("offsets", topic, *map(str, times))
    for name, partitions in expected.items():
        printed = ", ".join(f"{partition}={answer}" for partition, answer in partitions.items())
        line = next((line for line in text.splitlines() if line.startswith(f"{name} ")), None)
        same(topic, f"offsets {name}", f"{name} {{{printed}}}", line)


CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
