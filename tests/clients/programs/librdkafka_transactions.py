"""librdkafka (confluent-kafka): transactions back to back over three topics, the older protocol.

librdkafka 2 knows nothing of KIP-890's second part: AddPartitionsToTxn before the first record of
a partition, EndTxn v1. Error 51 there makes it try again after a pause, which is what made it slow.
"""

import collections
import re

import transactions as txn


def run(bench):
    """Read back by Java; versions and answers are those of librdkafka's log."""
    plan = txn.workload(bench, 200 if bench.quick else 1000, "librdkafka")
    path = plan.write(bench.scratch / "librdkafka-transactions.jsonl")
    finished = bench.confluent_transactions(path, "librdkafka-transactions", "debug=protocol,eos")
    answers = txn.check_answers(plan, finished.text)
    total = txn.check_logs(bench, plan)
    versions = collections.defaultdict(set)
    for name, version in re.findall(r"Sent (\w+)Request \(v(\d+),", finished.error_text):
        versions[name].add(int(version))
    txn.check_versions(versions, VERSIONS)
    concurrent = finished.error_text.count("another concurrent operation")
    return f"{txn.summary(plan, answers, total)}; {txn.check_concurrent(bench, concurrent)}"


VERSIONS = {"EndTxn": 1, "AddPartitionsToTxn": 0, "Produce": 10, "InitProducerId": 4}
ASKS_FOR_A_COORDINATOR = True
