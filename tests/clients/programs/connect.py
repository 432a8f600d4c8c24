"""Kafka Connect in distributed mode: files into topics into files, while workers are killed.

Two workers share a group of type `connect` (incremental cooperative rebalancing), create their
three compacted topics and the connectors' topics themselves, and run a file source and a file sink
for each of some files. The files grow while a worker is killed (`kill -9`) and started again; but
for --quick the broker is killed as well, and it all happens twice: with source connectors that
write at least once, and exactly once (a transaction for each batch, offsets in it).

A line of a file stands at its place in what came of it. What may be there besides: after a kill
a source that writes at least once, and every sink, goes back to what it committed last, and
repeats all that follows.
"""

import threading
import time

import transactions as txn
from connect_worker import Worker, is_shared, overtaken
from records import Mismatch, same


def run(bench):
    """A broker of its own: it is killed."""
    modes = [True] if bench.quick else [False, True]
    return "; ".join(live(bench, exactly_once) for exactly_once in modes)


def live(bench, exactly_once):
    """One cluster of two workers, from its first start to its end."""
    with bench.own_broker(PROPERTIES) as own:
        cluster = Cluster(own, exactly_once)
        try:
            return cluster.live(bench.quick)
        finally:
            cluster.end()


class Cluster:
    """Two workers, and the files that go in and come out."""

    def __init__(self, bench, exactly_once):
        self.bench = bench
        self.exactly_once = exactly_once
        self.mode = "exactly-once" if exactly_once else "at-least-once"
        self.ends = 0
        self.overtaken = set()
        settings = {**SETTINGS, "group.id": GROUP}
        settings["exactly.once.source.support"] = "enabled" if exactly_once else "disabled"
        self.workers = [Worker(bench, f"{self.mode}-{name}", settings) for name in "ab"]
        names = [f"{self.mode}-{number}" for number in range(2 if bench.quick else 3)]
        self.files = [File(bench.scratch, name) for name in names]

    def live(self, quick):
        """Start, growth, kills, growth, and what has come of it."""
        for worker in self.workers:
            worker.start()
        first, second = self.workers
        for file in self.files:
            second.ask("PUT", f"/connectors/{file.source}/config", self.source(file))
            second.ask("PUT", f"/connectors/{file.sink}/config", self.sink(file))
        self.wait_until_shared(first)
        self.check_topics()
        growth = Growth(self.files, QUICK_LINES if quick else LINES)
        try:
            self.wait_for_lines(QUICK_LINES // 4)
            self.kill_and_start(first)
            if not quick:
                self.ends += self.bench.kill_broker()
                self.wait_for_lines(LINES // 2)
                self.kill_and_start(second)
        finally:
            growth.end()
        self.wait_for_lines(growth.lines)
        total = sum(self.check(first, file, growth.lines) for file in self.files)
        for worker in self.workers:
            worker.stop()
        lost = f", {len(self.overtaken)} commits before their records" if self.overtaken else ""
        return f"{self.mode}: {total} lines compared, {self.ends} ends{lost}"

    def end(self):
        """Nothing stays behind."""
        for worker in self.workers:
            if worker.child is not None:
                worker.kill()

    def kill_and_start(self, worker):
        """`kill -9`; the other worker takes over, and gives half of it back."""
        worker.kill()
        self.ends += 1
        worker.start()
        self.wait_until_shared(worker)

    def source(self, file):
        """The connector from a file to its topic."""
        config = {"connector.class": "FileStreamSource", "tasks.max": "1"}
        config |= {"file": str(file.input), "topic": file.topic, "batch.size": str(BATCH_LINES)}
        config |= {f"topic.creation.default.{key}": "1" for key in CREATION}
        if self.exactly_once:
            config |= {"exactly.once.support": "required", "transaction.boundary": "poll"}
        return config

    def sink(self, file):
        """The connector from a topic to its file."""
        config = {"connector.class": "FileStreamSink", "tasks.max": "1"}
        return config | {"file": str(file.output), "topics": file.topic}

    def check_topics(self):
        """What Connect has created: compacted topics of its own, and a group of its own kind."""
        for topic, partitions in INTERNAL.items():
            self.bench.check_topic(topic, partitions, "compact")
        _, printed = self.bench.resident_tool("org.apache.kafka.tools.GroupsCommand", "--list")
        rows = [row for row in map(str.split, printed) if GROUP in row]
        same("groups", GROUP, [[GROUP, "Classic", "connect"]], rows)

    def statuses(self, worker):
        """By connector. None may have failed but for a fault of the client, which is proven by its
        log; the task starts again."""
        found = worker.ask("GET", "/connectors?expand=status")
        statuses = {name: one["status"] for name, one in found.items()}
        for name, one in statuses.items():
            for part in [one["connector"], *one["tasks"]]:
                if part["state"] != "FAILED":
                    continue
                task = part.get("id")
                found = overtaken(self.workers, f"{GROUP}-{name}-{task}", "connect-offsets")
                if not found:
                    raise Mismatch(f"{name} failed: {part.get('trace', part)[:800]}")
                if not found <= self.overtaken:
                    self.overtaken |= found
                    worker.ask("POST", f"/connectors/{name}/tasks/{task}/restart")
        return statuses

    def wait_until_shared(self, worker):
        """Until everything runs, and both workers have half of it."""
        deadline = time.monotonic() + PROGRESS_SECONDS
        names = sorted(name for file in self.files for name in (file.source, file.sink))
        while True:
            statuses = self.statuses(worker)
            if sorted(statuses) == names and is_shared(statuses, self.workers):
                return
            if time.monotonic() > deadline:
                raise Mismatch(f"not everything runs everywhere: {statuses}")
            time.sleep(0.1)

    def wait_for_lines(self, count):
        """Until that many lines of every file have come out."""
        deadline = time.monotonic() + PROGRESS_SECONDS
        while any(len(set(file.came_out())) < count for file in self.files):
            self.statuses(self.workers[1])
            if time.monotonic() > deadline:
                counts = [len(set(file.came_out())) for file in self.files]
                raise Mismatch(f"no progress: {counts} of {count} lines came out")
            time.sleep(0.2)

    def check(self, worker, file, count):
        """The topic and the file that came of a file, and the offsets that are kept."""
        wanted = [line(file.name, number) for number in range(count)]
        found = self.bench.consume(file.topic, txn.COMMITTED)
        same(file.topic, "partitions", {0}, {record.partition for record in found})
        read = [record.value.decode() for record in found]
        repeats = check_lines(file.topic, wanted, read)
        if repeats > (len(self.overtaken) if self.exactly_once else self.ends):
            ends = f"{self.ends} ends, {len(self.overtaken)} commits before their records"
            raise Mismatch(f"{file.topic}: {repeats} returns to an earlier line after {ends}")
        written = file.came_out()
        again = check_lines(str(file.output), wanted, written)
        if again > repeats + self.ends:
            raise Mismatch(f"{file.output}: {again} returns, {repeats} in the topic")
        self.check_offsets(worker, file, found)
        return len(read) + len(written)

    def check_offsets(self, worker, file, found):
        """The source has committed the end of its file, the sink the end of its topic."""
        wanted = [{"partition": {"filename": str(file.input)},
                   "offset": {"position": file.input.stat().st_size}}]
        self.wait_for_offsets(worker, file.source, lambda told: told == wanted)
        last = found[-1].offset
        self.wait_for_offsets(
            worker, file.sink, lambda told: told and told[0]["offset"]["kafka_offset"] > last)

    def wait_for_offsets(self, worker, name, is_right):
        """They are committed now and then."""
        deadline = time.monotonic() + PROGRESS_SECONDS
        while not is_right(told := worker.ask("GET", f"/connectors/{name}/offsets")["offsets"]):
            if time.monotonic() > deadline:
                raise Mismatch(f"{name} is at {told}")
            time.sleep(0.1)


class File:
    """A file that grows, its topic, and the file that comes of it."""

    def __init__(self, scratch, name):
        self.name = name
        self.source, self.sink = f"source-{name}", f"sink-{name}"
        self.topic = f"connect-{name}"
        self.input = scratch / f"connect-{name}.in"
        self.output = scratch / f"connect-{name}.out"
        self.input.touch()

    def came_out(self):
        """The lines that are whole."""
        text = self.output.read_text(encoding="utf-8") if self.output.exists() else ""
        return text[: text.rfind("\n") + 1].splitlines()


class Growth:
    """A thread that lets the files grow, a few lines at a time, up to `lines` in each."""

    def __init__(self, files, lines):
        self.files = files
        self.lines = lines
        self.over = threading.Event()
        self.thread = threading.Thread(target=self.grow)
        self.thread.start()

    def grow(self):
        """All of them alike; no pauses once it is over."""
        for start in range(0, self.lines, BATCH_LINES):
            numbers = range(start, min(start + BATCH_LINES, self.lines))
            for file in self.files:
                text = "".join(f"{line(file.name, number)}\n" for number in numbers)
                with open(file.input, "a", encoding="utf-8") as grown:
                    grown.write(text)
            self.over.wait(GROWTH_PAUSE_SECONDS)

    def end(self):
        """The rest at once."""
        self.over.set()
        self.thread.join()


def line(name, number):
    """As long as the source's buffer with its line end, which then never holds a part of the next
    line: it would keep that part to itself until the file grows again."""
    head = f"{name}/{number:06} "
    return head + "abcdefghij"[number % 10] * (LINE_BYTES - 1 - len(head))


def check_lines(place, wanted, found):
    """Each line is followed by the next one or, after a return, by an earlier one; all of them are
    there. How many returns there are."""
    numbers = {text: number for number, text in enumerate(wanted)}
    returns, last = 0, -1
    for position, text in enumerate(found):
        number = numbers.get(text)
        if number is None or number > last + 1:
            raise Mismatch(f"{place}: {text[:40]!r} at {position} after line {last}")
        returns += number <= last
        last = number
    same(place, "lines", len(wanted), len(set(found)))
    same(place, "last line", len(wanted) - 1, last)
    return returns


LINE_BYTES = 1024
BATCH_LINES = 10
QUICK_LINES = 200
LINES = 1500
GROWTH_PAUSE_SECONDS = 0.1
PROGRESS_SECONDS = 60
GROUP = "connect-cluster"
CREATION = ("replication.factor", "partitions")
INTERNAL = {"connect-configs": 1, "connect-offsets": 5, "connect-status": 2}
STRINGS = "org.apache.kafka.connect.storage.StringConverter"
SESSION = {"session.timeout.ms": "3000", "heartbeat.interval.ms": "300"}
SETTINGS = {
    "key.converter": STRINGS,
    "value.converter": STRINGS,
    "config.storage.topic": "connect-configs",
    "config.storage.replication.factor": "1",
    "offset.storage.topic": "connect-offsets",
    "offset.storage.replication.factor": "1",
    "offset.storage.partitions": "5",
    "status.storage.topic": "connect-status",
    "status.storage.replication.factor": "1",
    "status.storage.partitions": "2",
    # The topics are to be cleaned while they are written and read back.
    **{f"{kind}.storage.segment.ms": "1000" for kind in ("config", "offset", "status")},
    "offset.storage.min.cleanable.dirty.ratio": "0.01",
    "offset.flush.interval.ms": "500",
    "rest.advertised.host.name": "127.0.0.1",
    # Without a search through every jar of the class path.
    "plugin.discovery": "service_load",
    # Five minutes otherwise, for a worker that was killed to come back.
    "scheduled.rebalance.max.delay.ms": "500",
    **SESSION,
    **{f"consumer.{key}": value for key, value in SESSION.items()},
    "consumer.isolation.level": "read_committed",
    # The source's worker creates the topic, with one partition; the sink must not be quicker.
    "consumer.allow.auto.create.topics": "false",
    "consumer.metadata.max.age.ms": "500",
}
PROPERTIES = {
    "group.min.session.timeout.ms": "2000",
    "group.initial.rebalance.delay.ms": "0",
    "log.cleaner.backoff.ms": "500",
}
ASKS_FOR_A_COORDINATOR = True
