"""Transactions of confluent-kafka (librdkafka); runs in the Python that has the package.

Owns: BOOTSTRAP FILE ID [key=value...], which runs the transactions of a file (told in
transactions.py) back to back and prints one line each. librdkafka's log goes to standard error.
"""

import base64
import json
import sys
import time

from confluent_kafka import Producer


def main(bootstrap, path, transactional_id, *settings):
    """Every transaction of the file."""
    options = {"bootstrap.servers": bootstrap, "transactional.id": transactional_id, "linger.ms": 0}
    options.update(setting.split("=", 1) for setting in settings)
    producer = Producer(options)
    producer.init_transactions(60)
    with open(path, encoding="utf-8") as file:
        for line in file:
            transact(producer, json.loads(line))


def transact(producer, transaction):
    """One transaction, and its line."""
    offsets = [None] * len(transaction["records"])
    started = time.monotonic()
    producer.begin_transaction()
    for index, fields in enumerate(transaction["records"]):
        producer.produce(
            fields["topic"],
            partition=fields["p"],
            timestamp=fields["t"],
            key=decode(fields["k"]),
            value=decode(fields["v"]),
            headers=[(name, decode(value)) for name, value in fields["h"]],
            on_delivery=lambda error, message, index=index: delivered(
                error, message, offsets, index
            ),
        )
    if not transaction["commit"] and producer.flush(60) != 0:
        raise SystemExit("not everything was acknowledged within 60 s")
    ending = time.monotonic()
    if transaction["commit"]:
        producer.commit_transaction(60)
    else:
        producer.abort_transaction(60)
    ended = time.monotonic()
    answer = {"o": offsets, "end_ms": (ended - ending) * 1e3, "ms": (ended - started) * 1e3}
    print(json.dumps(answer), flush=True)


def delivered(error, message, offsets, index):
    """Takes over what the broker answered."""
    if error is not None:
        raise SystemExit(f"delivery failed: {error}")
    offsets[index] = message.offset()


def decode(text):
    """Bytes or None."""
    return None if text is None else base64.b64decode(text)


main(*sys.argv[1:])
