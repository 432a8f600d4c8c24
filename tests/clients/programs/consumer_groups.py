"""librdkafka consumer groups whose members come, go, crash and are bounced while records arrive.

Runs a broker of its own with short session timeouts. Four groups read one topic at one time: the
classic protocol with an eager and with a cooperative assignor, the newer one, and one whose members
go over from each of these to the next, one by one, again and again. A seeded choice starts members, stops them, kills them with SIGKILL and starts them again at once. But for
--quick the broker is killed and started again in the middle of it too. At the end every group has
to read up, leave, and pass group_checker.py.
"""

import random
import subprocess
import threading
import time

import group_checker
import peer_cache
import processes
from bench import PROGRAMS
from records import Mismatch


def run(bench):
    """All groups at once; each has its own line of counts."""
    peer = bench.new_peer(properties=PROPERTIES, fixed_ports=True)
    peer.start()
    try:
        own = bench.on(peer)
        topic = own.topic("t", PARTITIONS)
        producer = Part(own, "producer", "produce", topic, str(RECORDS_A_SECOND))
        groups = [Group(own, topic, name, settings) for name, settings in GROUPS.items()]
        groups.append(RollingGroup(own, topic, "rolling", ROLLING))
        seconds = 6 if bench.quick else 20
        threads = [threading.Thread(target=one.live, args=(seconds,)) for one in groups]
        try:
            for thread in threads:
                thread.start()
            if not bench.quick:
                time.sleep(seconds / 2)
                peer.kill()
                peer.start()
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
        self.asked = False
        self.path = bench.scratch / f"{bench.name}-{name}.jsonl"
        command = [peer_cache.python_with_confluent_kafka(), PROGRAMS / "confluent_group.py"]
        command += [word, bench.peer.bootstrap, *arguments]
        self.child = processes.start(command, self.path, self.path.with_suffix(".err"))

    def stop(self):
        """SIGTERM, and it has to end by itself."""
        self.ask_to_stop()
        try:
            code = self.child.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            code = f"nothing after {STOP_SECONDS} s"
        if code != 0:
            text = self.path.with_suffix(".err").read_text(errors="replace").strip()
            raise Mismatch(f"{self.name} ended with {code}: {text[-300:]}")

    def ask_to_stop(self):
        """SIGTERM, once it listens to it, and only once: a Python that is ending does not."""
        if self.asked:
            return
        self.asked = True
        deadline = time.monotonic() + STOP_SECONDS
        while not self.lines() and self.child.poll() is None and time.monotonic() < deadline:
            time.sleep(0.05)
        if self.child.poll() is None:
            self.child.terminate()

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
            member.ask_to_stop()
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


class RollingGroup(Group):
    """Its members are replaced one by one by such that speak another protocol."""

    def __init__(self, bench, topic, name, kinds):
        self.kinds = [[f"group.id={name}", *kind] for kind in kinds]
        super().__init__(bench, topic, name, kinds[0])

    def join(self):
        """One more member, of the kind that is due."""
        self.settings = self.kinds[0]
        super().join()
        self.members[-1].settings = self.settings

    def act(self):
        """Replaces one of the last kind; when there is none, the next kind is due."""
        if len(self.members) < ROLLING_MEMBERS:
            self.join()
            return
        if all(member.settings is self.kinds[0] for member in self.members):
            self.kinds.append(self.kinds.pop(0))
        member = next(one for one in self.members if one.settings is not self.kinds[0])
        self.members.remove(member)
        if self.random.random() < 0.3:
            self.kill(member)
        else:
            member.stop()
        self.join()


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
ROLLING = [GROUPS["classic"], GROUPS["consumer"], GROUPS["cooperative"], GROUPS["consumer"]]
ROLLING_MEMBERS = 3
PROPERTIES = {
    "group.min.session.timeout.ms": "2000",
    "group.initial.rebalance.delay.ms": "0",
    "group.consumer.min.session.timeout.ms": "2000",
    "group.consumer.session.timeout.ms": "4000",
    "group.consumer.min.heartbeat.interval.ms": "200",
    "group.consumer.heartbeat.interval.ms": "300",
}
ASKS_FOR_A_COORDINATOR = True
