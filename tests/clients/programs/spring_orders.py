"""spring-kafka: a listener container and a template, orders to bills in transactions.

Told in orders.py; but a zombie is not told that it is fenced for good: Spring takes a new producer
and goes on as a member of the group. It must not commit what it had in hand.
"""

import kafka_peer
import orders
import peer_cache


def run(bench):
    """One life."""
    return orders.run(bench, {"classic": orders.Client(command, orders.PATIENT, rejoins=True)})


def command():
    """A processor."""
    class_path = peer_cache.spring_class_path()
    classes = peer_cache.java_classes(class_path, "spring")
    return kafka_peer.java(f"{classes}:{class_path}", "SpringProcessor", heap="128m"), None


ASKS_FOR_A_COORDINATOR = True
