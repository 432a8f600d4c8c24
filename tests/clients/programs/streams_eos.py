"""Kafka Streams' own exactly-once test: processors and the broker are killed while it sends.

A driver sends random numbers; processors copy them, and make minima and sums, and of a repartition
topic maxima and counts, with exactly_once_v2. Three of them follow one another as in Kafka's system
test, each killed (`kill -9`) at work but the last, and the broker is killed. Kafka's verifier then
reads everything and computes it again. The test left Kafka's jars after 4.1, so that an older
Streams runs here.
"""

import re
import time

import peer_cache
import processes
import transactions as txn
from records import Mismatch, by_partition, same

from programs import consumer_group_command as groups
from programs.streams_smoke import PROGRESS_SECONDS, Part, with_parts


def run(bench):
    """With a broker of its own."""
    return with_parts(bench, disturb_and_verify)


def disturb_and_verify(bench, parts):
    """The driver, the processors, the verifier."""
    class_path = peer_cache.eos_test_class_path()

    def start(name, command):
        """One of them."""
        parts.append(Part(bench, name, command, EOS_TEST, class_path))
        return parts[-1]

    bench.records("create", *[f"{topic}:5" for topic in TOPICS])
    # The test asks for three replicas of these, but not when they exist.
    bench.records("create", *[f"{topic}:5" for topic in CHANGELOGS], "cleanup.policy=compact")
    driver = start("driver", "run")
    for number in range(PROCESSORS):
        processor = start(f"processor-{number}", "process-complex")
        processor.wait_for("processed", driver)
        if number < PROCESSORS - 1:
            processor.child.kill()
            processor.child.wait()
    bench.kill_broker()
    sent = driver.text().count("records produced")
    wait_until(lambda: driver.text().count("records produced") > sent + 1, "driver")
    same("driver", "exit", 143, processes.stop(driver.child, PROGRESS_SECONDS))
    produced = int(re.search(r"closed: (\d+) records produced", driver.text())[1])
    ends = [int(end) for end in re.findall(r"End-offset for \S+ is (\d+)", driver.text())]
    same("driver", "records in the log", produced, sum(ends))
    same("processor", "exit", 143, processes.stop(processor.child, PROGRESS_SECONDS))
    processor.wait_for("EOS-TEST-CLIENT-CLOSED")
    # One starts again, to work off what the last may have left.
    start("processor-last", "process-complex").wait_for("REBALANCING -> RUNNING")
    wait_until(lambda: is_worked_off(bench), "processor")
    processes.stop(parts[-1].child, PROGRESS_SECONDS)
    verifier = start("verifier", "verify-complex")
    verifier.wait_for("ALL-RECORDS-DELIVERED")
    return f"{produced} records delivered"


def is_worked_off(bench):
    """Whether the group has committed what follows the last record of all that it reads."""
    found = groups.offsets(bench, "EosTest")
    for topic in ("data", "repartition"):
        for place, some in by_partition(bench.consume(topic, txn.COMMITTED)).items():
            current = found.get((topic, str(place)), ("-",))[0]
            if not current.isdigit() or int(current) <= some[-1].offset:
                return False
    return True


def wait_until(is_so, who):
    """With a bound."""
    deadline = time.monotonic() + PROGRESS_SECONDS
    while not is_so():
        if time.monotonic() > deadline:
            raise Mismatch(f"the {who} does not go on")
        time.sleep(0.1)


EOS_TEST = "org.apache.kafka.streams.tests.StreamsEosTest"
PROCESSORS = 3
TOPICS = ["data", "echo", "min", "sum", "repartition", "max", "cnt"]
STORE = "EosTest-KSTREAM-AGGREGATE-STATE-STORE"
CHANGELOGS = [f"{STORE}-{number:010}-changelog" for number in (3, 7, 14, 18)]
ASKS_FOR_A_COORDINATOR = True
