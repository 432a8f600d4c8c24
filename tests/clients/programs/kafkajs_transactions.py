"""kafkajs: transactions back to back over three topics, the older protocol in its oldest versions.

kafkajs tries again at error 51 only as it does at any other, a third of a second later and five
times at most: a transaction that starts right after another is where it fell over.
"""

import collections
import re

import transactions as txn


def run(bench):
    """Read back by Java and by librdkafka; versions and errors are those of kafkajs's log."""
    plan = txn.workload(bench, count(bench), "kafkajs")
    path = plan.write(bench.scratch / "kafkajs-transactions.jsonl")
    finished = bench.kafkajs_transactions(path, "kafkajs-transactions")
    answers = txn.check_answers(plan, finished.text)
    total = txn.check_logs(
        bench, plan, lambda topic: bench.confluent("consume", topic, txn.COMMITTED)
    )
    versions = collections.defaultdict(set)
    for name, version in re.findall(r"^request (\w+) (\d+)$", finished.error_text, re.MULTILINE):
        versions[name].add(int(version))
    txn.check_versions(versions, VERSIONS)
    concurrent = len(re.findall(CONCURRENT, finished.error_text, re.MULTILINE))
    return f"{txn.summary(plan, answers, total)}; {txn.check_concurrent(bench, concurrent)}"


def count(bench):
    """Against a broker that answers 51 as Apache Kafka does, each transaction takes a third of a
    second."""
    if bench.peer.name == "kafka":
        return 30
    return 200 if bench.quick else 1000


VERSIONS = {"EndTxn": 1, "AddPartitionsToTxn": 1, "Produce": 7, "InitProducerId": 1}
CONCURRENT = r"^error \w+ \d+ .*another concurrent operation on the same transaction"
ASKS_FOR_A_COORDINATOR = True
