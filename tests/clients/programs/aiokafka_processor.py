"""Run by the interpreter that has aiokafka: a processor of orders.

    aiokafka_processor.py BOOTSTRAP NAME INPUT OUTPUT SETTING...   until SIGTERM, then it leaves

Prints the lines of orders.py. The client sends no generation with its offsets, so that nothing but
the transactional id fences it. A rebalance waits until the transaction at hand has ended.
"""

import asyncio
import os
import sys

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, ConsumerRebalanceListener, TopicPartition
from aiokafka.errors import KafkaConnectionError, KafkaError, ProducerFenced
from group_lines import STOP, listen, say


class Processor(ConsumerRebalanceListener):
    """One consumer, one producer, one transaction at a time."""

    def __init__(self, bootstrap, name, source, target, settings):
        self.source, self.target = source, target
        self.group = settings["group.id"]
        self.batch = int(settings["max.poll.records"])
        self.pause_seconds = int(settings["pause.ms"]) / 1000
        self.working = asyncio.Lock()
        self.consuming = {
            "bootstrap_servers": bootstrap,
            "client_id": name,
            "group_id": self.group,
            "session_timeout_ms": int(settings["session.timeout.ms"]),
            "heartbeat_interval_ms": int(settings["heartbeat.interval.ms"]),
            "auto_offset_reset": "earliest",
            "enable_auto_commit": False,
            "isolation_level": "read_committed",
        }
        self.producing = {
            "bootstrap_servers": bootstrap,
            "client_id": name,
            "transactional_id": settings["transactional.id"],
            "transaction_timeout_ms": int(settings["transaction.timeout.ms"]),
        }
        self.consumer = self.producer = None

    async def run(self):
        """Until SIGTERM, or until it is told that another has its place."""
        self.producer = await started(lambda: AIOKafkaProducer(**self.producing))
        # Who had this id before is at its end before the group's offsets are asked for: this client
        # does not wait for those that are pending.
        await self.producer.begin_transaction()
        await self.producer.abort_transaction()
        self.consumer = await started(self.subscribed)
        while not STOP:
            async with self.working:
                places = await self.consumer.getmany(timeout_ms=50, max_records=self.batch)
                found = [order for orders in places.values() for order in orders]
                if found:
                    await self.transact(found)
            await asyncio.sleep(0)
        await self.consumer.stop()
        await self.producer.stop()
        say("closed")

    def subscribed(self):
        """A consumer that has not started yet."""
        consumer = AIOKafkaConsumer(**self.consuming)
        consumer.subscribe([self.source], listener=self)
        return consumer

    async def transact(self, found):
        """Bills for some orders. Whatever goes wrong is left to the successor."""
        ids = [int(order.key) for order in found]
        await self.producer.begin_transaction()
        answers = []
        for order in found:
            bill = b"bill of " + order.value
            answers.append(await self.producer.send(
                self.target, bill, key=order.key, partition=order.partition))
        await asyncio.gather(*answers)
        say("sent", ids=ids)
        await asyncio.sleep(self.pause_seconds)
        ends = {TopicPartition(self.source, one.partition): one.offset + 1 for one in found}
        await self.producer.send_offsets_to_transaction(ends, self.group)
        await self.producer.commit_transaction()
        say("committed", ids=ids)

    async def on_partitions_assigned(self, assigned):
        """The client takes them by itself."""
        say("assigned", p=[one.partition for one in assigned])

    async def on_partitions_revoked(self, revoked):
        """Nothing is polled any more, and what was is committed."""
        async with self.working:
            say("revoked", p=[one.partition for one in revoked])


async def started(make):
    """Again and again: the client gives up at once when no broker is there."""
    while True:
        client = make()
        try:
            await client.start()
            return client
        except KafkaConnectionError as error:
            say("error", code=repr(error))
            await client.stop()
            await asyncio.sleep(0.1)


async def main(bootstrap, name, source, target, *settings):
    """The command line."""
    settings = dict(setting.split("=", 1) for setting in settings)
    try:
        await Processor(bootstrap, name, source, target, settings).run()
    except ProducerFenced as error:
        say("fenced", code=repr(error))
        crash(3)
    except KafkaError as error:
        print(repr(error), file=sys.stderr)
        crash(1)


def crash(code):
    """Ends at once. The loop would first cancel the client's tasks all together: that of a group
    which is joining it again may then wait for an answer that nobody reads any more, and not end.
    """
    sys.stderr.flush()
    os._exit(code)


listen()
asyncio.run(main(*sys.argv[1:]))
