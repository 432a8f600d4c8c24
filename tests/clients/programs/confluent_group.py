"""Run by the interpreter that has confluent-kafka: one part of a consumer group's life.

    confluent_group.py member BOOTSTRAP TOPIC NAME SETTING...   until SIGTERM, then it leaves
    confluent_group.py produce BOOTSTRAP TOPIC RECORDS-A-SECOND until SIGTERM
    confluent_group.py observe BOOTSTRAP TOPIC GROUP...         until SIGTERM

Prints the lines of group_lines.py; the one who observes, what is committed in each group. Must
never: be a member of a group that it observes.
"""

import sys
import time

from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition
from group_lines import STOP, Life, arguments, listen, say


class Member:
    """Reads, and commits what it has read every so often and before it gives anything up."""

    def __init__(self, *words):
        bootstrap, self.topic, name, settings = arguments(words)
        options = {"bootstrap.servers": bootstrap, "client.id": name}
        options.update({"auto.offset.reset": "earliest", "enable.auto.commit": False})
        options.update(SOON, **settings)
        self.life = Life(name)
        self.consumer = Consumer(options)
        self.incremental = options.get("partition.assignment.strategy") == "cooperative-sticky"
        self.incremental |= options.get("group.protocol") == "consumer"

    def run(self):
        """Until SIGTERM."""
        self.consumer.subscribe(
            [self.topic], on_assign=self.assigned, on_revoke=self.revoked, on_lost=self.lost
        )
        while not STOP:
            message = self.consumer.poll(0.05)
            if message is not None and message.error():
                self.life.error(message.error().name())
            elif message is not None:
                self.life.record(message.partition(), message.offset())
            if self.life.due():
                self.commit()
        self.consumer.close()
        self.life.closed()

    def assigned(self, _, partitions):
        """The line comes first."""
        self.life.assigned([one.partition for one in partitions])
        if self.incremental:
            self.consumer.incremental_assign(partitions)
        else:
            self.consumer.assign(partitions)

    def revoked(self, _, partitions):
        """Commits, and says that it is over before the group hears of it."""
        self.commit()
        self.life.revoked([one.partition for one in partitions])
        self.unassign(partitions)

    def lost(self, _, partitions):
        """The group has gone on without it."""
        self.life.lost([one.partition for one in partitions])
        self.unassign(partitions)

    def unassign(self, partitions):
        """In the way of the protocol."""
        if self.incremental:
            self.consumer.incremental_unassign(partitions)
        else:
            self.consumer.unassign()

    def commit(self):
        """What has been read; asks and waits."""
        if not self.life.next:
            return
        offsets = [TopicPartition(self.topic, place, to) for place, to in self.life.next.items()]
        asked = time.monotonic_ns()
        try:
            answer = self.consumer.commit(offsets=offsets, asynchronous=False)
        except KafkaException as error:
            self.life.commit_failed(error.args[0].name())
            return
        for one in answer:
            if one.error is not None:
                self.life.commit_failed(one.error.name())
        self.life.committed(asked, {one.partition: one.offset for one in answer if not one.error})


def produce(bootstrap, topic, rate):
    """Records at a rate, to the partitions in turn; a line for each as it is acknowledged."""
    options = {"bootstrap.servers": bootstrap, "linger.ms": 20, "enable.idempotence": True}
    producer = Producer({**options, **SOON})
    partitions = len(producer.list_topics(topic, timeout=30).topics[topic].partitions)

    def acknowledged(error, message):
        if error is not None:
            raise SystemExit(f"delivery failed: {error}")
        say("produced", p=message.partition(), o=message.offset())

    started, sent = time.monotonic(), 0
    while not STOP:
        producer.produce(topic, b"%d" % sent, partition=sent % partitions, callback=acknowledged)
        sent += 1
        producer.poll(max(0, started + sent / float(rate) - time.monotonic()))
    if producer.flush(60) != 0:
        raise SystemExit("not everything was acknowledged within 60 s")


def observe(bootstrap, topic, *groups):
    """What the coordinators say is committed, again and again; once more after SIGTERM."""
    options = {"bootstrap.servers": bootstrap, **SOON}
    consumers = {group: Consumer({**options, "group.id": group}) for group in groups}
    places = next(iter(consumers.values())).list_topics(topic, timeout=30).topics[topic].partitions
    last = False
    while not last:
        last = bool(STOP)
        for group, consumer in consumers.items():
            last &= look(consumer, group, topic, places)
        time.sleep(0.1)
    for consumer in consumers.values():
        consumer.close()


def look(consumer, group, topic, places):
    """One look at one group; whether there was an answer."""
    asked = time.monotonic_ns()
    try:
        answer = consumer.committed([TopicPartition(topic, one) for one in places], timeout=30)
    except KafkaException as error:
        if error.args[0].code() in PASSING:
            return False
        raise
    found = {one.partition: one.offset for one in answer if one.offset >= 0}
    say("committed", group=group, asked=asked, offsets=found)
    return True


def main():
    """The command line."""
    listen()
    word, *rest = sys.argv[1:]
    if word == "member":
        Member(*rest).run()
    else:
        {"produce": produce, "observe": observe}[word](*rest)


# A broker is away for longer than a session if this client tries again after 10 s only, which is what
# it comes to while a JVM starts.
SOON = {"reconnect.backoff.max.ms": 500}
PASSING = {KafkaError.COORDINATOR_LOAD_IN_PROGRESS, KafkaError.NOT_COORDINATOR}
PASSING |= {KafkaError.COORDINATOR_NOT_AVAILABLE, KafkaError._TRANSPORT, KafkaError._TIMED_OUT}
PASSING |= {KafkaError._ALL_BROKERS_DOWN, KafkaError._WAIT_COORD}
main()
