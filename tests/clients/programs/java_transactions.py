"""The Java producer: transactions back to back over three topics, commits and aborts mixed.

The broker has finalized `transaction.version` 2, so the client must work by KIP-890's second part:
EndTxn v5, and no AddPartitionsToTxn (Produce from v12 on adds partitions).
"""

import transactions as txn


def run(bench):
    """Read back by Java and by librdkafka; versions and codes are those of the client's log."""
    plan = txn.workload(bench, 200 if bench.quick else 1000, "java")
    path = plan.write(bench.scratch / "java-transactions.jsonl")
    words = ["transact", bench.peer.bootstrap, path, "java-transactions"]
    finished = bench.java("Transactions", *words, logged=["org.apache.kafka.clients.NetworkClient"])
    answers = txn.check_answers(plan, finished.text)
    total = txn.check_logs(bench, plan, lambda topic: bench.confluent("consume", topic, COMMITTED))
    versions, codes = txn.java_wire(finished.error_text)
    txn.check_versions(versions, VERSIONS)
    concurrent = sum(counts[51] for counts in codes.values())
    return f"{txn.summary(plan, answers, total)}; {txn.check_concurrent(bench, concurrent)}"


COMMITTED = txn.COMMITTED
# What Apache Kafka 4.3.1's own clients send to a broker of that version.
VERSIONS = {"END_TXN": 5, "PRODUCE": 13, "INIT_PRODUCER_ID": 5, "ADD_PARTITIONS_TO_TXN": None}
ASKS_FOR_A_COORDINATOR = True
