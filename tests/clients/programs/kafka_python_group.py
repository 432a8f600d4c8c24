"""Run by the interpreter that has kafka-python: a member of a consumer group.

    kafka_python_group.py BOOTSTRAP TOPIC NAME SETTING...   until SIGTERM, then it leaves

Prints the lines of group_lines.py. The client calls back in a thread of its own, where nothing may
wait, while the member waits in `poll`: what is not committed by then is read again by another. When
it closes between the halves of a rebalance it takes away a second time what it has taken away
already; that is not said twice. And when it misses a generation in which somebody else had its
partition, it goes on from its own old position as it gets it back, and would commit what is long
committed: the member sets each partition that it is given to what is committed.
"""

import sys
import time

from group_lines import STOP, Life, arguments, listen
from kafka import ConsumerRebalanceListener, KafkaConsumer, TopicPartition
from kafka.coordinator.assignors.cooperative_sticky import CooperativeStickyAssignor
from kafka.coordinator.assignors.range import RangePartitionAssignor
from kafka.errors import KafkaError
from kafka.structs import OffsetAndMetadata


class Member(ConsumerRebalanceListener):
    """Reads, and commits what it has read every so often and before it leaves."""

    def __init__(self, words):
        bootstrap, self.topic, name, settings = arguments(words)
        self.life = Life(name)
        self.owned = set()
        self.unplaced = set()
        self.consumer = self.connect(
            bootstrap_servers=bootstrap.split(","),
            client_id=name,
            group_id=settings["group.id"],
            session_timeout_ms=int(settings["session.timeout.ms"]),
            heartbeat_interval_ms=int(settings["heartbeat.interval.ms"]),
            partition_assignment_strategy=[ASSIGNORS[settings["partition.assignment.strategy"]]],
            auto_offset_reset="earliest",
            enable_auto_commit=False,
            # Not half a minute: the session would be over before it asks for the broker again.
            reconnect_backoff_max_ms=500,
        )

    def connect(self, **options):
        """Again and again: the client gives up when no broker is there."""
        while True:
            try:
                return KafkaConsumer(**options)
            except KafkaError as error:
                self.life.error(repr(error))

    def run(self):
        """Until SIGTERM."""
        self.consumer.subscribe([self.topic], listener=self)
        while not STOP:
            try:
                found = self.consumer.poll(timeout_ms=50)
            except KafkaError as error:
                self.life.error(repr(error))
                continue
            # Nothing is given or taken outside of `poll`.
            fresh = set(self.unplaced)
            for place, records in found.items():
                for record in records if place.partition not in fresh else ():
                    self.life.record(place.partition, record.offset)
            for place in fresh:
                self.go_to_committed(place)
            if self.life.due():
                self.commit()
        self.commit()
        self.consumer.close()
        self.life.closed()

    def on_partitions_assigned(self, assigned):
        """The line comes first."""
        places = {one.partition for one in assigned}
        self.owned |= places
        self.unplaced |= places
        self.life.assigned(places)

    def on_partitions_revoked(self, revoked):
        """Nobody reads while this is called."""
        self.life.revoked(self.no_longer_owned(revoked))

    def on_partitions_lost(self, lost):
        """The group has gone on without it."""
        self.life.lost(self.no_longer_owned(lost))

    def no_longer_owned(self, taken):
        """What of it was still its own."""
        places = self.owned & {one.partition for one in taken}
        self.owned -= places
        self.unplaced -= places
        return places

    def go_to_committed(self, place):
        """Or to the beginning; until then its records do not count."""
        partition = TopicPartition(self.topic, place)
        try:
            offset = self.consumer.committed(partition, timeout_ms=COMMIT_MS)
            if offset is None:
                self.consumer.seek_to_beginning(partition)
            else:
                self.consumer.seek(partition, offset)
        except KafkaError as error:
            self.life.error(repr(error))
            return
        self.unplaced.discard(place)

    def commit(self):
        """What has been read; asks and waits."""
        offsets = dict(self.life.next)
        if not offsets:
            return
        asked = time.monotonic_ns()
        places = {
            TopicPartition(self.topic, place): OffsetAndMetadata(to, "", -1)
            for place, to in offsets.items()
        }
        try:
            self.consumer.commit(places, timeout_ms=COMMIT_MS)
        except KafkaError as error:
            self.life.commit_failed(type(error).__name__)
            return
        self.life.committed(asked, offsets)


ASSIGNORS = {"range": RangePartitionAssignor, "cooperative-sticky": CooperativeStickyAssignor}
COMMIT_MS = 5_000
listen()
Member(sys.argv[1:]).run()
