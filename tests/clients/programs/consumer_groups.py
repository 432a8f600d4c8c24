"""Consumer groups of many clients whose members come, go, crash and are bounced under load.

Runs a broker of its own with short session timeouts. Each client has a group for each protocol that
it speaks (FLAVOURS); those of a wave read one topic at one time, while a producer writes to it. A
seeded choice starts members, stops them, kills them with SIGKILL and starts them again at once, and
the broker is killed and started again in the middle of it. At the end of a wave every group has to
have read and committed everything, leave, and pass group_checker.py. With --quick there is one wave
of a few members each; the whole takes five minutes. RINGLOG_GROUP_FLAVOURS names a few of them.

All are judged by the same rules. Where a client does not tell what the rules ask for, its program
makes up for it, and says how in its head.
"""

import dataclasses
import os
import sys
import threading
import time

import group_checker
import group_life
import processes
from bench import PROGRAMS
from group_life import Flavour, Group, Part


def run(bench):
    """All waves on one broker; each group has its own line of counts."""
    size = QUICK if bench.quick else FULL
    own_tests = [sys.executable, PROGRAMS.parent / "test_group_checker.py"]
    processes.run(own_tests, 60, bench.log_path)  # A checker that cannot fail proves nothing.
    for flavour in FLAVOURS.values():
        flavour.command()  # Installed before anything is started.
    names = [name for name in FLAVOURS if name in os.environ.get(ONLY, name).split(",")]
    texts = []
    if bench.peer.name == "kafka":
        texts = [f"{name} left out: {why}" for name, why in NOT_KAFKA.items() if name in names]
        names = [name for name in names if name not in NOT_KAFKA]
    waves = max(1, min(size.waves, len(names)))
    with bench.own_broker(PROPERTIES) as own:
        for number in range(waves):
            texts += Wave(own, number, names[number::waves], size).run()
    return "\n        ".join([f"{len(names)} groups", *texts])


class Wave:
    """Some groups that read one topic at one time."""

    def __init__(self, bench, number, names, size):
        self.bench, self.size, self.names = bench, size, names
        self.topic = bench.topic(f"t{number}", size.partitions)
        self.producer = self.helper(f"producer-{number}", "produce", str(size.records_a_second))
        self.observer = self.helper(f"observer-{number}", "observe", *names)
        self.away = []
        self.groups = [Group(bench, self.topic, name, FLAVOURS[name], size) for name in names]

    def helper(self, name, word, *words):
        """A process of confluent_group.py that is no member."""
        argv, environment = group_life.confluent(word, self.bench.peer.bootstrap, self.topic)
        return Part(name, ([*argv, *words], environment), self.bench.scratch)

    def run(self):
        """The counts of each group, as text."""
        try:
            for group in self.groups:
                group.parts[0].wait_for("assigned")  # From here on time counts.
            for group in self.groups:
                threading.Thread(target=group.live, args=(self.size.seconds,)).start()
            for _ in range(self.size.kills):
                time.sleep(self.size.seconds / (self.size.kills + 1))
                since = time.monotonic_ns()
                self.bench.peer.kill()
                self.bench.peer.start()
                self.away.append({"event": "away", "since": since, "ns": time.monotonic_ns()})
            for group in self.groups:
                group.lived.wait()
            self.producer.stop()
            self.read_up()
            threads = [threading.Thread(target=group.leave) for group in self.groups]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            self.observer.stop()
            return [group.check(self.others(group), SESSION_SECONDS) for group in self.groups]
        finally:
            parts = [part for group in self.groups for part in group.parts]
            for part in [self.producer, self.observer, *parts]:
                part.child.kill()
                part.child.wait()
            for group in self.groups:
                group.over.set()

    def read_up(self):
        """Until everybody has read and committed all, or the checker will say who has not."""
        deadline = time.monotonic() + READ_UP_SECONDS
        ends = {}
        for line in self.producer.lines():
            if line["event"] == "produced":
                ends[line["p"]] = max(ends.get(line["p"], 0), line["o"] + 1)
        while time.monotonic() < deadline:
            last = {line["group"]: line for line in self.observer.lines() if "group" in line}
            done = [name for name in last if group_checker.offsets_of(last[name]) == ends]
            if sorted(done) == sorted(self.names):
                return
            time.sleep(0.2)

    def others(self, group):
        """What was produced, and what was seen of this group."""
        seen = [line for line in self.observer.lines() if line.get("group") == group.name]
        return self.producer.lines() + seen + self.away


@dataclasses.dataclass(frozen=True)
class Size:
    """How long, and how much at a time; members of each group, and the pauses between deeds."""

    waves: int
    seconds: float
    kills: int
    fewest: int
    most: int
    partitions: int
    records_a_second: int
    pauses: tuple


QUICK = Size(1, 20, 1, 2, 5, 6, 100, (0.5, 2.5))
FULL = Size(3, 66, 2, 5, 20, 16, 200, (0.3, 2))
READ_UP_SECONDS = 60
ONLY = "RINGLOG_GROUP_FLAVOURS"
SESSION_SECONDS = 6
CLASSIC = [f"session.timeout.ms={SESSION_SECONDS * 1000}", "heartbeat.interval.ms=500"]
EAGER = [*CLASSIC, "partition.assignment.strategy=range"]
COOPERATIVE = [*CLASSIC, "partition.assignment.strategy=cooperative-sticky"]
JAVA = "partition.assignment.strategy=org.apache.kafka.clients.consumer."
JAVA_EAGER = [*CLASSIC, f"{JAVA}RangeAssignor"]
JAVA_COOPERATIVE = [*CLASSIC, f"{JAVA}CooperativeStickyAssignor"]
CONSUMER = ["group.protocol=consumer"]
FLAVOURS = {
    "librdkafka-eager": Flavour(group_life.librdkafka, EAGER),
    "librdkafka-cooperative": Flavour(group_life.librdkafka, COOPERATIVE),
    "librdkafka-consumer": Flavour(group_life.librdkafka, CONSUMER),
    # From one protocol to the other and back, while the group lives.
    "librdkafka-rolling": Flavour(
        group_life.librdkafka, EAGER, turns=(CONSUMER, COOPERATIVE, CONSUMER)
    ),
    "java-eager": Flavour(group_life.java, JAVA_EAGER, 4, 2),
    "java-cooperative": Flavour(group_life.java, JAVA_COOPERATIVE, 4, 2),
    "java-consumer": Flavour(group_life.java, CONSUMER, 4, 2),
    # Who was killed is a member for a while, after a restart of the broker by the chosen assignor
    # alone: whoever comes later by the classic protocol has to have the same.
    "java-rolling": Flavour(group_life.java, JAVA_COOPERATIVE, 4, 2, turns=(CONSUMER,)),
    "franz-go": Flavour(group_life.franz, COOPERATIVE),
    "franz-go-consumer": Flavour(group_life.franz, CONSUMER),
    # Its program takes what the client gives up, and takes up again, from the client's log.
    "kafkajs": Flavour(group_life.kafkajs, CLASSIC),
    # Its program says by itself that it gives up what it has before it leaves.
    "aiokafka": Flavour(group_life.aiokafka, CLASSIC),
    # Its program begins at what is committed, which the client forgets after a missed generation.
    "kafka-python": Flavour(group_life.kafka_python, EAGER),
    "kafka-python-cooperative": Flavour(group_life.kafka_python, COOPERATIVE),
}
NOT_KAFKA = {
    "librdkafka-rolling": "when a group of cooperative members goes over to the consumer protocol "
    "in the middle of a rebalance, Kafka 4.3.1 gives others at once what they still have",
}
PROPERTIES = {
    "group.min.session.timeout.ms": "2000",
    "group.initial.rebalance.delay.ms": "0",
    "group.consumer.min.session.timeout.ms": "2000",
    "group.consumer.session.timeout.ms": str(SESSION_SECONDS * 1000),
    "group.consumer.min.heartbeat.interval.ms": "200",
    "group.consumer.heartbeat.interval.ms": "500",
}
ASKS_FOR_A_COORDINATOR = True
