"""Flink's exactly-once Kafka sink: jobs and broker are killed around the commit of a checkpoint.

A job reads orders and writes bills (told in orders.py), with a checkpoint every second: with one,
each subtask flushes its transaction, and commits it when it hears that the checkpoint is complete
everywhere. HeldSink.java can hold that back. So for both strategies of naming transactions:

- The JVM is killed between the two. A new one, from the checkpoint, resumes the transactions by
  producer id and epoch, without InitProducerId, and commits them. Until then none sees the bills.
- It is killed in the middle of transactions; a job of another parallelism starts from the last
  checkpoint. Nobody resumes these, and they time out after ten minutes, within which no reader of
  committed records could pass them: they must be aborted, by probing ids with InitProducerId or by
  ListTransactions.
- The broker is killed between the two, and once more in the middle.

At last, the default of an hour for transactions is more than a broker allows: error 50.
"""

import os
import time

import kafka_peer
import orders
import peer_cache
import processes
from records import Mismatch, same


def run(bench):
    """One JVM of Flink at a time."""
    with bench.own_broker(orders.PROPERTIES) as own:
        texts = [live(own, naming) for naming in ("INCREMENTING", "POOLING")]
        refuse(own)
        return "; ".join(texts)


def live(bench, naming):
    """All of it, by one strategy."""
    shop = orders.Shop(bench, naming.lower())
    job = Job(bench, shop, naming)
    try:
        job.start(2)
        for disturb in job.disturbances():
            job.wait_for_checkpoints(1)
            shop.send(ORDERS)
            disturb()
        shop.send(ORDERS)
        job.wait_for(lambda: not shop.missing(), lambda: f"{len(shop.missing())} bills missing")
    finally:
        job.kill()
    aborted = shop.check()
    return f"{naming}: {len(shop.sent)} orders, {aborted} bills aborted, {job.resumed} resumed"


def refuse(bench):
    """Fifteen minutes is the most."""
    shop = orders.Shop(bench, "refused")
    job = Job(bench, shop, "INCREMENTING")
    job.settings["producer.transaction.timeout.ms"] = str(60 * 60 * 1000)
    job.settings["restart-strategy.type"] = "disable"
    try:
        job.start(1)
        same("a job with an hour for transactions", "exit", 1, job.child.wait(PROGRESS_SECONDS))
    finally:
        job.kill()
    errors = job.output.read_text(errors="replace")
    same("a job with an hour for transactions", "error 50", True, ERROR_50 in errors)


class Job:
    """The job, over the lives of its JVMs."""

    def __init__(self, bench, shop, naming):
        self.bench, self.shop = bench, shop
        self.output = bench.scratch / f"{shop.name}.log"
        self.checkpoints = bench.scratch / f"{shop.name}-checkpoints"
        self.hold = bench.scratch / f"{shop.name}-hold"
        self.child, self.parallelism, self.life_start, self.resumed = None, 0, 0, 0
        self.settings = {
            **SETTINGS,
            "prefix": shop.name,
            "naming": naming,
            "hold": str(self.hold),
            "execution.checkpointing.dir": self.checkpoints.as_uri(),
            "io.tmp.dirs": str(bench.scratch),
        }

    def disturbances(self):
        """Not all of them against Apache Kafka 4.3.1 with one broker, which may complete transactions
        without their markers when it is started anew (told in orders.py, and shown by cases 34 and
        35 of tests/conformance)."""
        some = [self.kill_before_commit, self.kill_in_between]
        if self.bench.peer.name == "kafka":
            return some
        return [*some, self.kill_broker_before_commit, self.kill_broker]

    def start(self, parallelism):
        """A new JVM, from the newest checkpoint that is complete."""
        settings = {**self.settings, "parallelism": str(parallelism)}
        found = sorted(self.checkpoints.glob("*/chk-*/_metadata"), key=os.path.getmtime)
        if found:
            settings["execution.state-recovery.path"] = found[-1].parent.as_uri()
        self.parallelism = parallelism
        self.life_start = self.output.stat().st_size if self.output.exists() else 0
        class_path = peer_cache.flink_class_path()
        classes = peer_cache.java_classes(class_path, "flink")
        command = kafka_peer.java(f"{classes}:{class_path}", "FlinkOrders")
        command[1:1] = [*OPENED, "-Dorg.slf4j.simpleLogger.showDateTime=true",
                        f"-Djava.io.tmpdir={self.bench.scratch}"]
        command += [self.bench.peer.bootstrap, self.shop.input, self.shop.output]
        command += [f"{key}={value}" for key, value in settings.items()]
        self.child = processes.start(command, self.output, self.output)

    def kill(self):
        """`kill -9`."""
        self.hold.unlink(missing_ok=True)
        if self.child is not None:
            self.child.kill()
            self.child.wait()

    def kill_before_commit(self):
        """The JVM, with transactions that are pre-committed."""
        held = self.hold_back()
        self.kill()
        same(self.shop.name, "bills seen without a commit", set(), held & self.shop.billed())
        self.start(self.parallelism)
        self.wait_for_resumed(held)

    def kill_broker_before_commit(self):
        """The broker; the sink is told only then, and commits again and again until it is back."""
        held = self.hold_back()
        self.bench.peer.kill()
        self.hold.unlink()
        self.bench.peer.start()
        self.wait_for_resumed(held)

    def kill_in_between(self):
        """A subtask of the last life has none in this one that has its number."""
        self.kill()
        self.start(1 if self.parallelism == 2 else 2)
        self.wait_for_checkpoints(2)

    def kill_broker(self):
        """Whatever the job is at."""
        self.bench.peer.kill()
        self.bench.peer.start()

    def hold_back(self):
        """Lets a checkpoint be complete whose commits wait; the ids of its orders."""
        self.hold.touch()
        self.wait_for(lambda: any(line[0] == "held" for line in self.lines()),
                      lambda: "no commit to hold back")
        last, held = {}, set()
        for event, subtask, *ids in self.lines():
            if event == "sent":
                last[subtask] = {int(one) for one in ids[1:]}
            elif event == "held":
                held |= last[subtask]
        same(self.shop.name, "orders held back", True, len(held) > 0)
        same(self.shop.name, "bills held back and seen", set(), held & self.shop.billed())
        return held

    def wait_for_resumed(self, held):
        """Nothing but the commit of that transaction brings these bills."""
        self.wait_for(lambda: held <= self.shop.billed(),
                      lambda: f"{len(held - self.shop.billed())} held bills missing")
        self.resumed += len(held)

    def wait_for_checkpoints(self, count):
        """Some more of this life."""
        def told():
            return {line[2] for line in self.lines() if line[0] == "complete"}
        before = told()
        self.wait_for(lambda: len(told() - before) >= count, lambda: f"checkpoints: {told()}")

    def lines(self):
        """Words of what the JVM that lives now has printed."""
        with open(self.output, "rb") as file:
            file.seek(self.life_start)
            text = file.read().decode("utf-8", "replace")
        words = [line.split() for line in text[: text.rfind("\n") + 1].splitlines()]
        return [some for some in words if some[:1] in (["sent"], ["complete"], ["held"])]

    def wait_for(self, is_so, tell):
        """With a bound, while the job runs."""
        deadline = time.monotonic() + PROGRESS_SECONDS
        while not is_so():
            if self.child.poll() is not None:
                raise Mismatch(f"{self.output} ended with {self.child.returncode}")
            if time.monotonic() > deadline:
                raise Mismatch(f"{self.shop.name}: {tell()}")
            time.sleep(0.2)


PROGRESS_SECONDS = 90
ORDERS = 400
# The client has no exception of its own for it.
ERROR_50 = (
    "Unexpected error in InitProducerIdResponse; The transaction timeout is larger than the maximum"
    " value allowed by the broker"
)
OPENED = [f"--add-opens=java.base/java.{name}=ALL-UNNAMED"
          for name in ("lang", "util", "util.concurrent", "time", "net", "nio")]
SETTINGS = {
    "execution.checkpointing.interval": "1s",
    "execution.checkpointing.externalized-checkpoint-retention": "RETAIN_ON_CANCELLATION",
    "execution.checkpointing.tolerable-failed-checkpoints": "100",
    "restart-strategy.type": "fixed-delay",
    "restart-strategy.fixed-delay.attempts": "1000",
    "restart-strategy.fixed-delay.delay": "500ms",
    "rest.bind-address": "127.0.0.1",
    "jobmanager.bind-host": "127.0.0.1",
    "taskmanager.bind-host": "127.0.0.1",
    "producer.transaction.timeout.ms": str(10 * 60 * 1000),
}
ASKS_FOR_A_COORDINATOR = True
