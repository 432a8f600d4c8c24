"""DumpLogSegments over what compaction and retention have left, indexes included.

Runs a broker of its own whose cleaner and retention never rest: compacted topics of several codecs,
one of them written in transactions of which some are aborted, one with tombstones; a topic that is
kept to a size, and one of which everything has expired. The broker stops cleanly; Kafka's tool finds
every batch valid and every index entry at its batch. Then the broker starts again and serves the
newest values, and nothing that was aborted.
"""

import random
import time

import dump_log
import transactions as txn
from records import BASE_TIMESTAMP, Mismatch, Record, same

PROPERTIES = {
    "log.initial.task.delay.ms": "0",
    "log.retention.check.interval.ms": "200",
    "log.cleaner.backoff.ms": "100",
    "transaction.state.log.num.partitions": "1",
    "offsets.topic.num.partitions": "1",
}
COMPACTED = {
    "cleanup_policy": "compact",
    "segment_bytes": 1048576,
    "min_cleanable_dirty_ratio": "0.01",
    "delete_retention_ms": 0,
    "file_delete_delay_ms": 0,
}
KEYS = 20
CODECS = ("none", "gzip", "zstd")


def run(bench):
    """Write, wait for the cleaner and for retention, stop, dump, start again, read."""
    peer = bench.new_peer(properties=PROPERTIES)
    peer.start()
    try:
        own = bench.on(peer)
        model = {own.topic(codec, 1, **COMPACTED): codec for codec in CODECS}
        newest = {topic: plain(own, topic, codec) for topic, codec in model.items()}
        topic = own.topic("transactions", 1, **COMPACTED)
        newest[topic] = in_transactions(own, topic)
        settings = {"segment_bytes": 1048576, "file_delete_delay_ms": 0}
        bounded = own.topic("bounded", 1, retention_ms=-1, retention_bytes=2000000, **settings)
        own.produce(bounded, values(3000, tombstones=False), "batch.size=20000")
        expired = own.topic("expired", 1, retention_ms=1000, **settings)
        own.produce(expired, [Record(0, None, b"old", [], BASE_TIMESTAMP)])
        for topic in newest:
            wait_for_the_cleaner(own, topic)
        wait_for(lambda: log_sizes(peer, bounded) <= 4000000, "retention by size")
        wait_for(lambda: log_names(peer, expired) == ["00000000000000000001.log"], "an empty segment")
        for topic, expected in newest.items():
            same(topic, "values", expected, latest(own, topic))
        same("stop", "clean", True, peer.stop())
        counts = check_files(own, peer, list(newest), [bounded, expired])
        peer.start()
        own = bench.on(peer)
        for topic, expected in newest.items():
            same(topic, "values after a restart", expected, latest(own, topic))
        same("second stop", "clean", True, peer.stop())
    finally:
        peer.stop()
    return counts


def values(count, tombstones):
    """Records of few keys, some of them without a value."""
    generator = random.Random(9)
    stamp = int(time.time() * 1000)
    records = []
    for index in range(count):
        value = b"%d " % index + generator.randbytes(2000)
        if tombstones and generator.random() < 0.1:
            value = None
        records.append(Record(0, b"%d" % generator.randrange(KEYS), value, [], stamp + index))
    return records


def plain(bench, topic, codec):
    """Writes; the newest value of every key."""
    records = values(3000, tombstones=True)
    bench.produce(topic, records, f"compression.type={codec}", "batch.size=20000")
    newest = {}
    for record in records:
        newest[record.key] = record.value
    return {key: value for key, value in newest.items() if value is not None}


def in_transactions(bench, topic):
    """Writes in transactions; the newest committed value of every key."""
    plan = txn.Workload([topic], 1, 0, "cleaned")
    newest, offset = {}, 0
    records = values(3000, tombstones=False)
    for start in range(0, len(records), 10):
        commit = start % 40 != 0
        sent = []
        for record in records[start : start + 10]:
            sent.append((topic, Record(0, record.key, record.value, [], record.timestamp, offset)))
            offset += 1
            if commit:
                newest[record.key] = record.value
        offset += 1  # The marker.
        plan.transactions.append(txn.Transaction(commit, sent))
    path = plan.write(bench.scratch / "cleaned-transactions.jsonl")
    finished = bench.java("Transactions", "transact", bench.peer.bootstrap, path, "cleaned")
    txn.check_answers(plan, finished.text)
    return newest


def latest(bench, topic):
    """What a reader of committed records ends up with."""
    found = {}
    for record in bench.consume(topic, txn.COMMITTED):
        found[record.key] = record.value
    return {key: value for key, value in found.items() if value is not None}


def wait_for_the_cleaner(bench, topic):
    """What no pass can get at is less than half."""
    wait_for(lambda: len(bench.consume(topic)) < 1500, f"compaction of {topic}")


def wait_for(is_so, what):
    """Asks until it is so."""
    deadline = time.monotonic() + 90
    while not is_so():
        if time.monotonic() > deadline:
            raise Mismatch(f"{what} does not come")
        time.sleep(0.2)


def log_sizes(peer, topic):
    """Bytes of all segments of partition 0."""
    files = dump_log.segment_files(peer.segment_directory(topic, 0))
    return sum(file.stat().st_size for file in files if file.exists())


def log_names(peer, topic):
    """Names of the segments of partition 0."""
    return [file.name for file in dump_log.segment_files(peer.segment_directory(topic, 0))]


def check_files(bench, peer, compacted, others):
    """Batches and indexes of all of them, and of the internal topics."""
    batches = files = entries = 0
    for topics, gaps in ((compacted, True), ([*others, *INTERNAL], False)):
        directories = [peer.segment_directory(topic, 0) for topic in topics]
        directories = [directory for directory in directories if directory.exists()]
        logs = [file for place in directories for file in dump_log.segment_files(place)]
        found = dump_log.dump(logs, log_path=bench.log_path, compacted=gaps)
        batches, files = batches + len(found), files + len(logs)
        indexes = [path for log in logs for path in log.parent.glob(f"{log.stem}.*index")]
        kinds = {path.suffix for path in indexes}
        same("indexes", "kinds", {".index", ".timeindex"}, kinds - {".txnindex"})
        indexes = [path for path in indexes if path.suffix != ".txnindex"]
        entries += dump_log.check_indexes(indexes, log_path=bench.log_path)
        side = [path for place in directories for path in sorted(place.glob("*.snapshot"))]
        same("snapshots", "one at every end", True, len(side) >= len(directories))
        dump_log.dump_side_files(side, log_path=bench.log_path)
    same("indexes", "some have entries", True, entries > 5)
    return f"{batches} batches in {files} segments, {entries} indexes with entries"


INTERNAL = ("__transaction_state", "__consumer_offsets")
