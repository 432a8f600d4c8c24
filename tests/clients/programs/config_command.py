"""ConfigCommand: topics, brokers, clients and users; what is set is told, in force, and removed."""

import re

from records import Mismatch, same

TOOL = "kafka.admin.ConfigCommand"


def run(bench):
    """Sets, describes and removes configs of every entity type."""
    topics(bench)
    brokers(bench)
    clients(bench)
    users(bench)
    return "topics, brokers, clients, users"


def topics(bench):
    """A topic's own configs, a list among them, and a value that is refused."""
    topic = bench.topic("altered", partitions=1)
    entity = ["--entity-type", "topics", "--entity-name", topic]
    alter(bench, entity, "retention.ms=86400001,cleanup.policy=[compact,delete]")
    found = described(bench, entity)
    same("topic", "retention.ms", "86400001", found.get("retention.ms"))
    same("topic", "cleanup.policy", "compact,delete", found.get("cleanup.policy"))
    refused = bench.tool(TOOL, *entity, "--alter", "--add-config", "segment.bytes=1", check=False)
    if refused.code == 0 or "segment.bytes" not in refused.text + refused.error_text:
        raise Mismatch(f"a bad value exited with {refused.code}")
    bench.tool(TOOL, *entity, "--alter", "--delete-config", "cleanup.policy")
    same("topic", "configs", {"retention.ms": "86400001"}, described(bench, entity))


def brokers(bench):
    """The cluster's defaults, and what is told of one broker."""
    entity = ["--entity-type", "brokers", "--entity-default"]
    alter(bench, entity, "log.retention.ms=86400002")
    same("default", "log.retention.ms", "86400002", described(bench, entity)["log.retention.ms"])
    topic = ["--entity-type", "topics", "--entity-name", bench.topic("plain", partitions=1)]
    text = bench.tool(TOOL, *topic, "--describe", "--all").text
    if "DYNAMIC_DEFAULT_BROKER_CONFIG:log.retention.ms=86400002" not in text:
        raise Mismatch("the default does not reach a topic")
    bench.tool(TOOL, *entity, "--alter", "--delete-config", "log.retention.ms")
    if "log.retention.ms" in described(bench, entity):
        raise Mismatch("the default is still set")


def clients(bench):
    """Quotas of one client and of all."""
    entity = ["--entity-type", "clients", "--entity-name", "an-app"]
    alter(bench, entity, "producer_byte_rate=1024,request_percentage=12.5")
    text = bench.tool(TOOL, *entity, "--describe").text
    for quota in ("producer_byte_rate=1024.0", "request_percentage=12.5"):
        if quota not in text:
            raise Mismatch(f"{quota} is not in {text.strip()[:200]!r}")
    bench.tool(TOOL, *entity, "--alter", "--delete-config", "producer_byte_rate,request_percentage")
    if "producer_byte_rate" in bench.tool(TOOL, *entity, "--describe").text:
        raise Mismatch("the quota is still set")


def users(bench):
    """SCRAM credentials; the password is not told."""
    entity = ["--entity-type", "users", "--entity-name", "ann"]
    alter(bench, entity, "SCRAM-SHA-512=[iterations=8192,password=secret]")
    text = bench.tool(TOOL, *entity, "--describe").text
    if "SCRAM-SHA-512=iterations=8192" not in text or "secret" in text:
        raise Mismatch(f"described as {text.strip()[:200]!r}")
    bench.tool(TOOL, *entity, "--alter", "--delete-config", "SCRAM-SHA-512")
    if "SCRAM-SHA-512" in bench.tool(TOOL, *entity, "--describe").text:
        raise Mismatch("the credential is still there")


def alter(bench, entity, configs):
    """Sets configs."""
    text = bench.tool(TOOL, *entity, "--alter", "--add-config", configs).text
    if "Completed updating" not in text:
        raise Mismatch(f"alter printed {text.strip()[:200]!r}")


def described(bench, entity):
    """The configs that are set on an entity, by name."""
    text = bench.tool(TOOL, *entity, "--describe").text
    return dict(re.findall(r"^\s+([\w.]+)=(.*?) sensitive=false", text, re.MULTILINE))
