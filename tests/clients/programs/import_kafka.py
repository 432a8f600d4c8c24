"""`ringlog log import`: a real Apache Kafka's data directory, filled by Kafka's own clients.

Runs both brokers, one after the other. Kafka gets every codec, transactions (one of them still
open), a compacted topic with gaps, deleted records, a group, settings and a quota. It stops, its
directory is imported, and everything is read back from Ringlog: records with offset, timestamp and
headers, whether transactions are heeded or not; the group's offsets; the settings. The open
transaction is committed, a transactional id goes on, new records follow the old ones, and
DumpLogSegments finds the files whole. Nothing in the source has changed.
"""

import hashlib
import json
import time

import dump_log
import kafka_peer
import processes
import transactions as txn
from bench import milliseconds
from records import Mismatch, Record, compare, same, sample

from programs import config_command, resumed_transactions
from programs import consumer_group_command as groups


def run(bench):
    """Kafka first, then Ringlog over what Kafka left."""
    ringlog = bench.new_peer()
    kafka = kafka_peer.KafkaPeer(bench.scratch / "import-source", properties=PROPERTIES)
    kafka.start()
    try:
        seen = fill(bench.on(kafka))
        same("Kafka", "stops cleanly", True, kafka.stop())
    finally:
        kafka.stop()
    before = fingerprint(kafka.data_directory)
    printed = import_command(bench, kafka, ringlog).text.splitlines()
    same("source", "files", before, fingerprint(kafka.data_directory))
    refused = import_command(bench, kafka, ringlog, check=False)
    same("a second import", "exit code", 2, refused.code)
    ringlog.start()
    try:
        total = check(bench.on(ringlog), seen)
        same("stop", "clean", True, ringlog.stop())
    finally:
        ringlog.stop()
    files = check_files(bench, ringlog, seen)
    return f"{total} records compared, {files} files read by DumpLogSegments; {printed[-1]}"


class Seen:
    """What Kafka showed before it stopped."""

    def __init__(self):
        self.records = {}
        self.compacted = None
        self.opened = None
        self.groups = None


def fill(bench):
    """Everything that a directory can hold."""
    seen = Seen()
    topics = []
    for codec in CODECS:
        # Timestamps are out of order: nearly every batch begins a segment.
        topics.append(bench.topic(codec, 2, segment_ms=60_000))
        bench.produce(topics[-1], sample(2, codec), f"compression.type={codec}")
    seen.compacted = compacted(bench)
    topics += [seen.compacted, shortened(bench)]
    plan = txn.workload(bench, 30, "import")
    path = plan.write(bench.scratch / "import-transactions.jsonl")
    txn.check_answers(plan, bench.franz("transact", path, TRANSACTIONAL_ID).text)
    txn.wait_for_stable_ends(bench, plan.ends)
    opened = bench.topic("open", 1)
    sent, name = resumed_transactions.begin(bench, opened, 0, "import-open")
    seen.opened = (opened, sent, name)
    topics += [*plan.topics, opened, grouped(bench)]
    seen.groups = groups.offsets(bench, groups.CLASSIC)
    alter(bench, topics[0], "retention.bytes=123456789")
    config_command.alter(bench, CLIENT, "producer_byte_rate=1024")
    for topic in topics:
        seen.records[topic] = views(bench, topic)
    return seen


def compacted(bench):
    """A topic in which Kafka's cleaner has left gaps."""
    settings = {"cleanup_policy": "compact", "min_cleanable_dirty_ratio": "0.001"}
    topic = bench.topic("compacted", 1, segment_ms=1_000, **settings)
    stamp = milliseconds()
    for turn in range(4):
        keys = [b"key %d" % key for key in range(10 - turn)]
        values = [Record(0, key, b"turn %d" % turn, [], stamp + 5_000 * turn) for key in keys]
        bench.produce(topic, values)
    deadline = time.monotonic() + 60
    while len(bench.consume(topic)) >= 34:
        if time.monotonic() > deadline:
            raise Mismatch("Kafka's cleaner left everything as it was")
        time.sleep(0.5)
    return topic


def shortened(bench):
    """A topic whose first records are deleted."""
    topic = bench.topic("shortened", 1)
    bench.produce(topic, sample(1, "shortened"))
    wanted = {"partitions": [{"topic": topic, "partition": 0, "offset": 17}], "version": 1}
    path = bench.scratch / "import-delete.json"
    path.write_text(json.dumps(wanted), encoding="utf-8")
    tool = "org.apache.kafka.tools.DeleteRecordsCommand"
    text = bench.tool(tool, "--offset-json-file", str(path)).text
    same("DeleteRecordsCommand", "low watermark", True, "low_watermark: 17" in text)
    return topic


def grouped(bench):
    """A topic that a group has read to its end."""
    topic = bench.topic("grouped", 2)
    bench.produce(topic, sample(2, "groups", groups.COUNT, printable=True))
    groups.read_with_console(bench, topic, groups.CLASSIC, "classic")
    return topic


def views(bench, topic):
    """All records, and the committed ones."""
    return bench.consume(topic), bench.consume(topic, txn.COMMITTED)


def check(bench, seen):
    """Everything is there; and it goes on."""
    total = 0
    for topic, wanted in seen.records.items():
        for expected, found in zip(wanted, views(bench, topic), strict=True):
            total += compare(expected, found, topic)
    same("group", "offsets", seen.groups, groups.offsets(bench, groups.CLASSIC))
    first = next(iter(seen.records))
    topic = ["--entity-type", "topics", "--entity-name", first]
    found = config_command.described(bench, topic)
    wanted = {"retention.bytes": "123456789", "retention.ms": "-1", "segment.ms": "60000"}
    same(first, "configs", wanted, found)
    text = bench.tool(config_command.TOOL, *CLIENT, "--describe").text
    same("client", "quota", True, "producer_byte_rate=1024.0" in text)
    return total + go_on(bench, seen, first)


def go_on(bench, seen, first):
    """The open transaction ends, an id begins new ones, and records follow records."""
    opened, (sent, identity), name = seen.opened
    same(opened, "committed", [], seen.records[opened][1])
    resumed_transactions.resume(bench, name, (sent, identity), "commit")
    txn.wait_for_stable_ends(bench, {opened: {0: len(sent) + 1}})
    total = compare(sent, bench.consume(opened, txn.COMMITTED), f"{opened} in the end")
    topics = [bench.topic(f"later{number}", 2) for number in range(2)]
    plan = txn.Workload(topics, 2, 20, "import goes on")
    path = plan.write(bench.scratch / "import-later.jsonl")
    txn.check_answers(plan, bench.franz("transact", path, TRANSACTIONAL_ID).text)
    total += txn.check_logs(bench, plan)
    later = bench.produce(first, sample(2, "later", 5, large=False))
    return total + compare(seen.records[first][0] + later, bench.consume(first), f"{first} later")


def check_files(bench, ringlog, seen):
    """Every batch of every imported topic is whole for Kafka's own tool; how many files. But the
    tool calls the gaps of a compacted topic a fault."""
    files = []
    for topic in seen.records:
        if topic == seen.compacted:
            continue
        for directory in sorted(ringlog.segment_directory(topic, 0).parent.glob(f"{topic}-*")):
            files += [file for file in dump_log.segment_files(directory) if file.stat().st_size]
    dump_log.dump(files, log_path=bench.log_path)
    return len(files)


def alter(bench, topic, configs):
    """Sets configs of a topic."""
    config_command.alter(bench, ["--entity-type", "topics", "--entity-name", topic], configs)


def import_command(bench, kafka, ringlog, check=True):
    """`ringlog log import`, as a `Finished`."""
    command = [ringlog.command[0], "log", "import", "--data-dir", str(ringlog.data_directory)]
    return processes.run([*command, str(kafka.data_directory)], 120, bench.log_path, check=check)


def fingerprint(directory):
    """Names and contents of all files."""
    files = sorted(path for path in directory.rglob("*") if path.is_file())
    return [(str(path), hashlib.sha256(path.read_bytes()).hexdigest()) for path in files]


CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
TRANSACTIONAL_ID = "import-transactions"
CLIENT = ["--entity-type", "clients", "--entity-name", "imported"]
PROPERTIES = {"log.cleaner.backoff.ms": "300", "log.retention.check.interval.ms": "1000"}
ASKS_FOR_A_COORDINATOR = True
