"""Kafka Streams' own smoke test, with exactly_once_v2: processors and the broker are killed.

The driver sends twenty thousand records over a minute and a half and then checks what windows,
joins, tables and suppressed results a dozen topics have to hold. As in Kafka's system test three
processors follow one another, each killed (`kill -9`) while it works; here the broker is killed
under the last one as well.
"""

import time

import processes
from records import Mismatch, same


def run(bench):
    """With a broker of its own."""
    return with_parts(bench, smoke)


def with_parts(bench, test):
    """Runs a test against a broker that it may kill; no process that it adds to the list stays."""
    with bench.own_broker(PROPERTIES) as own:
        parts = []
        try:
            return test(own, parts)
        finally:
            for part in parts:
                part.child.kill()
                part.child.wait()


def smoke(bench, parts):
    """The driver and three processors."""
    bench.records("create", *[f"{topic}:5" for topic in TOPICS])
    driver = None
    for number in range(3):
        processor = Part(bench, f"processor-{number}", "process")
        parts.append(processor)
        processor.wait_for("REBALANCING -> RUNNING")
        if driver is None:
            driver = Part(bench, "driver", "run")
            parts.append(driver)
        processor.wait_for("processed")
        same("driver", "is still sending", False, "Result Verification" in driver.text())
        if number < 2:
            processor.child.kill()
            processor.child.wait()
    bench.kill_broker()
    driver.wait_for("Result Verification", processor)
    code = driver.child.wait(PROGRESS_SECONDS)
    verdict = driver.text()
    same("driver", "exit", 0, code)
    for word in ("ALL-RECORDS-DELIVERED", "SUCCESS"):
        same("driver", f"says {word}", True, word in verdict.splitlines())
    same("processor", "exit", 143, processes.stop(processor.child, PROGRESS_SECONDS))
    processor.wait_for("SMOKE-TEST-CLIENT-CLOSED")
    counts = [line for line in verdict.splitlines() if line.startswith("record")]
    return ", ".join(counts)


SMOKE_TEST = "org.apache.kafka.streams.tests.StreamsSmokeTest"


class Part:
    """A process of the test, or of another of Kafka's Streams tests."""

    def __init__(self, bench, name, command, main_class=SMOKE_TEST, class_path=None):
        self.output = bench.scratch / f"{bench.name}-{name}.log"
        config = bench.scratch / f"{bench.name}-{name}.properties"
        state = bench.scratch / f"{bench.name}-{name}"
        values = {"bootstrap.servers": bench.peer.bootstrap, "state.dir": state, **SETTINGS}
        config.write_text("".join(f"{key}={value}\n" for key, value in values.items()))
        words = [config, command]
        self.child = bench.start_java(main_class, words, self.output, {}, class_path)

    def text(self):
        """What it has printed."""
        return self.output.read_text(errors="replace")

    def wait_for(self, word, needed=None):
        """Until it has printed that, while it and what it needs are well."""
        deadline = time.monotonic() + PROGRESS_SECONDS
        while word not in self.text():
            for part in (self, needed or self):
                if "-TEST-CLIENT-EXCEPTION" in part.text():
                    raise Mismatch(f"{part.output} tells of an exception")
                if part.child.poll() is not None and word not in self.text():
                    raise Mismatch(f"{part.output} ended with {part.child.returncode}")
            if time.monotonic() > deadline:
                raise Mismatch(f"{self.output} does not say {word!r}")
            time.sleep(0.1)


TOPICS = ["data", "fk", "echo", "min", "min-suppressed", "min-raw", "max", "sum", "sws-raw"]
TOPICS += ["sws-suppressed", "dif", "cnt", "avg", "wcnt", "tagg"]
PROGRESS_SECONDS = 240
SETTINGS = {
    "processing.guarantee": "exactly_once_v2",
    "num.stream.threads": "2",
    "commit.interval.ms": "1000",
    "acceptable.recovery.lag": str(2**63 - 1),
    "session.timeout.ms": "6000",
    # A minute otherwise, within which the broker has to be back.
    "producer.max.block.ms": str(PROGRESS_SECONDS * 1000),
}
PROPERTIES = {
    "group.initial.rebalance.delay.ms": "0",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "500",
}
ASKS_FOR_A_COORDINATOR = True
