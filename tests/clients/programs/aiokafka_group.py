"""Run by the interpreter that has aiokafka: a member of a consumer group.

    aiokafka_group.py BOOTSTRAP TOPIC NAME SETTING...   until SIGTERM, then it leaves

Prints the lines of group_lines.py. The client speaks the classic protocol with assignors that take
everything away first. It calls back before it joins again; before it leaves it does not, so that
the member says by itself that its work is over.
"""

import asyncio
import sys
import time

from aiokafka import AIOKafkaConsumer, ConsumerRebalanceListener, TopicPartition
from aiokafka.coordinator.assignors.range import RangePartitionAssignor
from aiokafka.errors import KafkaConnectionError, KafkaError
from group_lines import STOP, Life, arguments, listen


class Member(ConsumerRebalanceListener):
    """Reads, and commits what it has read every so often and before it gives anything up."""

    def __init__(self, words):
        bootstrap, self.topic, name, settings = arguments(words)
        self.life = Life(name)
        self.owned = []
        self.leaving = False
        self.consumer = None
        self.committing = asyncio.Lock()
        self.options = {
            "bootstrap_servers": bootstrap,
            "client_id": name,
            "group_id": settings["group.id"],
            "session_timeout_ms": int(settings["session.timeout.ms"]),
            "heartbeat_interval_ms": int(settings["heartbeat.interval.ms"]),
            "partition_assignment_strategy": (RangePartitionAssignor,),
            "auto_offset_reset": "earliest",
            "enable_auto_commit": False,
            "request_timeout_ms": REQUEST_MS,
        }

    async def run(self):
        """Until SIGTERM."""
        starting = asyncio.ensure_future(self.start())
        # The start lasts until it has joined, which may be never when the group has no rest.
        while not starting.done() and not STOP:
            await asyncio.sleep(0.05)
        if starting.done():
            starting.result()
        while not STOP:
            await self.read()
        async with self.committing:
            await self.commit()
            self.leaving = True
            if self.owned:
                self.life.revoked(self.owned)
        starting.cancel()
        if self.consumer is not None:
            await self.consumer.stop()
        self.life.closed()

    async def start(self):
        """Again and again: the client gives up at once when no broker is there."""
        while True:
            self.consumer = AIOKafkaConsumer(**self.options)
            self.consumer.subscribe([self.topic], listener=self)
            try:
                return await self.consumer.start()
            except KafkaConnectionError as error:
                self.life.error(repr(error))
                await self.consumer.stop()
                await asyncio.sleep(0.1)

    async def read(self):
        """Records of one moment: nothing else runs until their lines are printed."""
        try:
            found = await self.consumer.getmany(timeout_ms=50)
        except KafkaError as error:
            self.life.error(repr(error))
            return
        for place, records in found.items():
            for record in records:
                self.life.record(place.partition, record.offset)
        if self.life.due():
            async with self.committing:
                await self.commit()

    async def on_partitions_assigned(self, assigned):
        """The line comes first."""
        if self.leaving:
            return
        self.owned = [one.partition for one in assigned]
        self.life.assigned(self.owned)

    async def on_partitions_revoked(self, revoked):
        """Commits, and says that it is over before it joins again."""
        async with self.committing:
            if self.leaving or not revoked:
                return
            await self.commit()
            self.owned = []
            places = [one.partition for one in revoked]
            # The client calls no other name when the group does not know it any more.
            if self.consumer._coordinator.member_id:
                self.life.revoked(places)
            else:
                self.life.lost(places)

    async def commit(self):
        """What has been read; asks and waits. One at a time."""
        offsets = dict(self.life.next)
        if not offsets:
            return
        asked = time.monotonic_ns()
        places = {TopicPartition(self.topic, place): to for place, to in offsets.items()}
        try:
            await asyncio.wait_for(self.consumer.commit(places), REQUEST_MS / 1000)
        except (KafkaError, asyncio.TimeoutError) as error:
            self.life.commit_failed(type(error).__name__)
            return
        self.life.committed(asked, offsets)


async def main():
    """The command line."""
    await Member(sys.argv[1:]).run()


REQUEST_MS = 5_000
listen()
asyncio.run(main())
