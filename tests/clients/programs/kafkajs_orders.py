"""kafkajs: orders to bills in transactions, while processors and the broker are killed.

Told in orders.py. Its offsets have no generation with them: a member that the group has thrown out
for being slow could still commit, so that the group is more patient with them.
"""

import orders
import peer_cache
from bench import PROGRAMS


def run(bench):
    """One life."""
    return orders.run(bench, {"classic": orders.Client(command, orders.PATIENT)})


def command():
    """A processor."""
    node, home = peer_cache.node_with_kafkajs()
    environment = {"NODE_PATH": str(home / "node_modules"), "PATH": "/usr/bin:/bin"}
    environment["KAFKAJS_NO_PARTITIONER_WARNING"] = "1"
    return [node, PROGRAMS / "kafkajs_processor.js"], environment


ASKS_FOR_A_COORDINATOR = True
