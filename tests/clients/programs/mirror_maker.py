"""MirrorMaker 2 between this broker and a real Apache Kafka, both ways, exactly once.

Each has a topic of its own with everything that a record can hold, a topic with transactions, some
of them aborted, and a group; MirrorMaker (one process, Connect's distributed mode) copies the
committed ones to the other under the name `CLUSTER.TOPIC`. It is killed (`kill -9`) while it
copies, and so is this broker. Then each copy is compared with what it is a copy of: partition, key,
value, headers, timestamp, in order; and the group finds itself on the other side at the place of
the last record that it has read.

After that, the way onward: with names kept, everything of this broker goes to a new Kafka, and the
group reads there what it has not read here.
"""

import time

import kafka_peer
import processes
import transactions as txn
from records import NO_RETENTION, Mismatch, by_partition, compare, sample, same

from programs import consumer_group_command as groups


def run(bench):
    """Two brokers at a time, and one JVM with MirrorMaker."""
    with bench.own_broker(PROPERTIES) as here:
        return f"{both_ways(bench, here)}; onward: {onward(bench, here)}"


def kafka(bench, name):
    """A real Kafka, whatever the suite runs against."""
    properties = {**NO_RETENTION, **PROPERTIES}
    peer = kafka_peer.KafkaPeer(bench.scratch / f"mirror-{name}", properties=properties)
    peer.start()
    return peer


def both_ways(bench, here):
    """What each has, and what the other gets of it."""
    there = kafka(bench, "there")
    mirror = Mirror(here, {"here": here.peer, "there": there}, BOTH)
    try:
        sides = {"here": Side(here, "here"), "there": Side(bench.on(there), "there")}
        for side in sides.values():
            side.fill("before")
        mirror.start()
        sides["there"].wait_for_copies(sides["here"], mirror)
        for side in sides.values():
            side.fill("while it is killed")
        mirror.kill()
        mirror.start()
        for side in sides.values():
            side.fill("while the broker is killed")
        here.peer.kill()
        here.peer.start()
        total = sides["there"].wait_for_copies(sides["here"], mirror)
        total += sides["here"].wait_for_copies(sides["there"], mirror)
        sides["there"].wait_for_group(sides["here"], mirror)
        sides["here"].wait_for_group(sides["there"], mirror)
        same("MirrorMaker", "exit", 143, mirror.stop())
        return f"{total} records compared"
    finally:
        mirror.kill()
        there.stop()


def onward(bench, here):
    """The names stay, the writers stop, the readers go on elsewhere."""
    there = kafka(bench, "onward")
    mirror = Mirror(here, {"here": here.peer, "onward": there}, ONWARD)
    try:
        side = Side(here, "leaving", prefix="")
        side.fill("before")
        mirror.start()
        other = Side(bench.on(there), "leaving", prefix="", exists=False)
        total = other.wait_for_copies(side, mirror)
        # MirrorMaker knows exactly where a group is only as long as that is the end of the copy:
        # of offsets further back it keeps fewer and fewer, and takes the one before.
        other.wait_for_group(side, mirror)
        side.fill("unread", read=False)
        total += other.wait_for_copies(side, mirror)
        other.wait_for_group(side, mirror)
        same("MirrorMaker", "exit", 143, mirror.stop())
        return f"{total} records compared"
    finally:
        mirror.kill()
        there.stop()


class Side:
    """The topics of one cluster, and its group."""

    def __init__(self, bench, name, prefix=None, exists=True):
        self.bench, self.name = bench, name
        self.prefix = f"{name}." if prefix is None else prefix
        self.fills = 0
        self.group = f"mirror-{name}-group"
        if exists:
            self.plain = bench.topic(f"plain-{name}", 3, retention_ms=900_000_000)
            self.transactional = bench.topic(f"transactions-{name}", 2)

    def topics(self):
        """Both."""
        return [self.plain, self.transactional]

    def fill(self, what, read=True):
        """More of everything; the group reads the plain topic to its end."""
        self.fills += 1
        seed = f"{self.name} {what}"
        records = sample(3, seed)
        self.bench.produce(self.plain, records, f"compression.type={CODECS[self.fills % 5]}")
        plan = txn.Workload([self.transactional], 2, 40, seed)
        path = plan.write(self.bench.scratch / f"mirror-{self.name}.jsonl")
        words = [path, f"mirror-{self.name}"]
        self.bench.records("transact", *words)
        if read:
            words = ["--topic", self.plain, "--group", self.group, "--from-beginning"]
            words += ["--max-messages", str(len(records)), "--timeout-ms", "30000"]
            self.bench.tool(groups.CONSOLE, *words)
            done = dict.fromkeys(range(3), 0)
            same(self.group, "unread", done, unread(self.bench, self.plain, self.group))

    def wait_for_copies(self, origin, mirror):
        """Until this side has all that the origin has; how many records were compared."""
        total = 0
        for topic in origin.topics():
            wanted = origin.bench.consume(topic, txn.COMMITTED)
            copy = f"{origin.prefix}{topic}"
            mirror.wait_for(lambda: len(self.read(copy)) >= len(wanted),
                            lambda: f"{copy} has {len(self.read(copy))} of {len(wanted)} records")
            found = self.read(copy)
            for one in (wanted, found):
                renumber(one)
            total += compare(wanted, found, f"{copy} at the other side")
        return total

    def read(self, topic):
        """Committed records; none of a topic that is not there yet."""
        try:
            return self.bench.consume(topic, txn.COMMITTED)
        except processes.ChildFailed as error:
            if "UnknownTopicOrPartition" in str(error):
                return []
            raise

    def wait_for_group(self, origin, mirror):
        """Until the group is where it is at the origin: before the first record that it has not
        read, if there is one."""
        topic = f"{origin.prefix}{origin.plain}"
        rest = unread(origin.bench, origin.plain, origin.group)
        mirror.wait_for(lambda: unread(self.bench, topic, origin.group) == rest,
                        lambda: f"{origin.group} has {unread(self.bench, topic, origin.group)}"
                                f" before it, {rest} at the origin")


def unread(bench, topic, group):
    """How many records of each partition stand after the group's offset; markers count for none."""
    found = groups.offsets(bench, group)
    records = by_partition(bench.consume(topic, txn.COMMITTED))
    counts = {}
    for (name, place), (current, _, _) in found.items():
        if name == topic and current.isdigit():
            rest = [one for one in records.get(int(place), []) if one.offset >= int(current)]
            counts[int(place)] = len(rest)
    return counts


def renumber(records):
    """Without markers and what was aborted."""
    for some in by_partition(records).values():
        for number, record in enumerate(some):
            record.offset = number


class Mirror:
    """The process."""

    def __init__(self, bench, clusters, settings):
        self.bench = bench
        name = "-".join(clusters)
        self.output = bench.scratch / f"mirror-maker-{name}.log"
        self.config = bench.scratch / f"mirror-maker-{name}.properties"
        values = {"clusters": ",".join(clusters), **COMMON, **settings}
        values["listeners"] = f"http://127.0.0.1:{processes.free_port()}"
        for flow in [key for key in settings if key.endswith(".topics")]:
            values[flow.replace(".topics", ".consumer.isolation.level")] = "read_committed"
        for cluster, peer in clusters.items():
            values[f"{cluster}.bootstrap.servers"] = peer.bootstrap
            values[f"{cluster}.exactly.once.source.support"] = "enabled"
        self.config.write_text("".join(f"{key}={value}\n" for key, value in values.items()))
        self.child = None

    def start(self):
        """A new JVM."""
        main_class = "org.apache.kafka.connect.mirror.MirrorMaker"
        self.child = self.bench.start_java(main_class, [self.config], self.output, {})

    def kill(self):
        """`kill -9`."""
        if self.child is not None:
            self.child.kill()
            self.child.wait()

    def stop(self):
        """SIGTERM; its exit code."""
        return processes.stop(self.child, PROGRESS_SECONDS)

    def wait_for(self, is_so, tell):
        """With a bound, while it runs."""
        deadline = time.monotonic() + PROGRESS_SECONDS
        while not is_so():
            if self.child.poll() is not None:
                raise Mismatch(f"{self.output} ended with {self.child.returncode}")
            if time.monotonic() > deadline:
                raise Mismatch(tell())
            time.sleep(0.5)


PROGRESS_SECONDS = 120
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
INTERNAL = ("checkpoints", "heartbeats", "offset-syncs")
STORES = ("offset", "config", "status")
COMMON = {
    "tasks.max": "2",
    "replication.factor": "1",
    **{f"{name}.topic.replication.factor": "1" for name in INTERNAL},
    **{f"{name}.storage.replication.factor": "1" for name in STORES},
    "offset.storage.partitions": "2",
    "status.storage.partitions": "1",
    "dedicated.mode.enable.internal.rest": "true",
    "sync.topic.acls.enabled": "false",
    "sync.group.offsets.enabled": "true",
    "offset.lag.max": "0",
    **{f"{name}.interval.seconds": "1"
       for name in ("refresh.topics", "refresh.groups", "emit.checkpoints", "sync.group.offsets")},
    "scheduled.rebalance.max.delay.ms": "500",
    "session.timeout.ms": "6000",
    "heartbeat.interval.ms": "500",
    "plugin.discovery": "service_load",
}
BOTH = {
    "here->there.enabled": "true",
    "there->here.enabled": "true",
    "here->there.topics": "mirror-maker-.*-here",
    "there->here.topics": "mirror-maker-.*-there",
}
ONWARD = {
    "here->onward.enabled": "true",
    "onward->here.enabled": "false",
    "here->onward.topics": "mirror-maker-.*-leaving",
    "replication.policy.class": "org.apache.kafka.connect.mirror.IdentityReplicationPolicy",
}
PROPERTIES = {
    "group.initial.rebalance.delay.ms": "0",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "500",
}
ASKS_FOR_A_COORDINATOR = True
