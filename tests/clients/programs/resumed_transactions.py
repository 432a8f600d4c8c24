"""A transaction that one process began is ended by another, as Flink's Kafka sink recovers.

The second process has the transactional id, the producer id and the epoch from a checkpoint, and
sends EndTxn with them, without InitProducerId, on connections of its own. That may come again,
after a restart of the broker too. A Java client that did no initTransactions does not work by the
finalized feature level yet, so this EndTxn is v4 though the records came in by Produce v13.
"""

import json

import transactions as txn
from bench import milliseconds
from processes import ChildFailed
from records import Mismatch, Record, compare, same


def run(bench):
    """Commit, commit again, after a restart again; abort; and one that has been fenced since."""
    peer = bench.new_peer(fixed_ports=True)
    peer.start()
    try:
        own = bench.on(peer)
        topic = own.topic("t", 2)
        committed, name = begin(own, topic, 0, "resumed")
        resume(own, name, committed, "commit", logged=True)
        aborted, other = begin(own, topic, 1, "given-up")
        resume(own, other, aborted, "abort")
        check(own, topic, [committed])
        resume(own, name, committed, "commit")
        resume(own, other, aborted, "abort")
        same("stop", "clean", True, peer.stop())
        peer.start()
        resume(own, name, committed, "commit")
        resume(own, other, aborted, "abort")
        total = check(own, topic, [committed])
        total += fenced(own, topic, committed, name)
        same("second stop", "clean", True, peer.stop())
    finally:
        peer.stop()
    return f"{total} records compared"


def begin(bench, topic, partition, name, offset=0):
    """Three records of a transaction whose process then is gone; (what was sent, id)."""
    stamp = milliseconds()
    sent = [
        Record(partition, b"key", b"%d" % index, [], stamp + index, offset + index)
        for index in range(3)
    ]
    path = bench.scratch / f"{name}.jsonl"
    pairs = [(topic, record) for record in sent]
    path.write_text(txn.Transaction(True, pairs).to_line(), encoding="utf-8")
    answer, identity = map(json.loads, bench.records("begin", path, name).splitlines())
    same(name, "offsets", [record.offset for record in sent], answer["o"])
    bench.records("end", name, "close")
    return (sent, identity), name


def resume(bench, name, begun, end, logged=False):
    """Ends it from elsewhere. `logged`: in a JVM of its own, to see what goes over the wire."""
    identity = begun[1]
    words = [name, str(identity["producer_id"]), str(identity["epoch"]), end]
    if not logged:
        bench.records("resume", *words)
        return
    logger = "org.apache.kafka.clients.NetworkClient"
    words = ["resume", bench.peer.bootstrap, *words]
    finished = bench.java("Transactions", *words, logged=[logger])
    versions, codes = txn.java_wire(finished.error_text)
    txn.check_versions(versions, {"END_TXN": 4, "INIT_PRODUCER_ID": None})
    same(name, "codes of EndTxn", {0: 1}, dict(codes["END_TXN"]))


def check(bench, topic, committed):
    """Each transaction has one marker, and only committed records are seen; how many."""
    txn.wait_for_stable_ends(bench, {topic: {0: 4, 1: 4}})
    txn.check_ends(bench, topic, {0: 4, 1: 4})
    expected = [record for sent, _ in committed for record in sent]
    return compare(expected, bench.consume(topic, txn.COMMITTED), f"{topic} read_committed")


def fenced(bench, topic, committed, name):
    """Once the id has another transaction, the old one cannot be ended again."""
    later, _ = begin(bench, topic, 0, name, offset=4)
    try:
        resume(bench, name, committed, "commit")
    except ChildFailed as error:
        same(name, "fenced", True, "Fenced" in str(error) or "InvalidProducerEpoch" in str(error))
    else:
        raise Mismatch("an old transaction could be committed in place of the newer one")
    found = bench.consume(topic, txn.COMMITTED)
    compare(committed[0], found, f"{topic} with one open")
    resume(bench, name, later, "commit")
    txn.wait_for_stable_ends(bench, {topic: {0: 8, 1: 4}})
    found = bench.consume(topic, txn.COMMITTED)
    return compare(committed[0] + later[0], found, f"{topic} in the end")


ASKS_FOR_A_COORDINATOR = True
