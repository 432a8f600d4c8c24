"""Bad days of processors of orders: what no client should do, and what some do (orders.py).

- The clock of one processor is a day ahead of the broker's, that of another a day behind: so are
  the timestamps of their bills, and nothing else.
- Two processes have one transactional id; whichever is fenced is started again and fences the
  other, over and over.
- One is stopped (SIGSTOP) with bills at hand until its transaction has timed out, and nobody takes
  its id. When it goes on it is too late for what it has.
- The broker is killed and comes back with more shards, and then with one (of Ringlog only).

The processors are aiokafka's, whose waits go by another clock than its timestamps.
"""

import os
import signal

import orders
import peer_cache
from bench import PROGRAMS, milliseconds
from records import Mismatch, same


def run(bench):
    """One life on a broker of its own."""
    command()  # Installed before anything is started.
    with bench.own_broker(orders.PROPERTIES) as own:
        return BadLife(own, "aiokafka", CLIENT).live()


def command(skew=None):
    """A processor whose clock is elsewhere."""
    words = [peer_cache.python_with_aiokafka(), PROGRAMS / "aiokafka_processor.py"]
    library = peer_cache.libfaketime()
    if skew is None:
        return words, None
    # The other clock stays true, and waits end when they should.
    fake = {"LD_PRELOAD": str(library), "FAKETIME": skew, "FAKETIME_DONT_FAKE_MONOTONIC": "1"}
    return words, {**os.environ, **fake}


class BadLife(orders.Life):
    """Other disturbances."""

    give_ups_max = 60

    def __init__(self, bench, name, client):
        # Else a broker refuses what is more than an hour ahead.
        super().__init__(bench, name, client, message_timestamp_after_max_ms=2**63 - 1)
        self.counts |= {"fenced by a twin": 0, "timed out": 0, "shard counts": 0}

    def command(self, identity):
        """By its place."""
        return command(SKEWS.get(identity))

    def disturbances(self):
        """In turn."""
        yield self.twins
        yield self.pause_until_timed_out
        for count in SHARD_COUNTS if self.bench.peer.name == "ringlog" else ():
            yield lambda count=count: self.restart_with_shards(count)

    def twins(self):
        """Until they have fenced each other often enough."""
        self.start(TWIN)
        of_twins = lambda: [part for part in self.parts if "-p0" in part.name]  # noqa: E731
        fenced = lambda: sum(part.child.poll() == 3 for part in of_twins())  # noqa: E731

        def enough():
            self.shop.send(orders.PER_TRANSACTION)
            return fenced() >= TWINS_FENCED
        self.wait(enough, lambda: f"fenced {fenced()} times", 0.2)
        self.counts["fenced by a twin"] = fenced()
        self.alive.pop(TWIN).kill_if_alive()

    def pause_until_timed_out(self):
        """The others bill its orders, and it does not a second time."""
        self.wait_for_bills_at_hand("p1")
        paused = self.alive["p1"]
        os.kill(paused.child.pid, signal.SIGSTOP)
        at_hand = set(orders.ids(paused.lines(), "sent")) - set(
            orders.ids(paused.lines(), "committed"))
        place = self.transactional_id("p1")
        self.wait(lambda: self.state(place) == "CompleteAbort",
                  lambda: f"{place} is {self.state(place)}", 0.5)
        self.counts["timed out"] += 1
        self.wait_for_all()
        os.kill(paused.child.pid, signal.SIGCONT)
        before = len(orders.ids(paused.lines(), "committed"))

        def has_gone_on():
            """It is told, or has taken up new orders."""
            self.shop.send(orders.PER_TRANSACTION)
            ended = paused.child.poll() is not None
            return ended or len(orders.ids(paused.lines(), "committed")) > before
        self.wait(has_gone_on, lambda: f"{paused.name} does not go on", 0.5)
        late = at_hand & set(orders.ids(paused.lines(), "committed"))
        same(paused.name, "late commits", set(), late)

    def state(self, transactional_id):
        """Of its transaction, as the coordinator tells."""
        tool = "org.apache.kafka.tools.TransactionsCommand"
        words = ["describe", "--transactional-id", transactional_id]
        rows, code, text = self.bench.table(tool, *words)
        same(tool, "exit", 0, code)
        if len(rows) != 1:
            raise Mismatch(f"{transactional_id}: {text}")
        return rows[0]["TransactionState"]

    def restart_with_shards(self, count):
        """Partitions have other owners then, and clients other brokers to find."""
        self.bench.peer.kill()
        self.bench.peer.shards = count
        self.bench.peer.start()
        self.counts["shard counts"] += 1

    def check(self):
        """And the clocks have left their marks."""
        now, stamps = milliseconds(), [record.timestamp for record in self.shop.read()]
        ahead = sum(stamp > now + DAY_MS - HOUR_MS for stamp in stamps)
        behind = sum(stamp < now - DAY_MS + HOUR_MS for stamp in stamps)
        same(self.shop.output, "bills of both clocks", True, ahead > 0 and behind > 0)
        return f"{super().check()}, {ahead} bills a day ahead, {behind} behind"


CLIENT = orders.Client(command, orders.PATIENT)
TWIN = "p0.twin"
SKEWS = {"p0": "+1d", TWIN: "+1d", "p1": "-1d"}
TWINS_FENCED = 4
SHARD_COUNTS = (3, 1)
HOUR_MS = 3_600_000
DAY_MS = 24 * HOUR_MS
ASKS_FOR_A_COORDINATOR = True
