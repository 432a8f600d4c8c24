"""Workloads of transactions, what has to be left of them in the logs, and the comparison.

Owns: a seeded list of transactions over several topics; the offsets that they must end up at (one
producer at a time, one marker in every partition that a transaction touched); a committed reader's
and an uncommitted reader's view. The form on disk is one JSON object a line: commit, and records in
the form of records.py with their topic. Programs print one JSON object a line in return: o offsets
(or null), end_ms and ms as they measured.
Must never: be content with counts. Every record is compared at its offset, and nothing else may be
there.
"""

import collections
import dataclasses
import json
import random
import re
import time

from records import BASE_TIMESTAMP, Mismatch, Record, compare, same


@dataclasses.dataclass
class Transaction:
    """One transaction: (topic, record) pairs, and how it ends."""

    commit: bool
    sent: list

    def to_line(self):
        """The JSON line."""
        fields = []
        for topic, record in self.sent:
            fields.append({"topic": topic, **json.loads(record.to_line())})
        return json.dumps({"commit": self.commit, "records": fields}, separators=(",", ":")) + "\n"


class Workload:
    """Transactions one after the other into topics that were empty before."""

    def __init__(self, topics, partitions, count, seed):
        self.topics = topics
        self.ends = {topic: dict.fromkeys(range(partitions), 0) for topic in topics}
        self.transactions = []
        generator = random.Random(seed)
        for number in range(count):
            self._add(number, generator.random() < 0.7, partitions, generator)

    def write(self, path):
        """Writes the JSON lines."""
        with open(path, "w", encoding="utf-8") as file:
            file.writelines(transaction.to_line() for transaction in self.transactions)
        return path

    def records(self, topic, committed_only):
        """What a reader has to find in a topic."""
        some = [one for one in self.transactions if one.commit or not committed_only]
        return [record for one in some for name, record in one.sent if name == topic]

    def markers(self, topic):
        """(partition, offset, COMMIT or ABORT) of the markers in a topic."""
        found = []
        for one in self.transactions:
            last = {record.partition: record.offset for name, record in one.sent if name == topic}
            kind = "COMMIT" if one.commit else "ABORT"
            found += [(place, offset + 1, kind) for place, offset in last.items()]
        return found

    def committed(self):
        """How many transactions commit."""
        return sum(transaction.commit for transaction in self.transactions)

    def _add(self, number, commit, partitions, generator):
        places = [(topic, place) for topic in self.topics for place in range(partitions)]
        kind = generator.random()
        if kind < 0.02:
            chosen = []  # Nothing is sent: the broker must not even hear of its end.
        elif kind < 0.03:
            chosen = generator.choices(places, k=150)
        elif kind < 0.5:
            chosen = [generator.choice(places)]
        elif kind < 0.8:
            chosen = generator.choices(places, k=generator.randint(2, 5))
        else:
            chosen = [(topic, generator.randrange(partitions)) for topic in self.topics]
        sent = []
        for index, (topic, place) in enumerate(chosen):
            key = generator.choice([None, b"", b"%d" % generator.randrange(50)])
            value = b"%d/%d " % (number, index) + generator.randbytes(generator.randint(0, 200))
            headers = [("transaction", b"%d" % number), ("end", b"commit" if commit else b"abort")]
            timestamp = BASE_TIMESTAMP + 1000 * number + index
            record = Record(place, key, value, headers, timestamp, self.ends[topic][place])
            self.ends[topic][place] += 1
            sent.append((topic, record))
        for topic, place in set(chosen):
            self.ends[topic][place] += 1  # The marker.
        self.transactions.append(Transaction(commit, sent))


def workload(bench, count, seed):
    """A workload over three new topics of two partitions each, so that shards share it."""
    topics = [bench.topic(f"t{number}", 2) for number in range(3)]
    return Workload(topics, 2, count, seed)


def check_answers(plan, text):
    """The program's lines against the plan; the lines."""
    answers = [json.loads(line) for line in text.splitlines() if line.startswith("{")]
    same("program", "transactions", len(plan.transactions), len(answers))
    for number, (one, answer) in enumerate(zip(plan.transactions, answers, strict=True)):
        expected = [record.offset for _, record in one.sent]
        same(f"transaction {number}", "offsets as acknowledged", expected, answer["o"])
    return answers


def check_logs(bench, plan, second_reader=None):
    """Reads everything back, committed only and all; how many records were compared.
    `second_reader` gives the committed records of a topic as another client sees them."""
    wait_for_stable_ends(bench, plan.ends)
    total = 0
    for topic in plan.topics:
        committed = plan.records(topic, committed_only=True)
        found = bench.consume(topic, COMMITTED)
        total += compare(committed, found, f"{topic} read_committed")
        everything = plan.records(topic, committed_only=False)
        total += compare(everything, bench.consume(topic), f"{topic} read_uncommitted")
        if second_reader is not None:
            total += compare(committed, second_reader(topic), f"{topic} by the second reader")
        check_ends(bench, topic, plan.ends[topic])
    return total


def wait_for_stable_ends(bench, ends):
    """The end of a transaction is answered before its markers are written: waits until the last
    stable offsets are where they have to be. No longer than half a second on a good day."""
    deadline = time.monotonic() + 10
    for topic, places in ends.items():
        expected = printed(places)
        while (found := stable_ends(bench, topic)) != expected:
            if time.monotonic() > deadline:
                raise Mismatch(f"{topic}: stable ends {found}, expected {expected}")
            time.sleep(0.05)


def check_ends(bench, topic, places):
    """Log ends as one who reads everything sees them: the same, so nothing follows the markers."""
    text = bench.records("offsets", topic)
    same(topic, "ends", f"end {printed(places)}", text.splitlines()[1])


def stable_ends(bench, topic):
    """Last stable offsets by partition, as printed."""
    return bench.records("offsets", topic, COMMITTED).splitlines()[1].removeprefix("end ")


def printed(places):
    """Offsets by partition as Records.java prints them."""
    return "{" + ", ".join(f"{place}={end}" for place, end in sorted(places.items())) + "}"


def check_versions(versions, expected):
    """The versions that a client used of each API against those it must have used: only these."""
    for name, version in expected.items():
        same(name, "versions", [version] if version is not None else [], sorted(versions[name]))


def check_concurrent(bench, count):
    """No client may have been told CONCURRENT_TRANSACTIONS by Ringlog, which holds a request that
    meets the end of the transaction before it. Apache Kafka answers it all the time."""
    if bench.peer.name == "ringlog" and count:
        raise Mismatch(f"CONCURRENT_TRANSACTIONS was answered {count} times")
    return f"{count} x CONCURRENT_TRANSACTIONS"


def java_wire(text):
    """What a Java client's NetworkClient logged: versions by API, error codes by API."""
    versions, codes = collections.defaultdict(set), collections.defaultdict(collections.Counter)
    for name, version, body in WIRE.findall(text):
        versions[name].add(int(version))
        codes[name].update(int(code) for code in re.findall(r"errorCode=(-?\d+)", body))
    return versions, codes


def percentiles(numbers):
    """p50 and p99 for a line of the report."""
    ordered = sorted(numbers)
    half, most = ordered[len(ordered) // 2], ordered[len(ordered) * 99 // 100]
    return f"p50 {half:.2f} ms p99 {most:.2f} ms"


def summary(plan, answers, total):
    """The part of a program's line that all of them have."""
    ends = [answer["end_ms"] for one, answer in zip(plan.transactions, answers) if one.sent]
    whole = [answer["ms"] for one, answer in zip(plan.transactions, answers) if one.sent]
    return (
        f"{len(plan.transactions)} transactions ({plan.committed()} committed), "
        f"{total} records compared; end {percentiles(ends)}, whole {percentiles(whole)}"
    )


COMMITTED = "isolation.level=read_committed"
WIRE = re.compile(
    r"Received (\w+) response from node \S+ for request with header RequestHeader\("
    r"apiKey=\w+, apiVersion=(\d+),[^)]*\): (.*)"
)
