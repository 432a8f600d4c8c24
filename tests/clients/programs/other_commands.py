"""Kafka's tools that no other program of the suite uses, each once.

VerifiableProducer and VerifiableConsumer (in groups of both protocols), EndToEndLatency,
LeaderElectionCommand, ClientMetricsCommand, DelegationTokenCommand, ReplicaVerificationTool and
StreamsResetter. Left out are those for share groups and streams groups, which this broker has not
(ShareGroupCommand, StreamsGroupCommand, the consumers of share groups), and JmxTool.
"""

import json
import re
import time

import kafka_peer
import peer_cache
import processes
from records import Mismatch, same

from programs import consumer_group_command as groups

TOOLS = "org.apache.kafka.tools."


def run(bench):
    """One question to each tool."""
    topic = bench.topic("t", partitions=3)
    verifiable(bench, topic)
    latency(bench)
    election(bench, topic)
    client_metrics(bench)
    tokens(bench)
    replicas(bench, topic)
    resetter(bench, topic)
    return "verifiable, latency, election, client metrics, tokens, replicas, resetter"


def told(bench, tool, *words, code=0):
    """What one of the tools prints, of an expected exit code."""
    found, printed = bench.resident_tool(f"{TOOLS}{tool}", *words)
    same(tool, f"exit after {printed[-3:]}", code, found)
    return "\n".join(printed).strip()


def lines_of(text, name):
    """The JSON lines of that name."""
    found = [json.loads(line) for line in text.splitlines() if line.startswith("{")]
    return [one for one in found if one["name"] == name]


def verifiable(bench, topic):
    """Everything is acknowledged, and read once by either group."""
    words = ["--topic", topic, "--max-messages", str(COUNT), "--acks", "-1"]
    text = bench.tool(f"{TOOLS}VerifiableProducer", *words).text
    sent = sorted(int(one["value"]) for one in lines_of(text, "producer_send_success"))
    same(topic, "acknowledged", list(range(COUNT)), sent)
    for protocol in ("classic", "consumer"):
        words = ["--topic", topic, "--group-id", f"{topic}-{protocol}", "--verbose"]
        words += ["--group-protocol", protocol, "--max-messages", str(COUNT)]
        words += ["--reset-policy", "earliest"]
        text = bench.tool(f"{TOOLS}VerifiableConsumer", *words).text
        seen = sorted(int(one["value"]) for one in lines_of(text, "record_data"))
        same(topic, f"read in a group of type {protocol}", list(range(COUNT)), seen)
        same(topic, "errors", [], [one for one in lines_of(text, "offsets_committed")
                                   if not one["success"]])


def latency(bench):
    """It compares what comes back by itself, and tells percentiles."""
    topic = bench.topic("latency", partitions=1)
    words = ["--topic", topic, "--num-records", "100", "--producer-acks", "all"]
    text = told(bench, "EndToEndLatency", *words, "--record-size", "200")
    if not re.search(r"Percentiles: 50th = \d+", text):
        raise Mismatch(f"EndToEndLatency printed {text.strip()[-200:]!r}")


def election(bench, topic):
    """Every leader is where it should be, and then nothing is told of all of them."""
    preferred = ["LeaderElectionCommand", "--election-type", "preferred"]
    same(preferred[0], "printed", "", told(bench, *preferred, "--all-topic-partitions"))
    text = told(bench, *preferred, "--topic", topic, "--partition", "1")
    same(preferred[0], "printed", f"Valid replica already elected for partitions {topic}-1", text)


def client_metrics(bench):
    """A subscription is kept, told and deleted."""
    def ask(*words):
        """What it prints. In the resident JVM it takes its own end for an error."""
        return bench.tool(f"{TOOLS}ClientMetricsCommand", *words).text.strip()
    ask("--alter", "--name", "watched", "--metrics", "org.apache.kafka.consumer.",
        "--interval", "60000")
    same("client metrics", "names", "watched", ask("--list"))
    described = ask("--describe", "--name", "watched")
    for line in ("interval.ms=60000", "metrics=org.apache.kafka.consumer."):
        same("client metrics", f"tells {line}", True, line in described)
    ask("--delete", "--name", "watched")
    same("client metrics", "names after delete", "", ask("--list"))


def tokens(bench):
    """Nobody who has not proved who he is may ask."""
    config = bench.scratch / "delegation-token.properties"
    config.write_text("")
    words = ["--describe", "--command-config", str(config)]
    text = told(bench, "DelegationTokenCommand", *words, code=1)
    same("tokens", "refused", True, "UnsupportedByAuthenticationException" in text)


def replicas(bench, topic):
    """One replica has no lag behind itself; the tool runs until it is stopped."""
    path = bench.scratch / "replica-verification.out"
    command = kafka_peer.java(peer_cache.kafka_class_path(), f"{TOOLS}ReplicaVerificationTool")
    command += ["--broker-list", bench.peer.bootstrap, "--topics-include", topic]
    command += ["--report-interval-ms", "500"]
    child = processes.start(command, path, path)
    try:
        deadline = time.monotonic() + 60
        while len(re.findall(r"max lag is 0 for partition", path.read_text())) < 2:
            if child.poll() is not None or time.monotonic() > deadline:
                raise Mismatch(f"ReplicaVerificationTool printed {path.read_text()[-300:]!r}")
            time.sleep(0.1)
    finally:
        child.kill()
        child.wait()


def resetter(bench, topic):
    """An application's offsets go back to the start."""
    group = f"{topic}-classic"
    words = ["--application-id", group, "--input-topics", topic]
    told(bench, "StreamsResetter", *words)
    found = {place: current for place, (current, _, _) in groups.offsets(bench, group).items()}
    same(group, "offsets after", {(topic, place): "0" for place in "012"}, found)


COUNT = 200
ASKS_FOR_A_COORDINATOR = True
