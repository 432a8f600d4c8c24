"""kafka-go: produces with every codec, reads by itself, and reads in a group.

What it writes is read back by Java and by itself. Of two members of a group one is killed
(`kill -9`) and so is the broker, while both read: everything is read at least once, and the group
ends up at the ends of the partitions.
"""

import time

import peer_cache
import processes
from bench import PROGRAMS
from group_life import Part
from records import Mismatch, by_partition, compare, from_text, sample, same, write_file

from programs import consumer_group_command as groups


def run(bench):
    """A broker of its own: it is killed."""
    command = peer_cache.kafka_go_program(PROGRAMS / "kafka_go.go")
    with bench.own_broker(PROPERTIES) as own:
        total = sum(copy(own, command, codec) for codec in CODECS)
        return f"{total} records compared, {read_in_group(own, command)}"


def copy(bench, command, codec):
    """To the broker and back; how many records were compared."""
    topic = bench.topic(codec, 3)
    written = sample(3, codec)
    path = write_file(bench.scratch / f"{topic}.jsonl", written)
    ask(bench, command, "produce", topic, path, codec)
    total = compare(written, bench.consume(topic), f"{topic} read by Java")
    found = from_text(ask(bench, command, "consume", topic, "3"))
    # Its reader gives the same for what is empty and for what is not there.
    for record in [*written, *found]:
        record.key, record.value = record.key or None, record.value or None
        record.headers = [(name, value or None) for name, value in record.headers]
    return total + compare(written, found, f"{topic} read by kafka-go")


def ask(bench, command, *words):
    """One command of kafka_go.go; what it printed."""
    return processes.run([command, bench.peer.bootstrap, *words], 90, bench.log_path).text


def read_in_group(bench, command):
    """Two members, three lives."""
    topic = bench.topic("group", 4)
    parts = []

    def start():
        """One more member."""
        name = f"{bench.name}-member-{len(parts)}"
        argv = [command, bench.peer.bootstrap, "group", topic, GROUP]
        parts.append(Part(name, (argv, None), bench.scratch))

    def told(event):
        """Partition and offset of all such lines."""
        return [(line["p"], line["o"]) for part in parts for line in part.lines()
                if line["event"] == event]

    try:
        start()
        start()
        sent = bench.produce(topic, sample(4, "first", COUNT, large=False))
        wait_for(parts[:1], lambda: len(told("committed")) > COUNT)
        parts[0].kill()
        start()
        wait_for(parts[1:], lambda: len(told("committed")) > 2 * COUNT)
        bench.peer.kill()
        bench.peer.start()
        sent += bench.produce(topic, sample(4, "second", COUNT, large=False))
        ends = {(topic, str(place)): len(some) for place, some in by_partition(sent).items()}
        wait_for(parts[1:], lambda: set(told("read")) == places(sent))
        wait_for(parts[1:], lambda: committed(bench) == ends)
        for part in parts[1:]:
            part.stop()
        same(GROUP, "offsets", ends, committed(bench))
        return f"{len(told('read'))} reads of {len(sent)} records by {len(parts)} members"
    finally:
        for part in parts:
            part.child.kill()
            part.child.wait()


def places(records):
    """Where they were acknowledged."""
    return {(record.partition, record.offset) for record in records}


def committed(bench):
    """By topic and partition."""
    found = groups.offsets(bench, GROUP)
    return {place: int(current) for place, (current, _, _) in found.items() if current.isdigit()}


def wait_for(parts, is_so):
    """With a bound, while all of them run."""
    deadline = time.monotonic() + PROGRESS_SECONDS
    while not is_so():
        for part in parts:
            if part.child.poll() is not None:
                raise Mismatch(f"{part.name} ended with {part.child.returncode}: {part.errors()}")
        if time.monotonic() > deadline:
            raise Mismatch(f"{GROUP}: no progress")
        time.sleep(0.1)


CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
COUNT = 300
GROUP = "kafka-go-group"
PROGRESS_SECONDS = 60
PROPERTIES = {"group.min.session.timeout.ms": "2000", "group.initial.rebalance.delay.ms": "0"}
ASKS_FOR_A_COORDINATOR = True
