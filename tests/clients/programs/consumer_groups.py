"""librdkafka consumer groups whose members come, go, crash and are bounced while records arrive.

Runs a broker of its own with short session timeouts. Three groups read one topic at one time: the
classic protocol with an eager and with a cooperative assignor, and the newer one. A seeded
choice starts members, stops them, kills them with SIGKILL and starts them again at once. At the
end every group has to read up, leave, and pass group_checker.py.
"""

import random
import threading
import time

import group_checker
import peer_cache
import processes
from bench import PROGRAMS
from records import Mismatch


def run(bench):
    """All groups at once; each has its own line of counts."""
    peer = bench.new_peer(properties=PROPERTIES)
    peer.start()
    try:
        own = bench.on(peer)
        topic = own.topic("t", PARTITIONS)
        producer = Part(own, "producer", "produce", topic, str(RECORDS_A_SECOND))
        groups = [Group(own, topic, name, settings) for name, settings in GROUPS.items()]
        seconds = 8 if bench.quick else 20
        threads = [threading.Thread(target=one.live, args=(seconds,)) for one in groups]
        try:
            for thread in threads:
                thread.start()
            for one in groups:
                one.lived.wait()
            producer.stop()
            texts = [one.finish(producer.lines()) for one in groups]
        finally:
            for one in groups:
                one.over.set()
            for part in [producer, *[part for one in groups for part in one.parts]]:
                part.child.kill()
                part.child.wait()
        if not peer.stop():
            raise Mismatch("the broker did not stop cleanly")
    finally:
        peer.stop()
    return "; ".join(texts)


class Part:
    """One process of confluent_group.py and the file with its lines."""

    def __init__(self, bench, name, word, *arguments):
        self.name = name
        self.path = bench.scratch / f"{bench.name}-{name}.jsonl"
        command = [peer_cache.python_with_confluent_kafka(), PROGRAMS / "confluent_group.py"]
        command += [word, bench.peer.bootstrap, *arguments]
        self.child = processes.start(command, self.path, self.path.with_suffix(".err"))

    def stop(self):
        """SIGTERM, once it listens to it; it has to end by itself."""
        deadline = time.monotonic() + STOP_SECONDS
        while not self.lines() and self.child.poll() is None and time.monotonic() < deadline:
            time.sleep(0.05)
        code = processes.stop(self.child, STOP_SECONDS)
        if code != 0:
            text = self.path.with_suffix(".err").read_text(errors="replace").strip()
            raise Mismatch(f"{self.name} ended with {code}: {text[-300:]}")

    def lines(self):
        """What it has printed so far."""
        return group_checker.read(self.path)


class Group:
    """The members of one group and one who looks on."""

    def __init__(self, bench, topic, name, settings):
        self.bench = bench
        self.topic = topic
        self.name = name
        self.settings = [f"group.id={name}", *settings]
        self.random = random.Random(f"{SEED} {name}")
        self.killed = []
        self.fault = None
        self.lived, self.over = threading.Event(), threading.Event()
        self.members = []
        self.parts = [Part(bench, f"{name}-observer", "observe", topic, name)]
        self.join()

    def join(self):
        """One more member."""
        name = f"{self.name}-{len(self.parts)}"
        self.members.append(Part(self.bench, name, "member", self.topic, name, *self.settings))
        self.parts.append(self.members[-1])

    def live(self, seconds):
        """One deed after the other; a fault waits for `finish`. A thread takes the processes that
        it started with it when it ends (processes.py), so this one stays."""
        try:
            deadline = time.monotonic() + seconds
            while time.monotonic() < deadline:
                time.sleep(self.random.uniform(0.3, 1.2))
                self.act()
        except Exception as fault:  # Of a thread: told by the one who waits for it.
            self.fault = fault
        self.lived.set()
        self.over.wait()

    def act(self):
        """Join, leave, crash, or leave or crash and come back at once."""
        if len(self.members) < 2 or (len(self.members) < MEMBERS and self.random.random() < 0.5):
            self.join()
            return
        member = self.members.pop(self.random.randrange(len(self.members)))
        if self.random.random() < 0.5:
            self.kill(member)
        else:
            member.stop()
        if self.random.random() < 0.5:
            self.join()

    def kill(self, member):
        """Its ownership ends when the process is gone."""
        member.child.kill()
        member.child.wait()
        line = {"event": "killed", "ns": time.monotonic_ns(), "member": member.name}
        self.killed.append(line)

    def finish(self, produced):
        """Reads up, leaves, and is checked; the counts as text."""
        if self.fault is not None:
            raise self.fault
        if not self.members:
            self.join()
        deadline = time.monotonic() + READ_UP_SECONDS
        while group_checker.unread(produced + self.lines()) and time.monotonic() < deadline:
            time.sleep(0.2)
        for member in self.members:
            member.stop()
        self.parts[0].stop()
        try:
            counts = group_checker.check(produced + self.lines())
        except Mismatch as fault:
            raise Mismatch(f"{self.name}: {fault}") from fault
        named = ", ".join(f"{count} {name}" for name, count in counts.items())
        return f"{self.name}: {len(self.parts) - 1} members, {named}"

    def lines(self):
        """Of everybody."""
        return self.killed + [line for part in self.parts for line in part.lines()]


PARTITIONS = 6
MEMBERS = 5
RECORDS_A_SECOND = 200
SEED = 5
STOP_SECONDS = 30
READ_UP_SECONDS = 30
CLASSIC = ["session.timeout.ms=4000", "heartbeat.interval.ms=300"]
GROUPS = {
    "classic": [*CLASSIC, "partition.assignment.strategy=range"],
    "cooperative": [*CLASSIC, "partition.assignment.strategy=cooperative-sticky"],
    "consumer": ["group.protocol=consumer"],
}
PROPERTIES = {
    "group.min.session.timeout.ms": "2000",
    "group.initial.rebalance.delay.ms": "0",
    "group.consumer.min.session.timeout.ms": "2000",
    "group.consumer.session.timeout.ms": "4000",
    "group.consumer.min.heartbeat.interval.ms": "200",
    "group.consumer.heartbeat.interval.ms": "300",
}
ASKS_FOR_A_COORDINATOR = True
