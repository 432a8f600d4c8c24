"""ConsoleConsumer with a group, ConsumerPerformance, ConsumerGroupCommand, DumpLogSegments.

Runs a broker of its own. Two groups, one of each protocol, read and commit; the tool lists and
describes them while they are alive and when they are empty, resets and deletes their offsets and
deletes one. The broker stops cleanly, and DumpLogSegments has to find in `__consumer_offsets` what
the tool said last. After the next start all of it is still so.
"""

import json
import re
import time

import dump_log
import kafka_peer
import peer_cache
import processes
from records import Mismatch, same, sample


def run(bench):
    """One broker, stopped and started once."""
    peer = bench.new_peer(properties=PROPERTIES)
    peer.start()
    try:
        own = bench.on(peer)
        topic = own.topic("t", 2)
        own.produce(topic, sample(2, "groups", COUNT, printable=True))
        for group, protocol in ((CLASSIC, "classic"), (MODERN, "consumer")):
            read_with_console(own, topic, group, protocol)
        watch(own, topic)
        measure(own, topic)
        change(own, topic)
        rows = {group: offsets(own, group) for group in (CLASSIC, MODERN)}
        same("stop", "clean", True, peer.stop())
        files = check_files(bench, peer, rows)
        peer.start()
        own = bench.on(peer)
        again = {group: offsets(own, group) for group in (CLASSIC, MODERN)}
        same("after a restart", "offsets", rows, again)
        delete(own)
        same("second stop", "clean", True, peer.stop())
    finally:
        peer.stop()
    return f"{2 * 2 * COUNT} lines read in groups, {files} files read by DumpLogSegments"


def read_with_console(bench, topic, group, protocol):
    """Everything, and it is committed when the tool ends."""
    words = ["--topic", topic, "--group", group, "--from-beginning"]
    words += ["--max-messages", str(2 * COUNT), "--timeout-ms", "30000"]
    words += ["--command-property", f"group.protocol={protocol}"]
    found = bench.tool(CONSOLE, *words).text.splitlines()
    wanted = [record.value.decode() for record in sample(2, "groups", COUNT, printable=True)]
    same(group, "lines", sorted(wanted), sorted(found))
    expected = {(topic, place): row(COUNT, COUNT, 0) for place in "01"}
    same(group, "offsets", expected, offsets(bench, group))


def watch(bench, topic):
    """list, and describe with a member in each group."""
    listed = ask(bench, "--list")[1]
    same("list", "groups", sorted([CLASSIC, MODERN]), sorted(listed.split()))
    parts = [start_console(bench, topic, CLASSIC, "classic")]
    parts += [start_console(bench, topic, MODERN, "consumer")]
    try:
        for group, protocol in ((CLASSIC, "Classic"), (MODERN, "Consumer")):
            wait_for_state(bench, group, "Stable")
            told = states(bench, group)
            same(group, "members", "1", told["#MEMBERS"])
            strategy = "range" if group == CLASSIC else "uniform"
            same(group, "strategy", strategy, told["ASSIGNMENT-STRATEGY"])
            check_members(bench, topic, group)
            wanted = {(group, protocol, "Stable")}
            same("list", f"{group} with state", wanted, listing(bench, group))
            for words in (["--reset-offsets", "--to-earliest", "--topic", topic, "--execute"],):
                code, text = ask(bench, "--group", group, *words)
                same(group, "reset with a member", True, "Stable" in text)
            code, text = ask(bench, "--group", group, "--delete")
            same(group, "delete with a member", True, "GroupNotEmptyException" in text)
    finally:
        codes = [processes.stop(part, 20) for part in parts]
    same("console consumers", "end after SIGTERM", True, -9 not in codes)
    for group in (CLASSIC, MODERN):
        wait_for_state(bench, group, "Empty")
        same(group, "members", "0", states(bench, group)["#MEMBERS"])
        code, text = ask(bench, "--describe", "--group", group, "--members")
        same(group, "no members", True, "has no active members" in text)


def check_members(bench, topic, group):
    """describe --members --verbose: one member with both partitions."""
    _, text = ask(bench, "--describe", "--group", group, "--members", "--verbose")
    rows = table(text)
    same(group, "members", 1, len(rows))
    same(group, "client id", "watched", rows[0]["CLIENT-ID"])
    same(group, "host", "/127.0.0.1", rows[0]["HOST"])
    same(group, "partitions", "2", rows[0]["#PARTITIONS"])
    name = "CURRENT-ASSIGNMENT" if "CURRENT-ASSIGNMENT" in rows[0] else "ASSIGNMENT"
    same(group, "assignment", f"{topic}:0,1", rows[0][name])


def measure(bench, topic):
    """ConsumerPerformance in a group of its own reads as many records as there are."""
    words = ["--topic", topic, "--group", PERFORMANCE, "--num-records", str(2 * COUNT)]
    words += ["--hide-header", "--timeout", "20000", "--command-property", "client.id=measure"]
    text = bench.tool("org.apache.kafka.tools.ConsumerPerformance", *words).text
    last = [cell.strip() for cell in text.strip().splitlines()[-1].split(",")]
    same("ConsumerPerformance", "records", 2 * COUNT, int(last[4]))
    same("ConsumerPerformance", "columns", 10, len(last))


def change(bench, topic):
    """reset-offsets with and without --execute, delete-offsets, and what cannot be."""
    reset = ["--group", CLASSIC, "--reset-offsets", "--topic", topic]
    for words, ends in (
        (["--to-earliest"], (COUNT, COUNT)),
        (["--to-earliest", "--execute"], (0, 0)),
        (["--to-offset", "7", "--execute"], (7, 7)),
        (["--shift-by", "5", "--execute"], (12, 12)),
    ):
        code, text = ask(bench, *reset, *words)
        same(" ".join(words), f"exit code ({text[-200:]})", 0, code)
        expected = {(topic, place): row(at, COUNT) for place, at in zip("01", ends, strict=True)}
        same(" ".join(words), "offsets", expected, offsets(bench, CLASSIC))
    words = ["--group", MODERN, "--delete-offsets", "--topic", f"{topic}:1"]
    code, text = ask(bench, *words)
    same("delete-offsets", f"exit code ({text[-200:]})", 0, code)
    same("delete-offsets", "answer", True, "Request succeed" in text)
    expected = {(topic, "0"): row(COUNT, COUNT)}
    same("delete-offsets", "rest", expected, offsets(bench, MODERN))
    code, text = ask(bench, "--describe", "--group", "nobody")
    same("describe nobody", "reason", True, "Group nobody not found." in text)


def delete(bench):
    """A group is gone at once, and cannot be deleted twice."""
    code, text = ask(bench, "--delete", "--group", CLASSIC)
    same("delete", f"exit code ({text[-200:]})", 0, code)
    same("delete", "answer", True, f"('{CLASSIC}') was successful" in text)
    listed = ask(bench, "--list")[1].split()
    same("list", "groups", (False, True), (CLASSIC in listed, MODERN in listed))
    code, text = ask(bench, "--delete", "--group", CLASSIC)
    same("delete twice", "reason", True, "GroupIdNotFoundException" in text)


def check_files(bench, peer, rows):
    """The last value of every committed offset in `__consumer_offsets`; how many files."""
    directory = peer.segment_directory("__consumer_offsets", 0).parent
    places = sorted(directory.glob("__consumer_offsets-*"))
    files = [file for place in places for file in dump_log.segment_files(place)]
    files = [file for file in files if file.stat().st_size > 0]
    dump_log.dump(files, log_path=bench.log_path)  # Valid, back to back, to the last byte.
    text = dump_log.run_tool(files, ["--offsets-decoder"], 120, bench.log_path)
    newest, kinds = {}, set()
    for line in text.splitlines():
        if not line.startswith("| "):
            continue
        match = DECODED.search(line)
        if match is None:
            raise Mismatch(f"DumpLogSegments printed an offset as: {line[:300]}")
        key = json.loads(match["key"])
        value = json.loads(match["value"]) if match["value"] else None
        kinds.add(key["type"])
        if key["type"] in ("0", "1", 0, 1) and value is not None:
            name = (key["data"]["group"], key["data"]["topic"], str(key["data"]["partition"]))
            newest[name] = str(value["data"]["offset"])
        elif key["type"] in ("0", "1", 0, 1):
            newest.pop((key["data"]["group"], key["data"]["topic"], str(key["data"]["partition"])))
    found = {name: offset for name, offset in newest.items() if name[0] in rows}
    wanted = {
        (group, *place): cells[0] for group, own in rows.items() for place, cells in own.items()
    }
    same("__consumer_offsets", "committed offsets", wanted, found)
    # The classic group, and the newer one with its epochs, members and assignments.
    same("__consumer_offsets", "kinds of record", True, KINDS <= {int(kind) for kind in kinds})
    return len(files)


def start_console(bench, topic, group, protocol):
    """A member that stays."""
    command = kafka_peer.java(peer_cache.kafka_class_path(), CONSOLE)
    command += ["--bootstrap-server", bench.peer.bootstrap, "--topic", topic, "--group", group]
    command += ["--command-property", f"group.protocol={protocol}"]
    command += ["--command-property", "client.id=watched"]
    path = bench.scratch / f"{bench.name}-{group}.out"
    return processes.start(command, path, path)


def wait_for_state(bench, group, state):
    """Until describe --state says so."""
    deadline = time.monotonic() + 30
    while (found := states(bench, group)["STATE"]) != state:
        if time.monotonic() > deadline:
            same(group, "state", state, found)
        time.sleep(0.1)


def states(bench, group):
    """describe --state: its row."""
    _, text = ask(bench, "--describe", "--group", group, "--state")
    rows = table(text)
    same(group, f"rows of describe --state ({text[:200]})", 1, len(rows))
    return rows[0]


def listing(bench, group):
    """list --state and --type: (group, type, state) of one group."""
    _, text = ask(bench, "--list", "--state")
    state = {one["GROUP"]: one["STATE"] for one in table(text)}
    _, text = ask(bench, "--list", "--type")
    return {(one["GROUP"], one["TYPE"], state[one["GROUP"]]) for one in table(text)
            if one["GROUP"] == group}


def offsets(bench, group):
    """describe --offsets: current, end and lag by topic and partition."""
    _, text = ask(bench, "--describe", "--group", group, "--offsets")
    names = ("CURRENT-OFFSET", "LOG-END-OFFSET", "LAG")
    return {(one["TOPIC"], one["PARTITION"]): tuple(one[name] for name in names)
            for one in table(text)}


def row(current, end, lag=None):
    """As `offsets` gives it."""
    return str(current), str(end), str(end - current if lag is None else lag)


def table(text):
    """Rows of a table whose cells hold no spaces; but `GROUP ... COORDINATOR (ID)` has one, and its
    cells have one too."""
    lines = [line for line in text.splitlines() if line.strip()]
    starts = [index for index, line in enumerate(lines) if line.startswith("GROUP ")]
    if not starts:
        return []
    clean = [re.sub(r" \((ID|\d+)\)", "", line) for line in lines[starts[0] :]]
    return [dict(zip(clean[0].split(), line.split(), strict=False)) for line in clean[1:]]


def ask(bench, *words):
    """ConsumerGroupCommand in the resident JVM: exit code and all that it printed."""
    call = ["tool", TOOL, "--bootstrap-server", bench.peer.bootstrap, *words]
    text = bench.java_clients.call(call, 60, bench.log_path)
    with open(bench.log_path, "a", encoding="utf-8") as log:
        log.write(text)
    *printed, last = text.splitlines()
    return int(last.removeprefix("exit ")), "\n".join(printed)


TOOL = "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand"
CONSOLE = "org.apache.kafka.tools.consumer.ConsoleConsumer"
CLASSIC, MODERN, PERFORMANCE = "older", "newer", "measured"
COUNT = 50
# 2: a classic group. 3, 5, 6, 7, 8: epochs, a member, the target's, a target, what is owned.
KINDS = {1, 2, 3, 5, 6, 7, 8}
DECODED = re.compile(r" key: (?P<key>\{.*?\}\})(?: payload: (?P<value>\{.*\}))?")
PROPERTIES = {"group.initial.rebalance.delay.ms": "0"}
ASKS_FOR_A_COORDINATOR = True
