"""librdkafka (confluent-kafka): orders to bills in transactions, by both protocols of groups.

Processors and the broker are killed, processors leave and join, and one is stopped until another
has its transactional id and its partitions (told in orders.py).
"""

import orders
import peer_cache
from bench import PROGRAMS


def run(bench):
    """A life in each protocol."""
    return orders.run(bench, CLIENTS)


def command():
    """A processor."""
    return [peer_cache.python_with_confluent_kafka(), PROGRAMS / "confluent_processor.py"], None


CLIENTS = {
    "classic": orders.Client(command),
    "consumer": orders.Client(command, (("group.protocol", "consumer"),)),
}
ASKS_FOR_A_COORDINATOR = True
