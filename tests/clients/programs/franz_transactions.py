"""franz-go: transactions back to back over three topics, by KIP-890's second part as Java does.

Read back by franz-go itself (its own rules for leaving out aborted records) and by Java.
"""

import collections
import re

import transactions as txn
from records import from_text


def run(bench):
    """Versions and errors are those of the client's log."""
    plan = txn.workload(bench, 200 if bench.quick else 1000, "franz-go")
    path = plan.write(bench.scratch / "franz-transactions.jsonl")
    finished = bench.franz("transact", path, "franz-transactions")
    answers = txn.check_answers(plan, finished.text)
    total = txn.check_logs(bench, plan, lambda topic: from_text(bench.franz("consume", topic).text))
    versions = collections.defaultdict(set)
    for name, version in re.findall(r"wrote (\w+) v(\d+)", finished.error_text):
        versions[name].add(int(version))
    txn.check_versions(versions, VERSIONS)
    concurrent = finished.error_text.count("CONCURRENT_TRANSACTIONS")
    return f"{txn.summary(plan, answers, total)}; {txn.check_concurrent(bench, concurrent)}"


VERSIONS = {"EndTxn": 5, "AddPartitionsToTxn": None, "Produce": 13, "InitProducerID": 5}
ASKS_FOR_A_COORDINATOR = True
