"""ProducerPerformance: a million records of 1 KiB, acks=all, idempotence at its default.

The tool draws its payloads from a generator with a fixed seed, so every record is checked: the
payloads are drawn again and compared with what a consumer reads.
"""

import re

import peer_cache
import processes
from records import Mismatch, same


def run(bench):
    """Its own summary line must count every record; then all of them are read and compared."""
    count = 100_000 if bench.quick else 1_000_000
    topic = bench.topic("t", 4)
    tool = "org.apache.kafka.tools.ProducerPerformance"
    words = ["java", "-Xms512m", "-Xmx512m", "-XX:+UseSerialGC"]
    words += ["-Dorg.slf4j.simpleLogger.defaultLogLevel=warn", "-cp", peer_cache.kafka_class_path()]
    words += [tool, "--topic", topic, "--num-records", str(count), "--record-size", "1024"]
    words += ["--throughput", "-1", "--bootstrap-server", bench.peer.bootstrap]
    words += ["--command-property", "acks=all", "linger.ms=5", "batch.size=131072"]
    finished = processes.run(words, 300, bench.log_path)
    summaries = re.findall(
        r"^(\d+) records sent, ([\d.]+) records/sec.*$", finished.text, re.MULTILINE
    )
    if not summaries:
        raise Mismatch(f"no summary: {finished.text[-300:]!r}")
    same("summary", "records sent", count, int(summaries[-1][0]))
    if "Exception" in finished.text + finished.error_text:
        raise Mismatch("a send failed; see the log")
    bench.records("verify-perf", topic, str(count), "1024", timeout_seconds=240)
    return f"{count} records compared, {float(summaries[-1][1]):.0f} records/s"
