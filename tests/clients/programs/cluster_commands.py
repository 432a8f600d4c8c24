"""Kafka's tools for what a cluster consists of: log directories, replicas, quorum, features, ACLs."""

import json
import re

from records import Mismatch, same

TOOLS = "org.apache.kafka.tools."


def run(bench):
    """One question to each tool, and what it refuses."""
    topic = bench.topic("sized", partitions=3)
    log_directories(bench, topic)
    reassignment(bench, topic)
    quorum(bench)
    features(bench)
    acls(bench)
    cluster(bench)
    return "log dirs, reassign, quorum, features, ACLs, cluster"


def log_directories(bench, topic):
    """Every partition is in the directory of one broker."""
    text = bench.tool(f"{TOOLS}LogDirsCommand", "--describe", "--topic-list", topic).text
    answer = json.loads(next(line for line in text.splitlines() if line.startswith("{")))
    partitions = []
    for broker in answer["brokers"]:
        for directory in broker["logDirs"]:
            same("log dirs", "error", None, directory["error"])
            partitions += [partition["partition"] for partition in directory["partitions"]]
    same("log dirs", "partitions", [f"{topic}-{n}" for n in range(3)], sorted(partitions))


def reassignment(bench, topic):
    """Partitions that stay where they are are reassigned at once; nothing is under way."""
    tool = f"{TOOLS}reassign.ReassignPartitionsCommand"
    text = bench.tool(f"{TOOLS}TopicCommand", "--describe", "--topic", topic).text
    places = re.findall(r"Partition: (\d+)\s+Leader: (\d+)", text)
    plan = {
        "version": 1,
        "partitions": [
            {"topic": topic, "partition": int(number), "replicas": [int(leader)]}
            for number, leader in places
        ],
    }
    path = bench.scratch / "reassignment.json"
    path.write_text(json.dumps(plan))
    file = ["--reassignment-json-file", str(path)]
    text = bench.tool(tool, *file, "--execute").text
    if "Successfully started" not in text:
        raise Mismatch(f"execute printed {text.strip()[-200:]!r}")
    text = bench.tool(tool, *file, "--verify").text
    same("verify", "completed", 3, text.count("is completed"))
    if "No partition reassignments found" not in bench.tool(tool, "--list").text:
        raise Mismatch("a reassignment is under way")


def quorum(bench):
    """One leader, whose log nobody lags behind."""
    tool = f"{TOOLS}MetadataQuorumCommand"
    text = bench.tool(tool, "describe", "--status").text
    fields = dict(re.findall(r"^(\w+):\s+(.*)$", text, re.MULTILINE))
    if int(fields["LeaderEpoch"]) < 1 or int(fields["HighWatermark"]) < 1:
        raise Mismatch(f"status {fields}")
    same("status", "lag", "0", fields["MaxFollowerLag"])
    text = bench.tool(tool, "describe", "--replication").text
    same("replication", "leaders", 1, len(re.findall(r"\bLeader\b", text)))


def features(bench):
    """The levels are told; a level out of range is refused."""
    tool = f"{TOOLS}FeatureCommand"
    text = bench.tool(tool, "describe").text
    if not re.search(r"Feature: metadata\.version\s+SupportedMinVersion: ", text):
        raise Mismatch(f"describe printed {text.strip()[:200]!r}")
    high = bench.tool(tool, "upgrade", "--feature", "metadata.version=99", check=False)
    if high.code == 0:
        raise Mismatch("level 99 was accepted")


def acls(bench):
    """There is no authorizer."""
    refused = bench.tool(f"{TOOLS}AclCommand", "--list", check=False)
    if "SecurityDisabledException" not in refused.text + refused.error_text:
        raise Mismatch(f"list printed {(refused.text + refused.error_text).strip()[:200]!r}")


def cluster(bench):
    """The cluster has an id; a broker that is not there cannot leave."""
    tool = f"{TOOLS}ClusterTool"
    ids = re.findall(r"Cluster ID: (\S+)", bench.command_first(tool, "cluster-id").text)
    same("cluster", "ids", 1, len(ids))
    gone = bench.command_first(tool, "unregister", "--id", "77", check=False)
    if "77 is not currently registered" not in gone.text + gone.error_text:
        raise Mismatch(f"unregister printed {(gone.text + gone.error_text).strip()[:200]!r}")
