"""Consume, transform, produce in transactions: the life of processors of orders, and the check.

A processor is one process of a client's own program, called with BOOTSTRAP NAME INPUT OUTPUT
SETTING... (names of Kafka's configs): a member of a group reads committed orders, at most
max.poll.records at a time, and writes one bill for each into the same partition of the output,
with the offsets in the same transaction; `pause.ms` lie between `sent` and the commit. Key: the
order's own; value: `bill of ` and the order's. It prints one JSON object a line, each at once:
started; assigned and revoked with p partitions; sent with the ids that it has seen and has sent
bills for, then committed or aborted with the same ids; error, with a code for people; fenced, when
it is told that another has its place, and then ends with 3; closed, after SIGTERM, when it has
left.

Owns: what is sent, what becomes of the processors and of the broker, and what has to be there at
the end: a bill for every order that was committed, once, in the order of its partition, and none
for one that was not; the group's offsets at the ends; no id that two transactions committed.
Must never: believe a processor. What stands in the output is read by two other clients.
"""

import dataclasses
import os
import random
import signal
import time

import transactions as txn
from group_life import Part
from records import BASE_TIMESTAMP, Mismatch, Record, same

from programs import consumer_group_command as groups


@dataclasses.dataclass(frozen=True)
class Client:
    """`command` gives the start of the command line and the environment of a processor."""

    command: object
    settings: tuple = ()
    # A zombie goes on as a member, without what it had in hand.
    rejoins: bool = False


def run(bench, clients):
    """One life for each of some clients, by name, on a broker of their own: it is killed."""
    for client in clients.values():
        client.command()  # Installed before anything is started.
    with bench.own_broker(PROPERTIES) as own:
        return "; ".join(Life(own, name, client).live() for name, client in clients.items())


class Shop:
    """The orders of one program, and the bills that there have to be."""

    def __init__(self, bench, name, **output_configs):
        self.bench = bench
        self.name = f"{bench.name}-{name}"
        self.random = random.Random(f"{SEED} {self.name}")
        self.input = bench.topic(f"{name}-input", PARTITIONS)
        self.output = bench.topic(f"{name}-output", PARTITIONS, **output_configs)
        self.sent = []
        self.given = 0

    def send(self, count=None):
        """More orders, in transactions, some of which are aborted."""
        count = count or (QUICK_ORDERS if self.bench.quick else ORDERS)
        path = self.bench.scratch / f"{self.name}-orders.jsonl"
        with open(path, "w", encoding="utf-8") as file:
            for _ in range(0, count, PER_TRANSACTION):
                commit = self.random.random() < 0.8
                orders = [self.order() for _ in range(PER_TRANSACTION)]
                file.write(txn.Transaction(commit, [(self.input, one) for one in orders]).to_line())
                self.sent += orders if commit else []
        self.bench.records("transact", path, f"{self.name}-shop")

    def order(self):
        """The next one: ids are given to those too that are aborted."""
        number = self.given
        self.given += 1
        value = b"order %d of " % number + b"v" * self.random.randint(0, 60)
        key, stamp = b"%d" % number, BASE_TIMESTAMP + number
        return Record(self.random.randrange(PARTITIONS), key, value, [], stamp)

    def read(self):
        """The output as Java's consumer sees it."""
        return self.bench.consume(self.output, txn.COMMITTED)

    def billed(self):
        """Ids of the bills that Java's consumer sees."""
        return {int(record.key) for record in self.read()}

    def missing(self):
        """Ids of orders that have no bill yet."""
        return {int(record.key) for record in self.sent} - self.billed()

    def check(self):
        """Output by two readers; how many bills were aborted."""
        found = self.read()
        wanted = {place: [] for place in range(PARTITIONS)}
        for record in self.sent:
            wanted[record.partition].append((record.key, b"bill of " + record.value))
        for place, bills in wanted.items():
            compare_bills(f"{self.output}-{place}", bills, of_partition(found, place))
        again = self.bench.confluent("consume", self.output, txn.COMMITTED)
        for place, bills in wanted.items():
            compare_bills(f"{self.output}-{place} by librdkafka", bills, of_partition(again, place))
        # Aborted bills are there too, or nothing was tried.
        aborted = len(self.bench.consume(self.output)) - len(found)
        same(self.output, "aborted bills", True, aborted > 0)
        return aborted

    def check_offsets(self, group):
        """The group has committed what follows the last order of each partition."""
        found = groups.offsets(self.bench, group)
        last = {}
        for record in self.bench.consume(self.input, txn.COMMITTED):
            last[self.input, str(record.partition)] = record.offset
        same(group, "partitions with offsets", set(last), set(found))
        for place, (current, end, _) in found.items():
            # Markers and orders that were aborted may stand between that and the end.
            same(f"{place}", "offset after the last", True, last[place] < int(current) <= int(end))


class Life:
    """The processors of one client, from the first order to the last."""

    give_ups_max = 8

    def __init__(self, bench, name, client, **output_configs):
        self.bench, self.name, self.client = bench, name, client
        self.shop = Shop(bench, name, **output_configs)
        self.patience_seconds = PROGRESS_SECONDS[bench.peer.name]
        self.parts, self.alive, self.counts = [], {}, {"killed": 0, "given up": 0, "fenced": 0}

    def live(self):
        """Kills, a rebalance and a zombie, each in the middle of some work."""
        try:
            instances = 2 if self.bench.quick else INSTANCES
            for number in range(instances):
                self.start(f"p{number}")
            for number in range(instances):
                self.alive[f"p{number}"].wait_for("assigned")
            for disturb in self.disturbances():
                self.shop.send()
                self.wait_for_more(BATCH * 3)
                disturb()
            self.shop.send()
            self.wait_for_all()
            for part in self.alive.values():
                part.ask_to_stop()
            for part in self.alive.values():
                part.stop()
            return self.check()
        finally:
            for part in self.parts:
                part.kill_if_alive()

    def disturbances(self):
        """In a fixed order: the next names what the last has left. The broker is killed but for
        Apache Kafka 4.3.1 with one: started anew it skips markers of partitions that nobody leads
        yet ("likely deleted already", it logs), of `__consumer_offsets` too, and completes the
        transaction without them. The group then reads what was committed a second time."""
        kills_broker = self.bench.peer.name == "ringlog"
        yield lambda: self.kill_and_start("p0")
        if kills_broker:
            yield self.kill_broker
        if not self.bench.quick:
            yield lambda: self.leave_and_join("p1", "p3")
            yield lambda: self.kill_and_start("p2")
            if kills_broker:
                yield self.kill_broker
        yield lambda: self.replace_stopped("p0")

    def start(self, identity):
        """A process; its name tells its lives apart, its transactional id stays."""
        argv, environment = self.command(identity)
        name = f"{self.group}-{identity}-{len(self.parts)}"
        settings = {**SETTINGS, **dict(self.client.settings)}
        settings["group.id"] = self.group
        settings["transactional.id"] = self.transactional_id(identity)
        settings["transaction.timeout.ms"] = TIMEOUT_MS[self.bench.peer.name]
        argv = [*argv, self.bench.peer.bootstrap, name, self.shop.input, self.shop.output]
        argv += [f"{key}={value}" for key, value in settings.items()]
        part = Part(name, (argv, environment), self.bench.scratch)
        self.parts.append(part)
        self.alive[identity] = part

    def command(self, _identity):
        """The start of its command line, and its environment."""
        return self.client.command()

    def transactional_id(self, identity):
        """What follows a dot tells processes of one id apart."""
        return f"{self.group}-{identity.split('.')[0]}"

    @property
    def group(self):
        """Name of the group, and the start of its transactional ids."""
        return self.shop.name

    def kill_and_start(self, identity):
        """`kill -9`, and its successor at once. One that had ended counts as that."""
        self.wait_for_bills_at_hand(identity)
        self.alive[identity].kill()
        self.counts["killed"] += 1
        self.start(identity)

    def kill_broker(self):
        """`kill -9`, over the same directory and ports again."""
        self.bench.peer.kill()
        self.bench.peer.start()

    def leave_and_join(self, leaves, joins):
        """Two rebalances."""
        self.look_after()
        self.alive.pop(leaves).stop()
        self.start(joins)

    def replace_stopped(self, identity):
        """One is stopped (SIGSTOP) at work, another takes its transactional id, the group its
        partitions. When it goes on it must be told that it is fenced, and commit nothing more."""
        # One that has sent nothing has no epoch yet, and would be the later of the two.
        self.wait(lambda: ids(self.alive[identity].lines(), "committed"), lambda: "nothing to stop")
        self.wait_for_bills_at_hand(identity)
        zombie = self.alive[identity]
        os.kill(zombie.child.pid, signal.SIGSTOP)
        if not self.client.rejoins:
            self.start(identity)
        self.shop.send()
        self.wait_for_all()
        # Of the transaction that it may have been ending, it has yet to hear.
        before = ids(zombie.lines(), "sent")
        os.kill(zombie.child.pid, signal.SIGCONT)
        if self.client.rejoins:
            self.wait_until_back(zombie, before)
            return
        deadline = time.monotonic() + self.patience_seconds
        while zombie.child.poll() is None:
            if time.monotonic() > deadline:
                raise Mismatch(f"{zombie.name} was not fenced")
            # It may have been about to wait for more, and learns of it by the next.
            self.shop.send(PER_TRANSACTION)
            time.sleep(0.2)
        same(zombie.name, "exit of a fenced one", 3, zombie.child.returncode)
        since = set(ids(zombie.lines(), "committed")) - set(before)
        same(zombie.name, "ids committed since", set(), since)
        self.counts["fenced"] += 1

    def wait_until_back(self, zombie, before):
        """It commits new orders, after it has lost the old ones: these have bills already."""
        def is_back():
            self.shop.send(PER_TRANSACTION)
            return set(ids(zombie.lines(), "committed")) - set(before)
        self.wait(is_back, lambda: f"{zombie.name} does not come back", 0.5)
        self.counts["rejoined"] = 1

    def look_after(self):
        """Whoever has ended is started again: its transaction timed out while the broker was away,
        say. That is the client's way, and must not happen over and over."""
        for identity, part in list(self.alive.items()):
            if part.child.poll() is None:
                continue
            self.counts["given up"] += 1
            if self.counts["given up"] > self.give_ups_max:
                raise Mismatch(f"{part.name} ended with {part.child.returncode}: {part.errors()}")
            self.start(identity)

    def told(self):
        """Ids that processors say they have committed."""
        return [one for part in self.parts for one in ids(part.lines(), "committed")]

    def wait_for_more(self, count):
        """Until some more ids are told as committed, all ends of processors apart."""
        goal = min(len(self.told()) + count, len(self.shop.sent))
        self.wait(lambda: len(self.told()) >= goal, lambda: f"{len(self.told())} of {goal}")

    def wait_for_bills_at_hand(self, identity):
        """Until it has sent bills that it has not committed yet, if it has anything left to do."""
        lines = lambda: self.alive[identity].lines()  # noqa: E731
        done = lambda: len(self.told()) >= len(self.shop.sent)  # noqa: E731
        at_hand = lambda: lines() and lines()[-1]["event"] == "sent"  # noqa: E731
        self.wait(lambda: at_hand() or done(), lambda: f"{identity} has nothing to do", 0.002)

    def wait_for_all(self):
        """Until the output has a bill for every order."""
        missing = self.shop.missing
        self.wait(lambda: not missing(), lambda: f"{len(missing())} bills are missing", 0.3)

    def wait(self, is_so, tell, pause_seconds=0.02):
        """With a bound, and while processors are looked after."""
        deadline = time.monotonic() + self.patience_seconds
        while not is_so():
            self.look_after()
            if time.monotonic() > deadline:
                raise Mismatch(f"{self.group}: {tell()}")
            time.sleep(pause_seconds)

    def check(self):
        """Output, offsets and lines; what happened, as text."""
        aborted = self.shop.check()
        self.shop.check_offsets(self.group)
        told = self.told()
        same(self.group, "ids told twice", len(set(told)), len(told))
        sent = {int(record.key) for record in self.shop.sent}
        same(self.group, "ids told and not sent", set(), set(told) - sent)
        counts = ", ".join(f"{count} {word}" for word, count in self.counts.items() if count)
        lines = [line["event"] for part in self.parts for line in part.lines()]
        return (
            f"{self.name}: {len(sent)} orders, {aborted} bills aborted, {counts}, "
            f"{lines.count('assigned')} assignments"
        )


def ids(lines, event):
    """Ids of all such lines."""
    return [one for line in lines if line["event"] == event for one in line["ids"]]


def of_partition(found, place):
    """Key and value of its records."""
    return [(record.key, record.value) for record in found if record.partition == place]


def compare_bills(place, wanted, found):
    """One by one."""
    for index, (bill, other) in enumerate(zip(wanted, found, strict=False)):
        same(f"{place} record {index}", "bill", bill, other)
    same(place, "bills", len(wanted), len(found))


SEED = 7
INSTANCES = 3
PARTITIONS = 4
PER_TRANSACTION = 40
QUICK_ORDERS = 200
ORDERS = 800
BATCH = 10
# kafkajs takes a third of a second for a transaction where 51 is answered.
PROGRESS_SECONDS = {"ringlog": 60, "kafka": 180}
# Told in transactional_copier.py.
TIMEOUT_MS = {"ringlog": 4_000, "kafka": 20_000}
SETTINGS = {
    "max.poll.records": BATCH,
    "pause.ms": 20,
    "session.timeout.ms": 2_000,
    "heartbeat.interval.ms": 250,
    "group.protocol": "classic",
}
# For clients that send no generation with their offsets.
PATIENT = (("session.timeout.ms", 6_000),)
PROPERTIES = {
    "group.min.session.timeout.ms": "1000",
    "group.initial.rebalance.delay.ms": "0",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "500",
    "group.consumer.min.session.timeout.ms": "1000",
    "group.consumer.session.timeout.ms": "2000",
    "group.consumer.min.heartbeat.interval.ms": "200",
    "group.consumer.heartbeat.interval.ms": "250",
}
