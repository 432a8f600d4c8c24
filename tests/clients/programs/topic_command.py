"""TopicCommand: create, list, describe, add partitions, delete."""

import re
import time

from records import Mismatch, same


def run(bench):
    """The life of a topic as an operator sees it."""
    topic = "topic-command-life"
    tool = "org.apache.kafka.tools.TopicCommand"
    create = ["--create", "--topic", topic, "--partitions", "3", "--config", "retention.ms=-1"]
    same("create", "output", f"Created topic {topic}.", bench.tool(tool, *create).text.strip())

    again = bench.tool(tool, *create, check=False)
    if again.code == 0 or "already exists" not in again.text + again.error_text:
        raise Mismatch(f"a second create exited with {again.code}: {again.text.strip()[:200]}")
    bench.tool(tool, *create, "--if-not-exists")

    listed = bench.tool(tool, "--list", "--exclude-internal").text.split()
    same("list", "the topic", 1, listed.count(topic))

    check_description(bench.tool(tool, "--describe", "--topic", topic).text, topic, 3)
    bench.tool(tool, "--alter", "--topic", topic, "--partitions", "5")
    check_description(bench.tool(tool, "--describe", "--topic", topic).text, topic, 5)

    fewer = bench.tool(tool, "--alter", "--topic", topic, "--partitions", "2", check=False)
    if fewer.code == 0:
        raise Mismatch("a topic could be altered to fewer partitions")

    bench.tool(tool, "--delete", "--topic", topic)
    deadline = time.monotonic() + 20
    while topic in bench.tool(tool, "--list").text.split():
        if time.monotonic() > deadline:
            raise Mismatch("the topic is still listed 20 s after its deletion")
    gone = bench.tool(tool, "--describe", "--topic", topic, check=False)
    if gone.code == 0 or "does not exist" not in gone.text + gone.error_text:
        raise Mismatch(f"describing a deleted topic exited with {gone.code}")
    return "create, list, describe, alter, delete"


def check_description(text, topic, partitions):
    """Counts, configs, and a leader for every partition."""
    head = re.search(
        rf"Topic: {re.escape(topic)}\s+TopicId: (\S+)\s+PartitionCount: (\d+)\s+"
        r"ReplicationFactor: (\d+)\s+Configs: (\S*)",
        text,
    )
    if head is None:
        raise Mismatch(f"describe printed {text[:300]!r}")
    same("describe", "partition count", partitions, int(head[2]))
    same("describe", "replication factor", 1, int(head[3]))
    same("describe", "retention.ms", 1, head[4].split(",").count("retention.ms=-1"))
    rows = re.findall(r"Partition: (\d+)\s+Leader: (\d+)\s+Replicas: (\d+)\s+Isr: (\d+)", text)
    same("describe", "partitions", list(range(partitions)), sorted(int(row[0]) for row in rows))
    for row in rows:
        same(f"partition {row[0]}", "replicas and ISR", (row[1], row[1]), (row[2], row[3]))
