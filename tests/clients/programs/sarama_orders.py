"""sarama: orders to bills in transactions, while processors and the broker are killed.

Told in orders.py. After an abort the member ends its session, and joins the group again.
"""

import orders
import peer_cache
from bench import PROGRAMS


def run(bench):
    """One life."""
    return orders.run(bench, {"classic": orders.Client(command)})


def command():
    """A processor."""
    sources = [PROGRAMS / name for name in ("sarama_processor.go", "order_lines.go")]
    return [peer_cache.sarama_program(*sources)], None


ASKS_FOR_A_COORDINATOR = True
