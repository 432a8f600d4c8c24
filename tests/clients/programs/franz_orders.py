"""franz-go: GroupTransactSession from input to output, in a classic group and in a new one.

Processors and the broker are killed, processors leave and join, and one is stopped until another
has its transactional id and its partitions (told in orders.py).
"""

import orders
import peer_cache
from bench import PROGRAMS


def run(bench):
    """Both protocols of groups, but for --quick."""
    clients = CLIENTS if not bench.quick else dict(list(CLIENTS.items())[:1])
    return orders.run(bench, clients)


def command():
    """A processor."""
    sources = [PROGRAMS / name for name in ("franz_processor.go", "order_lines.go")]
    return [peer_cache.franz_program(*sources)], None


CLIENTS = {
    "classic": orders.Client(command),
    "consumer": orders.Client(command, (("group.protocol", "consumer"),)),
}
ASKS_FOR_A_COORDINATOR = True
