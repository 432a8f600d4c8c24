"""The life of a consumer group: processes that hold members come, go, crash and come back.

Owns: the processes and the files with their lines, and the seeded choice of what happens next.
Every program that holds members is called with BOOTSTRAP TOPIC NAME[,NAME...] SETTING..., prints
the lines that group_checker.py reads, and leaves at SIGTERM.
Must never: judge: that is the checker's. Or start a process in a thread that ends before it.
"""

import dataclasses
import json
import random
import subprocess
import threading
import time

import group_checker
import kafka_peer
import peer_cache
import processes
from bench import PROGRAMS
from records import Mismatch


@dataclasses.dataclass(frozen=True)
class Flavour:
    """A client and how it is set. `command` gives the start of the command line and the
    environment; a process holds `together` members where it is large and slow to start, and there
    `pace` makes the pauses between deeds longer. With `turns` the whole group goes over from one
    such settings to the next, member by member, again and again."""

    command: object
    settings: list
    together: int = 1
    pace: float = 1
    turns: tuple = ()


class Part:
    """One process and the lines that it has printed."""

    def __init__(self, name, command, scratch, members=()):
        self.name = name
        self.members = members
        self.asked = False
        self.path = scratch / f"{name}.jsonl"
        self.known, self.read_to = [], 0
        argv, environment = command
        errors = self.path.with_suffix(".err")
        self.child = processes.start(argv, self.path, errors, environment)

    def stop(self):
        """SIGTERM, and it has to end by itself."""
        self.ask_to_stop()
        try:
            code = self.child.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            code = f"nothing after {STOP_SECONDS} s"
        if code != 0:
            raise Mismatch(f"{self.name} ended with {code}: {self.errors()}")

    def ask_to_stop(self):
        """SIGTERM, once it listens to it, and only once: a Python that is ending does not."""
        if self.asked:
            return
        self.asked = True
        self.wait_for("started")
        if self.child.poll() is None:
            self.child.terminate()

    def wait_for(self, event):
        """Until it has printed such a line, or ended, or for long enough."""
        deadline = time.monotonic() + STOP_SECONDS
        while self.child.poll() is None and time.monotonic() < deadline:
            if any(line["event"] == event for line in self.lines()):
                return
            time.sleep(0.05)

    def kill(self):
        """SIGKILL; a line for each member, whose ownership ends when the process is gone."""
        if self.child.poll() is not None:
            raise Mismatch(f"{self.name} had ended with {self.child.returncode}: {self.errors()}")
        self.child.kill()
        self.child.wait()
        ns = time.monotonic_ns()
        return [{"event": "killed", "ns": ns, "member": member} for member in self.members]

    def kill_if_alive(self):
        """SIGKILL, if it has not ended by itself."""
        self.child.kill()
        self.child.wait()

    def errors(self):
        """The end of its standard error."""
        return self.path.with_suffix(".err").read_text(errors="replace").strip()[-300:]

    def lines(self):
        """What it has printed so far. One that is killed may leave its last line half written."""
        if self.path.exists():
            with open(self.path, "rb") as file:
                file.seek(self.read_to)
                text = file.read()
            whole = text[: text.rfind(b"\n") + 1]
            self.read_to += len(whole)
            self.known += [json.loads(line) for line in whole.splitlines() if line[:1] == b"{"]
        return self.known


class Group:
    """The members of one group, and what becomes of them."""

    def __init__(self, bench, topic, name, flavour, size):
        self.bench, self.topic, self.name, self.flavour = bench, topic, name, flavour
        # Where one kind of member follows another, both have to be there for a while.
        self.fewest = max(-(-size.fewest // flavour.together), 2 if flavour.turns else 1)
        self.most = max(2, size.most // flavour.together)
        self.pauses = [flavour.pace * seconds for seconds in size.pauses]
        self.random = random.Random(f"{SEED} {name}")
        self.parts, self.alive, self.killed = [], [], []
        self.fault = None
        self.lived, self.over = threading.Event(), threading.Event()
        for _ in range(self.fewest):
            self.join()

    def join(self):
        """One more process with members."""
        name = f"{self.name}-{len(self.parts) + 1}"
        members = [f"{name}{letter}" for letter in LETTERS[: self.flavour.together]]
        argv, environment = self.flavour.command()
        argv = [*argv, self.bench.peer.bootstrap, self.topic, ",".join(members)]
        argv += [f"group.id={self.name}", *self.settings()]
        self.alive.append(Part(name, (argv, environment), self.bench.scratch, members))
        self.parts.append(self.alive[-1])

    def settings(self):
        """Of the next process: another turn begins when the last is everybody's."""
        kinds = [self.flavour.settings, *self.flavour.turns]
        return kinds[len(self.parts) // self.fewest % len(kinds)]

    def live(self, seconds):
        """One deed after the other; a fault waits for `check`. A thread takes the processes that
        it started with it when it ends (processes.py), so this one stays."""
        try:
            deadline = time.monotonic() + seconds
            while time.monotonic() < deadline:
                time.sleep(self.random.uniform(*self.pauses))
                self.parts[-1].wait_for("started")
                self.act()
        except Exception as fault:  # Of a thread: told by the one who waits for it.
            self.fault = fault
        self.lived.set()
        self.over.wait()

    def act(self):
        """Join, leave, crash, or leave or crash and come back at once."""
        if self.flavour.turns:
            self.replace_oldest()
            return
        if len(self.alive) < self.most and self.random.random() < 0.6:
            self.join()
            return
        part = self.alive.pop(self.random.randrange(len(self.alive)))
        if self.random.random() < 0.5:
            self.killed += part.kill()
        else:
            part.stop()
        if len(self.alive) < self.fewest or self.random.random() < 0.5:
            self.join()

    def replace_oldest(self):
        """It leaves or crashes, and another comes."""
        part = self.alive.pop(0)
        if self.random.random() < 0.3:
            self.killed += part.kill()
        else:
            part.stop()
        self.join()

    def leave(self):
        """Everybody, all at once; a fault waits for `check`."""
        try:
            for part in self.alive:
                part.ask_to_stop()
            for part in self.alive:
                part.stop()
        except Mismatch as fault:
            self.fault = self.fault or fault

    def check(self, others, session_seconds):
        """The counts as text. `others` are the lines of those who are no members."""
        if self.fault is not None:
            raise Mismatch(f"{self.name}: {self.fault}") from self.fault
        try:
            counts = group_checker.check(others + self.lines(), session_seconds)
        except Mismatch as fault:
            raise Mismatch(f"{self.name}: {fault}") from fault
        named = ", ".join(f"{count} {name}" for name, count in counts.items() if count)
        return f"{self.name}: {sum(len(part.members) for part in self.parts)} members, {named}"

    def lines(self):
        """Of all members, and of those who were killed."""
        return self.killed + [line for part in self.parts for line in part.lines()]


def confluent(*words):
    """confluent_group.py."""
    return [peer_cache.python_with_confluent_kafka(), PROGRAMS / "confluent_group.py", *words], None


def librdkafka():
    """A member by librdkafka."""
    return confluent("member")


def aiokafka():
    """A member by aiokafka."""
    return [peer_cache.python_with_aiokafka(), PROGRAMS / "aiokafka_group.py"], None


def kafka_python():
    """A member by kafka-python."""
    return [peer_cache.python_with_kafka_python(), PROGRAMS / "kafka_python_group.py"], None


def kafkajs():
    """A member by kafkajs."""
    node, home = peer_cache.node_with_kafkajs()
    environment = {"NODE_PATH": str(home / "node_modules"), "PATH": "/usr/bin:/bin"}
    return [node, PROGRAMS / "kafkajs_group.js"], environment


def franz():
    """A member by franz-go."""
    return [peer_cache.franz_program(PROGRAMS / "franz_group.go")], None


def java():
    """Members by Kafka's own client, in a JVM that is quick to start."""
    class_path = peer_cache.kafka_class_path()
    class_path = f"{class_path}:{peer_cache.java_classes(class_path)}"
    return kafka_peer.java(class_path, "GroupMembers", heap="128m"), None


SEED = 5
STOP_SECONDS = 90
LETTERS = "abcdefgh"
