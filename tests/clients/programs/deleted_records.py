"""DeleteRecordsCommand, and what LogDirsCommand, GetOffsetShell, a consumer and the files say then.

Runs a broker of its own that looks for old segments often. One partition loses half of its records
to the tool, one all of them; a topic of old records loses all of them to retention.
"""

import json
import random
import time

import dump_log
from records import BASE_TIMESTAMP, Mismatch, Record, compare, same

TOOLS = "org.apache.kafka.tools."
PROPERTIES = {"log.initial.task.delay.ms": "0", "log.retention.check.interval.ms": "200"}
COUNT = 2000
KEPT_FROM = 1234


def run(bench):
    """Delete, be refused, look at the sizes, read, stop, look at the files, read again."""
    peer = bench.new_peer(properties=PROPERTIES)
    peer.start()
    try:
        own = bench.on(peer)
        settings = {"segment_bytes": 1048576, "file_delete_delay_ms": 0}
        topic = own.topic("t", 2, retention_ms=-1, **settings)
        old = own.topic("old", 1, retention_ms=1000, **settings)
        compacted = own.topic("compacted", 1, cleanup_policy="compact")
        written = write(own, topic)
        own.produce(old, [Record(0, None, b"old", [], BASE_TIMESTAMP)])
        before = sizes(own, topic)
        delete(own, topic, compacted)
        wait_for("sizes", lambda: sizes(own, topic)[f"{topic}-0"] < before[f"{topic}-0"] * 3 // 4)
        wait_for("retention", lambda: starts(own, old) == {0: 1})
        same("starts", "offsets", {0: KEPT_FROM, 1: 10}, starts(own, topic))
        kept = [record for record in written if record.partition == 0][KEPT_FROM:]
        compare(kept, own.consume(topic), "what is kept")
        same("stop", "clean", True, peer.stop())
        files = check_files(own, peer, topic)
        peer.start()
        own = bench.on(peer)
        same("starts after a restart", "offsets", {0: KEPT_FROM, 1: 10}, starts(own, topic))
        compare(kept, own.consume(topic), "what is kept after a restart")
        same("second stop", "clean", True, peer.stop())
    finally:
        peer.stop()
    return f"{KEPT_FROM} of {COUNT} records deleted, {files} files left"


def write(bench, topic):
    """Several segments in one partition, a few records in the other."""
    generator = random.Random(5)
    records = [
        Record(0, b"%d" % index, generator.randbytes(2000), [], BASE_TIMESTAMP + index, index)
        for index in range(COUNT)
    ]
    records += [Record(1, None, b"few", [], BASE_TIMESTAMP, index) for index in range(10)]
    bench.produce(topic, records, "batch.size=20000")
    return records


def delete(bench, topic, compacted):
    """The tool tells the new starts, or why not."""
    asked = [(topic, 0, KEPT_FROM), (topic, 1, -1), (compacted, 0, 0)]
    text = command(bench, asked)
    for line in (f"partition: {topic}-0\tlow_watermark: {KEPT_FROM}", f"{topic}-1\tlow_watermark: 10"):
        if line not in text:
            raise Mismatch(f"{line!r} is not in {text.strip()[-400:]!r}")
    if "PolicyViolationException" not in text:
        raise Mismatch(f"a compacted topic: {text.strip()[-400:]!r}")
    text = command(bench, [(topic, 1, 11)])
    if "OffsetOutOfRangeException" not in text:
        raise Mismatch(f"beyond the end: {text.strip()[-400:]!r}")
    # Once more, and below: nothing moves.
    text = command(bench, [(topic, 0, 5)])
    if f"low_watermark: {KEPT_FROM}" not in text:
        raise Mismatch(f"below the start: {text.strip()[-400:]!r}")


def command(bench, offsets):
    """What the tool prints for these offsets."""
    rows = [
        {"topic": topic, "partition": partition, "offset": offset}
        for topic, partition, offset in offsets
    ]
    path = bench.scratch / "offsets.json"
    path.write_text(json.dumps({"partitions": rows, "version": 1}))
    tool = f"{TOOLS}DeleteRecordsCommand"
    result = bench.tool(tool, "--offset-json-file", str(path), check=False)
    return result.text + result.error_text


def sizes(bench, topic):
    """Bytes of each partition, as LogDirsCommand tells them."""
    text = bench.tool(f"{TOOLS}LogDirsCommand", "--describe", "--topic-list", topic).text
    answer = json.loads(next(line for line in text.splitlines() if line.startswith("{")))
    found = {}
    for broker in answer["brokers"]:
        for directory in broker["logDirs"]:
            for partition in directory["partitions"]:
                found[partition["partition"]] = partition["size"]
    return found


def starts(bench, topic):
    """First offsets by partition."""
    text = bench.tool(f"{TOOLS}GetOffsetShell", "--topic", topic, "--time", "-2").text
    rows = [line.rsplit(":", 2)[1:] for line in text.splitlines() if line.startswith(topic)]
    return {int(partition): int(offset) for partition, offset in rows}


def wait_for(what, is_so):
    """Asks until it is so; every question starts a JVM."""
    deadline = time.monotonic() + 90
    while not is_so():
        if time.monotonic() > deadline:
            raise Mismatch(f"{what} do not change")


def check_files(bench, peer, topic):
    """Kafka's tool reads what is left, and nothing of it lies wholly below the start."""
    files = dump_log.segment_files(peer.segment_directory(topic, 0))
    batches = dump_log.dump(files, log_path=bench.log_path)
    first = min(int(batch.fields["baseOffset"]) for batch in batches)
    bases = sorted(int(file.stem) for file in files)
    if first > KEPT_FROM or (len(bases) > 1 and bases[1] <= KEPT_FROM):
        raise Mismatch(f"segments {bases}, the log starts at {KEPT_FROM}")
    return len(files)
