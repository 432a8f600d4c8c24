"""confluent-kafka (librdkafka) driven by JSON lines; runs in the Python that has the package.

Owns: produce BOOTSTRAP TOPIC FILE [key=value...] and consume BOOTSTRAP TOPIC [key=value...]; the
form of the lines is told in records.py. Every partition is assigned by hand, no group coordinator
is spoken to and nothing is committed.
"""

import base64
import json
import sys
import time

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, Producer, TopicPartition


def produce(bootstrap, topic, path, *settings):
    """Sends the records of a file and prints each as acknowledged."""
    options = {"bootstrap.servers": bootstrap, "linger.ms": 5, "acks": "all"}
    options.update(setting.split("=", 1) for setting in settings)
    producer = Producer(options)
    with open(path, encoding="utf-8") as file:
        lines = [json.loads(line) for line in file]
    for fields in lines:
        producer.produce(
            topic,
            partition=fields["p"],
            timestamp=fields["t"],
            key=decode(fields["k"]),
            value=decode(fields["v"]),
            headers=[(name, decode(value)) for name, value in fields["h"]],
            on_delivery=lambda error, message, fields=fields: acknowledged(error, message, fields),
        )
        producer.poll(0)
    if producer.flush(60) != 0:
        raise SystemExit("not everything was acknowledged within 60 s")
    for fields in lines:
        print(json.dumps(fields, separators=(",", ":")))


def acknowledged(error, message, fields):
    """Takes over what the broker answered."""
    if error is not None:
        raise SystemExit(f"delivery failed: {error}")
    fields["o"] = message.offset()
    fields["t"] = message.timestamp()[1]


def consume(bootstrap, topic, *settings):
    """Prints every record of every partition up to the end offsets of the start. Where a marker
    stands at the end, only the end-of-partition event tells that it is reached."""
    options = {"bootstrap.servers": bootstrap, "group.id": "unused", "enable.auto.commit": False}
    options.update({"enable.auto.offset.store": False, "check.crcs": True})
    options["enable.partition.eof"] = True
    options.update(setting.split("=", 1) for setting in settings)
    consumer = Consumer(options)
    metadata = consumer.list_topics(topic, timeout=30).topics[topic]
    ends = {}
    for partition in metadata.partitions:
        _, end = consumer.get_watermark_offsets(TopicPartition(topic, partition), timeout=30)
        if end > 0:
            ends[partition] = end
    consumer.assign([TopicPartition(topic, partition, OFFSET_BEGINNING) for partition in ends])
    deadline = time.monotonic() + 60
    while ends:
        if time.monotonic() > deadline:
            raise SystemExit(f"the end was not reached: {ends}")
        message = consumer.poll(1)
        if message is None:
            continue
        if message.error() and message.error().code() == KafkaError._PARTITION_EOF:
            if message.offset() >= ends.get(message.partition(), 0):
                ends.pop(message.partition(), None)
            continue
        if message.error():
            raise SystemExit(f"consume failed: {message.error()}")
        fields = {"p": message.partition(), "o": message.offset(), "t": message.timestamp()[1]}
        fields["k"], fields["v"] = encode(message.key()), encode(message.value())
        fields["h"] = [[name, encode(value)] for name, value in message.headers() or []]
        print(json.dumps(fields, separators=(",", ":")))
    consumer.close()


def encode(data):
    """base64 or None."""
    return None if data is None else base64.b64encode(data).decode()


def decode(text):
    """Bytes or None."""
    return None if text is None else base64.b64decode(text)


{"produce": produce, "consume": consume}[sys.argv[1]](*sys.argv[2:])
