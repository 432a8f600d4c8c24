"""Run by the interpreter that has confluent-kafka: a processor of orders over librdkafka.

    confluent_processor.py BOOTSTRAP NAME INPUT OUTPUT SETTING...   until SIGTERM, then it leaves

Prints the lines of orders.py. What it has polled belongs to the generation whose metadata goes with
the offsets: callbacks of the group run only within a poll, and there is none in a transaction.
"""

import sys
import time

from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition
from group_lines import STOP, listen, say


class Processor:
    """One consumer, one producer, one transaction at a time."""

    def __init__(self, bootstrap, name, source, target, settings):
        self.source, self.target = source, target
        self.batch = int(settings["max.poll.records"])
        self.pause_seconds = int(settings["pause.ms"]) / 1000
        common = {"bootstrap.servers": bootstrap, "client.id": name}
        # When all brokers are away librdkafka 2.16 forgets them and begins anew. It then may keep
        # the connection to the group's coordinator for ever, with TxnOffsetCommit in its queue.
        common["metadata.recovery.strategy"] = "none"
        # What it waits before it connects again is forgotten after so long only, not when it has
        # connected: of ten seconds, two ends of the broker in three leave it away until all is done.
        common["reconnect.backoff.max.ms"] = 1_000
        # In the new protocol the broker says when a session ends.
        of_group = GROUP_SETTINGS[settings["group.protocol"]]
        group = {key: settings[key] for key in of_group}
        self.consumer = Consumer({**common, **group, **READING})
        sending = {key: settings[key] for key in SENDING_SETTINGS}
        self.producer = Producer({**common, **sending, "linger.ms": 0})

    def run(self):
        """Until SIGTERM, or until it is told that another has its place."""
        again(lambda: self.producer.init_transactions(WAIT_SECONDS))
        self.consumer.subscribe([self.source], on_assign=assigned, on_revoke=revoked)
        while not STOP:
            found = []
            for order in self.consumer.consume(self.batch, WAIT_SECONDS / 20):
                if order.error() is None:
                    found.append(order)
                else:
                    say("error", code=str(order.error()))
            if found:
                self.transact(found)
        self.consumer.close()
        say("closed")

    def transact(self, found):
        """Bills for some orders."""
        ids = [int(order.key()) for order in found]
        try:
            self.producer.begin_transaction()
            for order in found:
                self.producer.produce(
                    self.target, partition=order.partition(), key=order.key(),
                    value=b"bill of " + order.value())
            again(lambda: self.producer.flush(WAIT_SECONDS))
            say("sent", ids=ids)
            time.sleep(self.pause_seconds)
            metadata = self.consumer.consumer_group_metadata()
            again(lambda: self.producer.send_offsets_to_transaction(
                following(found), metadata, WAIT_SECONDS))
            again(lambda: self.producer.commit_transaction(WAIT_SECONDS))
            say("committed", ids=ids)
        except KafkaException as error:
            if not error.args[0].txn_requires_abort():
                raise
            again(lambda: self.producer.abort_transaction(WAIT_SECONDS))
            self.go_back(found)
            say("aborted", ids=ids, code=str(error))

    def go_back(self, found):
        """To the first of each partition; one that has been taken away is begun by another."""
        for place, order in first_of_each(found).items():
            try:
                self.consumer.seek(TopicPartition(self.source, place, order.offset()))
            except KafkaException as error:
                say("error", code=str(error))


def again(action):
    """As long as the client says that it may be tried again."""
    while True:
        try:
            return action()
        except KafkaException as error:
            if not error.args[0].retriable():
                raise
            say("error", code=str(error))


def following(found):
    """What is to be read next."""
    ends = {order.partition(): order for order in found}
    return [TopicPartition(one.topic(), place, one.offset() + 1) for place, one in ends.items()]


def first_of_each(found):
    """By partition."""
    return {order.partition(): order for order in reversed(found)}


def assigned(_, places):
    """The client takes them by itself."""
    say("assigned", p=[one.partition for one in places])


def revoked(_, places):
    """No transaction is open."""
    say("revoked", p=[one.partition for one in places])


def main(bootstrap, name, source, target, *settings):
    """The command line."""
    listen()
    try:
        settings = dict(setting.split("=", 1) for setting in settings)
        Processor(bootstrap, name, source, target, settings).run()
    except KafkaException as error:
        if error.args[0].code() not in FENCED:
            raise
        say("fenced", code=str(error))
        sys.exit(3)


FENCED = (KafkaError._FENCED, KafkaError.PRODUCER_FENCED, KafkaError.INVALID_PRODUCER_EPOCH)
GROUP_SETTINGS = {
    "classic": ("group.id", "session.timeout.ms", "heartbeat.interval.ms"),
    "consumer": ("group.id", "group.protocol"),
}
SENDING_SETTINGS = ("transactional.id", "transaction.timeout.ms")
READING = {"enable.auto.commit": False, "auto.offset.reset": "earliest",
           "isolation.level": "read_committed"}
WAIT_SECONDS = 10
main(*sys.argv[1:])
