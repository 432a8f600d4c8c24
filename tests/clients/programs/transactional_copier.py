"""TransactionalMessageCopier: consume, transform, produce while copiers and broker are ended.

Apache Kafka's own system test: two input partitions, three of output, a hundred thousand messages;
a copier per input partition reads committed input, writes it to the same partition of the output
and its offsets to a group, 750 messages to a transaction, and aborts every third one at random.
Here the copiers are killed (`kill -9`) at random moments, and once stopped, and started again with
the same transactional id, and so is the broker over the same directory and ports. At the end every
message stands in the output once, in its order; nothing less and nothing twice. The same holds for
a member of another group that reads the committed output all the while.
All of it three times: partitions assigned by hand, where a group is only a place for offsets; all
copiers in one group (--group-mode), which deals them out, as KIP-447 has it (--use-group-metadata:
the group fences by its generation who has lost them); and as before it, when only transactional ids
fence. The tool knows classic groups alone; the reader is in a classic one and in two of the new
protocol, in turn.
"""

import json
import random
import time

import bench as benches
import kafka_peer
import peer_cache
import processes
import transactions as txn
from records import BASE_TIMESTAMP, Mismatch, Record, compare, same


def run(bench):
    """A broker of its own: it is killed."""
    alone = Size.quick() if bench.quick else Size()
    grouped = Size.quick_group() if bench.quick else Size.group()
    texts = []
    with bench.own_broker(PROPERTIES) as own:
        for seed, kind in enumerate(KINDS[:2] if bench.quick else KINDS, 11):
            size = alone if kind is Copier else grouped
            texts.append(copy(own, random.Random(seed), kind, size))
    return "; ".join(texts)


def copy(bench, generator, kind, size):
    """Seeds the input, runs and disturbs the copiers, compares."""
    source = bench.topic(f"{kind.word}-in", PARTITIONS)
    target = bench.topic(f"{kind.word}-out", OUTPUT_PARTITIONS)
    seeded = []
    for index in range(size.messages * PARTITIONS):
        value = b"%d " % index + b"v" * generator.randint(0, 60)
        seeded.append(
            Record(index % PARTITIONS, b"key %d" % index, value, [], BASE_TIMESTAMP + index)
        )
    started = benches.milliseconds()
    bench.produce(source, seeded)
    copiers = []
    reader = Reader(bench, target, kind)
    try:
        for place in range(PARTITIONS):
            copiers.append(kind(bench, place, source, target, size, copiers))
        broker_ends = disturb(bench, copiers, size, generator)
        for copier in copiers:
            copier.finish()
        reader.check([record.value.decode() for record in seeded])
    finally:
        for copier in [*copiers, reader]:
            copier.kill()
    killed = sum(copier.killed for copier in copiers)
    same("disturbed", "copiers killed at work", True, killed > 0)
    total = check(bench, target, seeded, benches.now_window(started), size)
    lost = sum(copier.given_up for copier in copiers)
    dealt = sum(copier.dealt() for copier in copiers)
    same("disturbed", "dealt out again", kind is not Copier, dealt > PARTITIONS)
    return (
        f"{kind.word}: {size.messages * PARTITIONS} messages copied, {total} records compared, "
        f"{killed} copiers and {broker_ends} brokers ended, {lost} copiers gave up, "
        f"{dealt} times partitions dealt out, reader in a group of type {reader.protocol}"
    )


def disturb(bench, copiers, size, generator):
    """Ends copiers and the broker, in a random order, each after some more progress; how many ends
    the broker had."""
    killed = copiers[: size.killed_copiers]
    ends = [(copier, copier.kill_and_start) for copier in killed] * size.copier_kills
    ends += [(copier, copier.stop_and_start) for copier in killed] * size.copier_stops
    broker_ends = [True] * size.broker_kills + [False] * size.broker_stops
    for hard in broker_ends:
        ends.append((generator.choice(copiers), lambda hard=hard: end_broker(bench.peer, hard)))
    generator.shuffle(ends)
    for number, (watched, end) in enumerate(ends):
        watched.wait_for(size.messages * (number + 1) // (len(ends) + 1))
        time.sleep(generator.random() * 0.1)
        for copier in copiers:
            copier.start_again_if_it_gave_up()
        end()
    return len(broker_ends)


def end_broker(peer, hard):
    """Ends the broker and starts it over the same directory, at the same ports."""
    if hard:
        peer.kill()
    else:
        same("stop between", "clean", True, peer.stop())
    peer.start()


def check(bench, target, seeded, window, size):
    """The output as committed, by two clients, against the input; how many records."""
    expected = [Record(one.partition, one.key, one.value, [], window) for one in seeded]
    found = bench.consume(target, txn.COMMITTED)
    positions = dict.fromkeys(range(PARTITIONS), 0)
    for record in found:
        # Offsets have gaps where markers and aborted records stand.
        record.offset = positions[record.partition]
        positions[record.partition] += 1
    total = compare(expected, found, f"{target} read_committed")
    again = bench.confluent("consume", target, txn.COMMITTED)
    same(target, "records seen by librdkafka", plain(found), plain(again))
    everything = bench.consume(target)
    # Aborted copies are there too, or nothing was tried.
    same(target, "aborted records", True, len(everything) > size.messages * PARTITIONS)
    return total + len(again)


def plain(records):
    """Partition, key and value in an order that does not depend on the reader."""
    return sorted((one.partition, one.key, one.value) for one in records)


class Copier:
    """The copier of one partition: the process, and how often it ended."""

    word = "alone"

    def __init__(self, bench, place, source, target, size, all_copiers):
        self.place, self.size, self.all_copiers = place, size, all_copiers
        self.patience_seconds = PROGRESS_SECONDS[bench.peer.name]
        self.killed, self.given_up = 0, 0
        self.out = bench.scratch / f"copier-{self.word}-{place}.out"
        self.err = bench.scratch / f"copier-{self.word}-{place}.err"
        tool = "org.apache.kafka.tools.TransactionalMessageCopier"
        self.command = kafka_peer.java(peer_cache.kafka_class_path(), tool, heap="256m")
        self.command += ["--broker-list", bench.peer.bootstrap, "--input-topic", source]
        self.command += ["--input-partition", str(place), "--output-topic", target]
        self.command += ["--transactional-id", f"{bench.name}-{self.word}-{place}"]
        self.command += self.group_words(f"{bench.name}-{self.word}")
        self.command += ["--transaction-size", str(size.per_transaction)]
        self.command += ["--transaction-timeout", str(TIMEOUT_MS[bench.peer.name])]
        self.command += ["--enable-random-aborts"]
        self.child = None
        self.start()

    def group_words(self, name):
        """A group of its own, for the offsets."""
        return ["--consumer-group", f"{name}-{self.place}"]

    def start(self):
        """A new process with the same transactional id."""
        self.child = processes.start(self.command, self.out, self.err)

    def copied(self):
        """How much it says it has copied, over all of its lives."""
        told = self.told()
        return self.size.messages - told[-1]["remaining"] if told else 0

    def told(self):
        """All that it has said."""
        found = []
        lines = self.out.read_text(errors="replace").splitlines() if self.out.exists() else []
        for line in lines:
            try:
                found.append(json.loads(line))
            except ValueError:
                continue  # Cut off by a kill.
        return found

    def dealt(self):
        """How often the group gave it partitions."""
        return sum(fields["stage"] == "RebalanceComplete" for fields in self.told())

    def wait_for(self, count):
        """Until that much is copied, or it has ended."""
        deadline = time.monotonic() + self.patience_seconds
        while self.copied() < count and self.child.poll() is None:
            if time.monotonic() > deadline:
                place = f"copier {self.place} at {self.copied()} of {self.size.messages}"
                raise Mismatch(f"no progress within {self.patience_seconds} s: {place}")
            time.sleep(0.01)

    def kill(self):
        """`kill -9`."""
        if self.child.poll() is None:
            self.child.kill()
            self.child.wait()
            self.killed += 1

    def kill_and_start(self):
        """`kill -9`, and its successor. One that is done already starts again to no effect."""
        self.kill()
        self.start()

    def stop_and_start(self):
        """SIGTERM, upon which it leaves, and its successor."""
        if self.child.poll() is None:
            same(f"copier {self.place}", "exit", 143, processes.stop(self.child, STOP_SECONDS))
        self.start()

    def start_again_if_it_gave_up(self):
        """It may end when its transaction was aborted behind its back: timed out while the broker
        was down. That is the tool's way, and it must not happen over and over."""
        if self.child.poll() not in (None, 0):
            self.given_up += 1
            if self.given_up > GIVE_UPS_MAX:
                raise Mismatch(f"copier {self.place} ended with {self.child.returncode} again")
            self.start()

    def finish(self):
        """Until it ends by itself, having copied everything."""
        deadline = time.monotonic() + self.patience_seconds * 2
        while self.child.poll() != 0:
            self.start_again_if_it_gave_up()
            if time.monotonic() > deadline:
                raise Mismatch(f"copier {self.place} is still at {self.copied()}")
            time.sleep(0.02)


class GroupCopier(Copier):
    """A copier of whatever the group gives it. One that is given nothing ends, and well."""

    word = "group"
    metadata = ["--use-group-metadata"]

    def group_words(self, name):
        """One group for all of them."""
        return ["--consumer-group", name, "--group-mode", *self.metadata]

    def copied(self):
        """A partition's share of what all of them have copied; none counts what it did just before
        it was killed."""
        return sum(copier.processed() for copier in self.all_copiers) // PARTITIONS

    def processed(self):
        """By this one, over all of its lives."""
        total, before = 0, 0
        for fields in self.told():
            now = fields["totalProcessed"]
            total += now - before if now >= before else now
            before = now
        return total


class OldGroupCopier(GroupCopier):
    """The same without what the group knows of it in the transaction."""

    word = "old-group"
    metadata = []


class Reader:
    """A console consumer in a group of its own, from before the first copy to after the last."""

    def __init__(self, bench, topic, kind):
        self.topic = topic
        self.protocol = PROTOCOLS[KINDS.index(kind)]
        self.path = bench.scratch / f"{topic}-reader.out"
        command = kafka_peer.java(peer_cache.kafka_class_path(), CONSOLE, heap="128m")
        command += ["--bootstrap-server", bench.peer.bootstrap, "--topic", topic]
        command += ["--from-beginning", "--isolation-level", "read_committed"]
        properties = {"group.id": f"{topic}-readers", "group.protocol": self.protocol}
        for key, value in properties.items():
            command += ["--command-property", f"{key}={value}"]
        self.patience_seconds = PROGRESS_SECONDS[bench.peer.name]
        self.child = processes.start(command, self.path, self.path.with_suffix(".err"))

    def check(self, wanted):
        """It has seen everything, and nothing twice."""
        deadline = time.monotonic() + self.patience_seconds
        while len(self.lines()) < len(wanted):
            if time.monotonic() > deadline or self.child.poll() is not None:
                raise Mismatch(f"{self.path}: {len(self.lines())} of {len(wanted)} lines")
            time.sleep(0.1)
        same(self.topic, "lines read meanwhile", sorted(wanted), sorted(self.lines()))

    def lines(self):
        """Whole ones."""
        return self.path.read_text(encoding="utf-8").split("\n")[:-1]

    def kill(self):
        """`kill -9`."""
        self.child.kill()
        self.child.wait()


class Size:
    """How much, and how often what is ended."""

    messages, per_transaction = 50_000, 750
    killed_copiers, copier_kills, copier_stops, broker_kills, broker_stops = 2, 3, 1, 2, 1

    @staticmethod
    def quick():
        """For every change."""
        size = Size()
        size.messages, size.per_transaction = 1_500, 50
        size.copier_kills, size.copier_stops, size.broker_kills, size.broker_stops = 1, 0, 1, 0
        return size

    @staticmethod
    def group():
        """Whoever is killed stays a member for the ten seconds that the tool asks for."""
        size = Size()
        size.copier_kills = 2
        return size

    @staticmethod
    def quick_group():
        """For every change."""
        size = Size.quick()
        size.killed_copiers = 1
        return size


PARTITIONS = 2
OUTPUT_PARTITIONS = 3
KINDS = [Copier, GroupCopier, OldGroupCopier]
PROTOCOLS = ["classic", "consumer", "consumer"]
CONSOLE = "org.apache.kafka.tools.consumer.ConsoleConsumer"
STOP_SECONDS = 30
# A copier that is killed between its offsets and its commit leaves them pending, and its successor
# asks for the group's offsets before it says who it is: it waits until the transaction times out.
# It may time out while the broker starts, which is as good a moment as any. Not so for Apache Kafka
# 4.3.1 with one broker: a coordinator that is loaded before the broker is unfenced finds partitions
# without a leader, takes them for deleted, and completes the transaction without their markers. The
# output and the group's offsets then hang (88, for good). There, timeouts are kept out of restarts.
TIMEOUT_MS = {"ringlog": 6_000, "kafka": 40_000}
PROGRESS_SECONDS = {"ringlog": 60, "kafka": 240}
PROPERTIES = {"transaction.abort.timed.out.transaction.cleanup.interval.ms": "500"}
GIVE_UPS_MAX = 3
ASKS_FOR_A_COORDINATOR = True
