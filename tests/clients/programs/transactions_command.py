"""TransactionsCommand: an operator's view of transactions, a hanging one, and the files on disk.

Runs a broker of its own. Some transactions are done, three are open: the tool lists and describes
them; one is terminated by force. The broker stops cleanly, and DumpLogSegments reads the segments
of `__transaction_state`, the producers' snapshots, the indexes of aborted transactions and the
segments with their markers, which have to agree with what the tool said. After the next start
all of it is still so. Then `__transaction_state` is deleted, which leaves open transactions without
a coordinator: the tool finds them and aborts one.
"""

import time

import dump_log
import transactions as txn
from bench import milliseconds
from records import Mismatch, Record, compare, same


def run(bench):
    """One broker, stopped and started once."""
    peer = bench.new_peer()
    peer.start()
    try:
        own = bench.on(peer)
        plan = txn.workload(own, 60, "command")
        own.records("transact", plan.write(bench.scratch / "done.jsonl"), DONE)
        total = txn.check_logs(own, plan)
        topic = own.topic("open", 3)
        started = milliseconds()
        for partition, name in enumerate((OPEN, HANGING, FORCED)):
            begin(own, topic, partition, name)
        describe(own, topic, started)
        force(own, topic)
        listed = listing(own)
        producers = {
            (name, place): describe_producers(own, name, place)
            for name, places in [*plan.ends.items(), (topic, range(3))]
            for place in places
        }
        same("stop", "clean", True, peer.stop())
        files = check_files(bench, peer, plan, listed, producers)
        peer.start()
        own = bench.on(peer)
        wait_for_listing(own, listed)
        total += txn.check_logs(own, plan)
        hang(own, topic)
        own.records("end", HANGING, "close")
        own.records("end", OPEN, "close")
        same("second stop", "clean", True, peer.stop())
    finally:
        peer.stop()
    return f"{total} records compared, {files} files read by DumpLogSegments"


def begin(bench, topic, partition, name):
    """An open transaction with three records of an hour ago in one partition."""
    stamps = [milliseconds() - HOUR_MS + index for index in range(3)]
    sent = [(topic, Record(partition, b"key", b"value", [], stamp)) for stamp in stamps]
    path = bench.scratch / f"{name}.jsonl"
    path.write_text(txn.Transaction(True, sent).to_line(), encoding="utf-8")
    bench.records("begin", path, name, f"transaction.timeout.ms={TIMEOUT_MS}")


def describe(bench, topic, started):
    """list with its filters, describe, describe-producers, find-hanging."""
    found = listing(bench)
    states = {name: row["TransactionState"] for name, row in found.items()}
    same("list", "states", {OPEN: "Ongoing", HANGING: "Ongoing", FORCED: "Ongoing"}, {
        name: state for name, state in states.items() if name != DONE
    })
    same("list", "ids", 4, len({row["ProducerId"] for row in found.values()}))
    same("list", "longer than an hour", {}, listing(bench, "--duration-filter", str(HOUR_MS)))
    picked = listing(bench, "--transactional-id-pattern", ".*o[a-z]{2}n")
    same("list", "by pattern", {OPEN: found[OPEN]}, picked)

    rows, code, text = bench.table(TOOL, "describe", "--transactional-id", OPEN)
    same("describe", "exit code", 0, code)
    row = rows[0]
    at = int(row.pop("CurrentTransactionStartTimeMs"))
    same("describe", "start", True, started <= at <= milliseconds())
    same("describe", "duration", True, 0 <= int(row.pop("TransactionDurationMs")) < HOUR_MS)
    same("describe", "row", description(found[OPEN], OPEN, "Ongoing", f"{topic}-0"), row)
    _, code, text = bench.table(TOOL, "describe", "--transactional-id", "nobody")
    same("describe", "exit code for an unknown id", 1, code)
    same("describe", "reason", True, "could not be found" in text)

    row = describe_producers(bench, topic, 0)[0]
    same("describe-producers", "newest", True, int(row["LastTimestamp"]) < started)
    same("describe-producers", "row", ("0", "-1", "2", "0"), (
        row["ProducerEpoch"],
        row["LatestCoordinatorEpoch"],
        row["LastSequence"],
        row["CurrentTransactionStartOffset"],
    ))
    same("describe-producers", "id", found[OPEN]["ProducerId"], row["ProducerId"])
    # Older than any timeout, but its coordinator knows of it.
    same("find-hanging", "rows", [], find_hanging(bench, topic))


def description(row, name, state, partitions):
    """What describe has to say."""
    same_in_both = {"TransactionalId": name, "ProducerId": row["ProducerId"]}
    where = {"CoordinatorId": row["Coordinator"], "TopicPartitions": partitions}
    timeout = {"TransactionTimeoutMs": str(TIMEOUT_MS), "ProducerEpoch": "0"}
    return {**same_in_both, **where, **timeout, "TransactionState": state}


def force(bench, topic):
    """forceTerminateTransaction aborts, and its producer is fenced."""
    words = ["forceTerminateTransaction", "--transactionalId", FORCED]
    _, code, text = bench.table(TOOL, *words)
    if code != 0:
        raise Mismatch(f"forceTerminateTransaction exited with {code}: {text[:300]}")
    txn.wait_for_stable_ends(bench, {topic: {0: 0, 1: 0, 2: 4}})
    same("forced", "records", [], bench.consume(topic, txn.COMMITTED))
    try:
        bench.records("end", FORCED, "commit")
    except Exception as error:
        same("forced", "producer", True, "Fenced" in str(error) or "Epoch" in str(error))
    else:
        raise Mismatch("a transaction that was terminated could be committed")


def hang(bench, topic):
    """Without its coordinator's log nobody ends a transaction; an operator does."""
    delete = ["--delete", "--topic", "__transaction_state"]
    _, code, text = bench.table("org.apache.kafka.tools.TopicCommand", *delete)
    same("delete", f"exit code ({text[:200]})", 0, code)
    wait_for_listing(bench, {})
    rows = find_hanging(bench, topic)
    places = sorted((row["Partition"], row["StartOffset"], row["Duration(min)"]) for row in rows)
    same("find-hanging", "rows", [("0", "0", "60"), ("1", "0", "60")], places)

    wrong = ["abort", "--topic", topic, "--partition", "1", "--start-offset", "1"]
    _, code, text = bench.table(TOOL, *wrong)
    same("abort at no start", "exit code", 1, code)
    same("abort at no start", "reason", True, "Could not find any open transactions" in text)
    _, code, text = bench.table(TOOL, *wrong[:-1], "0")
    same("abort", f"exit code ({text[:200]})", 0, code)
    txn.wait_for_stable_ends(bench, {topic: {0: 0, 1: 4, 2: 4}})
    same("aborted", "start", "None", describe_producers(bench, topic, 1)[0][START])
    same("aborted", "records", [], bench.consume(topic, txn.COMMITTED))
    same("find-hanging", "rest", ["0"], [row["Partition"] for row in find_hanging(bench, topic)])


def listing(bench, *filters):
    """list: rows by transactional id. Waits until none is on its way from one state to another."""
    deadline = time.monotonic() + 20
    while time.monotonic() < deadline:
        rows, code, text = bench.table(TOOL, "list", *filters)
        same("list", f"exit code ({text[:200]})", 0, code)
        if not any(row["TransactionState"].startswith("Prepare") for row in rows):
            return {row.pop("TransactionalId"): row for row in rows}
    raise Mismatch(f"a transaction does not get done: {rows}")


def wait_for_listing(bench, expected):
    """Until the coordinator has loaded its log, or let go of it: list is answered meanwhile."""
    deadline = time.monotonic() + 20
    while (found := listing(bench)) != expected:
        if time.monotonic() > deadline:
            same("list", "rows", expected, found)
        time.sleep(0.1)


def describe_producers(bench, topic, partition):
    """describe-producers: its rows."""
    words = ["--topic", topic, "--partition", str(partition)]
    rows, code, text = bench.table(TOOL, "describe-producers", *words)
    same("describe-producers", f"exit code ({text[:200]})", 0, code)
    return rows


def find_hanging(bench, topic):
    """find-hanging in one topic: its rows."""
    rows, code, text = bench.table(TOOL, "find-hanging", "--topic", topic)
    same("find-hanging", f"exit code ({text[:200]})", 0, code)
    return rows


def check_files(bench, peer, plan, listed, producers):
    """Everything that Kafka's tool reads in a stopped broker's directory; how many files."""
    states = check_states(bench, peer, listed)
    files = [file for place in producers for file in side_files(peer, *place)]
    dumped = dump_log.dump_side_files(files, bench.log_path)
    for (topic, partition), rows in producers.items():
        directory = peer.segment_directory(topic, partition)
        own = {file.name: lines for file, lines in dumped.items() if file.parent == directory}
        snapshots = [lines for name, lines in sorted(own.items()) if name.endswith(".snapshot")]
        told = [snapshot_row(line) for line in snapshots[-1]] if snapshots else []
        same(directory.name, "producers in the newest snapshot", by_id(rows), by_id(told))
        indexed = [line for name in sorted(own) if name.endswith("x") for line in own[name]]
        if topic in plan.ends:
            same(directory.name, "aborted transactions", aborted(plan, topic, partition), [
                (line["firstOffset"], line["lastOffset"], line["lastStableOffset"])
                for line in indexed
            ])
    segments = check_segments(bench, peer, plan)
    return states + len(files) + segments


def check_states(bench, peer, listed):
    """The last state of each transactional id in `__transaction_state`; how many files."""
    places = [peer.segment_directory("__transaction_state", place) for place in range(50)]
    files = [file for place in places for file in dump_log.segment_files(place)]
    files = [file for file in files if file.stat().st_size > 0]
    dump_log.dump(files, log_path=bench.log_path)  # Valid, back to back, to the last byte.
    newest, homes = {}, {}
    for partition, name, value in dump_log.dump_transaction_states(files, bench.log_path):
        same(name, "partition", homes.setdefault(name, partition), partition)
        newest[name] = value
    same("__transaction_state", "ids", sorted(listed), sorted(newest))
    for name, value in newest.items():
        state = STATES[value["transactionStatus"]]
        same(name, "state on disk", listed[name]["TransactionState"], state)
        same(name, "producer id on disk", int(listed[name]["ProducerId"]), value["producerId"])
        open_in = value["transactionPartitions"] if state == "Ongoing" else None
        if name in (OPEN, HANGING):
            place = [{"topic": f"{bench.name}-open".replace("_", "-"), "partitionIds": [0]}]
            place[0]["partitionIds"] = [0 if name == OPEN else 1]
            same(name, "partitions on disk", place, open_in)
            same(name, "timeout on disk", TIMEOUT_MS, value["transactionTimeoutMs"])
    return len(files)


def check_segments(bench, peer, plan):
    """Records and markers of the plan's topics, batch by batch; how many files."""
    places = [(topic, place) for topic in plan.topics for place in plan.ends[topic]]
    directories = [peer.segment_directory(*place) for place in places]
    files = [file for directory in directories for file in dump_log.segment_files(directory)]
    files = [file for file in files if file.stat().st_size > 0]
    batches = dump_log.dump(files, log_path=bench.log_path)
    for topic in plan.topics:
        names = {peer.segment_directory(topic, place).name for place in plan.ends[topic]}
        own = [batch for batch in batches if dump_log.directory_of(batch) in names]
        dumped = [record for batch in own for record in batch.records]
        expected = plan.records(topic, committed_only=False)
        compare([without_values(one) for one in expected], dumped, f"{topic} as dumped")
        markers = sorted(
            (int(dump_log.partition_of(batch.file)), batch.number("baseOffset"), batch.marker[0])
            for batch in own
            if batch.marker
        )
        same(topic, "markers", sorted(plan.markers(topic)), markers)
    return len(files)


def side_files(peer, topic, partition):
    """Snapshots and indexes of aborted transactions that have something in them."""
    directory = peer.segment_directory(topic, partition)
    found = sorted(directory.glob("*.snapshot")) + sorted(directory.glob("*.txnindex"))
    return [file for file in found if file.stat().st_size > 0]


def snapshot_row(line):
    """A line of a snapshot as describe-producers tells it."""
    start = line["currentTxnFirstOffset"]
    return {
        "ProducerId": str(line["producerId"]),
        "ProducerEpoch": str(line["producerEpoch"]),
        "LatestCoordinatorEpoch": str(line["coordinatorEpoch"]),
        "LastSequence": str(line.get("lastSequence", -1)),
        "LastTimestamp": str(line["lastTimestamp"]),
        START: "None" if start is None else str(start),
    }


def by_id(rows):
    """Rows in the order of producer ids."""
    return sorted(rows, key=lambda row: int(row["ProducerId"]))


def aborted(plan, topic, partition):
    """What the index has to hold: first offset, offset of the marker, stable end after it."""
    found = []
    for one in plan.transactions:
        offsets = [
            record.offset
            for name, record in one.sent
            if name == topic and record.partition == partition
        ]
        if offsets and not one.commit:
            found.append((offsets[0], offsets[-1] + 1, offsets[-1] + 2))
    return found


def without_values(record):
    """The tool prints the names of headers only."""
    names = [(name, None) for name, _ in record.headers]
    fields = (record.partition, record.key, record.value, names, record.timestamp, record.offset)
    return Record(*fields)


TOOL = "org.apache.kafka.tools.TransactionsCommand"
START = "CurrentTransactionStartOffset"
DONE, OPEN, HANGING, FORCED = "done", "open", "hanging", "forced"
STATES = ["Empty", "Ongoing", "PrepareCommit", "PrepareAbort", "CompleteCommit", "CompleteAbort"]
HOUR_MS = 3_600_000
TIMEOUT_MS = 600_000
ASKS_FOR_A_COORDINATOR = True
