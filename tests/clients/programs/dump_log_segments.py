"""DumpLogSegments reads the segments of a cleanly stopped broker and agrees record by record.

Runs a broker of its own: several programs write, Java reads, the broker stops cleanly, Kafka's tool
dumps the files; of headers it prints only the names, so Kafka's own file reader (FileRecords) is
asked for their values. Then the broker starts again over the same directory and serves the same.
"""

import random

import dump_log
from records import BASE_TIMESTAMP, Record, compare, from_text, same, sample, write_file


def run(bench):
    """Write, read, stop, dump, compare, start again, read again."""
    peer = bench.new_peer()
    peer.start()
    try:
        own = bench.on(peer)
        topics = write(own)
        consumed = {topic: own.consume(topic) for topic in topics}
        same("stop", "clean", True, peer.stop())
        total, files = check(own, peer, consumed)
        same("segments", "rolled", True, files > sum(topics.values()))
        peer.start()
        for topic, records in consumed.items():
            compare(records, own.on(peer).consume(topic), f"{topic} after a restart")
        same("second stop", "clean", True, peer.stop())
    finally:
        peer.stop()
    return f"{total} records in {files} files compared"


def write(bench):
    """Topics with their partition counts, written by several clients."""
    topics = {}
    for codec in ("none", "gzip", "snappy", "lz4", "zstd"):
        topic = bench.topic(codec, 2)
        written = sample(2, codec)
        bench.produce(topic, written, f"compression.type={codec}", "batch.size=1000")
        path = write_file(bench.scratch / "again.jsonl", written)
        bench.confluent("produce", topic, path, f"compression.type={codec}")
        bench.kcat("-P", "-t", topic, "-p", "1", "-z", codec, input_bytes=b"one\ntwo\nthree\n")
        topics[topic] = 2
    topic = bench.topic("rolled", 1, segment_bytes=1048576)
    generator = random.Random(7)
    values = [generator.randbytes(2000) for _ in range(1500 if bench.quick else 5000)]
    records = [
        Record(
            0, b"%d" % index, value, [("n", b"%d" % index)] * (index % 3), BASE_TIMESTAMP + index
        )
        for index, value in enumerate(values)
    ]
    bench.produce(topic, records, "batch.size=20000")
    topics[topic] = 1
    return topics


def check(bench, peer, consumed):
    """Compares the files of all topics with what was consumed; (records, files)."""
    files = {}
    for topic, records in consumed.items():
        partitions = sorted({record.partition for record in records})
        directories = [peer.segment_directory(topic, partition) for partition in partitions]
        files[topic] = [file for place in directories for file in dump_log.segment_files(place)]
    every = [file for some in files.values() for file in some]
    batches = dump_log.dump(every, log_path=bench.log_path)
    for topic, records in consumed.items():
        own = [batch for batch in batches if batch.file in set(map(str, files[topic]))]
        dumped = [record for batch in own for record in batch.records]
        names = [named(record, [(name, None) for name, _ in record.headers]) for record in records]
        compare(names, dumped, f"{topic} as dumped")
        stored = from_text(bench.records("segments", *files[topic]))
        compare(records, stored, f"{topic} as stored")
        codec = topic.rsplit("-", 1)[1]
        codec = "none" if codec == "rolled" else codec
        codecs = {batch.fields["compresscodec"] for batch in own}
        # librdkafka sends a batch as it is when compression would not make it smaller.
        same(topic, "codecs", codecs & {"none"} | {codec}, codecs)
    return sum(map(len, consumed.values())), len(every)


def named(record, headers):
    """The record with other headers."""
    fields = (record.partition, record.key, record.value, headers, record.timestamp, record.offset)
    return Record(*fields)
