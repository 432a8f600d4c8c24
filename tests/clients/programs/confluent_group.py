"""Run by the interpreter that has confluent-kafka: one part of a consumer group's life.

    confluent_group.py member BOOTSTRAP TOPIC NAME SETTING...   until SIGTERM, then it leaves
    confluent_group.py produce BOOTSTRAP TOPIC RECORDS-A-SECOND until SIGTERM
    confluent_group.py observe BOOTSTRAP TOPIC GROUP            until SIGTERM

Prints the lines that group_checker.py reads, each written at once: a process that is killed has
printed everything that it did but its last step. Must never: print `revoked` before the work on
these partitions is over, or `commit` before the broker has answered.
"""

import json
import os
import signal
import sys
import time

from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition

STOP = []


def say(event, **fields):
    """One line, in one write."""
    fields = {"event": event, "ns": fields.pop("ns", None) or time.monotonic_ns(), **fields}
    os.write(1, (json.dumps(fields, separators=(",", ":")) + "\n").encode())


class Member:
    """Reads, and commits what it has read every so often and before it gives anything up."""

    def __init__(self, bootstrap, topic, name, *settings):
        options = {"bootstrap.servers": bootstrap, "client.id": name}
        options.update({"auto.offset.reset": "earliest", "enable.auto.commit": False})
        options.update(setting.split("=", 1) for setting in settings)
        self.topic = topic
        self.name = name
        self.next = {}  # By partition: the offset to commit, when it is not committed yet.
        self.consumer = Consumer(options)
        self.incremental = options.get("partition.assignment.strategy") == "cooperative-sticky"
        self.incremental |= options.get("group.protocol") == "consumer"

    def run(self):
        """Until SIGTERM."""
        self.consumer.subscribe(
            [self.topic], on_assign=self.assigned, on_revoke=self.revoked, on_lost=self.lost
        )
        last = time.monotonic()
        while not STOP:
            message = self.consumer.poll(0.05)
            if message is not None and message.error():
                say("error", member=self.name, code=message.error().name())
            elif message is not None:
                place, offset = message.partition(), message.offset()
                say("record", member=self.name, p=place, o=offset)
                self.next[place] = offset + 1
            if time.monotonic() - last > 0.2:
                self.commit()
                last = time.monotonic()
        self.consumer.close()
        say("closed", member=self.name)

    def assigned(self, _, partitions):
        """The line comes first: whoever reads it counts from then on."""
        say("assigned", member=self.name, p=[one.partition for one in partitions])
        if self.incremental:
            self.consumer.incremental_assign(partitions)
        else:
            self.consumer.assign(partitions)

    def revoked(self, _, partitions):
        """Commits, and says that it is over before the group hears of it."""
        self.commit()
        places = [one.partition for one in partitions]
        for place in places:
            self.next.pop(place, None)
        say("revoked", member=self.name, p=places)
        if self.incremental:
            self.consumer.incremental_unassign(partitions)
        else:
            self.consumer.unassign()

    def lost(self, _, partitions):
        """Somebody else may have them already: nothing is committed."""
        places = [one.partition for one in partitions]
        for place in places:
            self.next.pop(place, None)
        say("lost", member=self.name, p=places)
        if self.incremental:
            self.consumer.incremental_unassign(partitions)
        else:
            self.consumer.unassign()

    def commit(self):
        """What has been read; asks and waits."""
        if not self.next:
            return
        offsets = [TopicPartition(self.topic, place, to) for place, to in self.next.items()]
        asked = time.monotonic_ns()
        try:
            answer = self.consumer.commit(offsets=offsets, asynchronous=False)
        except KafkaException as error:
            say("commit_failed", member=self.name, code=error.args[0].name())
            return
        done = {one.partition: one.offset for one in answer if one.error is None}
        for one in answer:
            if one.error is not None:
                say("commit_failed", member=self.name, code=one.error.name())
        for place in done:
            self.next.pop(place, None)
        say("commit", member=self.name, asked=asked, offsets=done)


def produce(bootstrap, topic, rate):
    """Records at a rate, to the partitions in turn; a line for each as it is acknowledged."""
    options = {"bootstrap.servers": bootstrap, "linger.ms": 20, "enable.idempotence": True}
    producer = Producer(options)
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


def observe(bootstrap, topic, group):
    """What the coordinator says is committed, again and again; never a member of the group."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": group})
    places = consumer.list_topics(topic, timeout=30).topics[topic].partitions
    last = False
    while not last:
        last = bool(STOP)
        asked = time.monotonic_ns()
        try:
            answer = consumer.committed([TopicPartition(topic, one) for one in places], timeout=30)
        except KafkaException as error:
            if error.args[0].code() in PASSING:
                last = False
                time.sleep(0.1)
                continue
            raise
        found = {one.partition: one.offset for one in answer if one.offset >= 0}
        say("committed", asked=asked, offsets=found)
        time.sleep(0.1)
    consumer.close()


def main():
    """The command line."""
    signal.signal(signal.SIGTERM, lambda *_: STOP.append(True))
    say("started")
    word, *rest = sys.argv[1:]
    if word == "member":
        Member(*rest).run()
    else:
        {"produce": produce, "observe": observe}[word](*rest)


PASSING = {KafkaError.COORDINATOR_LOAD_IN_PROGRESS, KafkaError.NOT_COORDINATOR}
PASSING |= {KafkaError.COORDINATOR_NOT_AVAILABLE}
main()
