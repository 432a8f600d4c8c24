"""Workers of Kafka Connect in distributed mode, and their REST interface.

Owns: the settings of one worker, its start and its two ends; a request to it, and how it is told
that a worker is not ready yet; where connectors and tasks run.
Must never: listen on anything but 127.0.0.1, or wait without a bound.
"""

import json
import re
import time
import urllib.error
import urllib.request

import processes
from records import Mismatch


class Worker:
    """One process of a Connect cluster; `start` and `kill` or `stop` may alternate."""

    def __init__(self, bench, name, settings):
        self.bench = bench
        self.name = f"{bench.name}-{name}"
        self.port = processes.free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self.output = bench.scratch / f"{self.name}.log"
        self.config = bench.scratch / f"{self.name}.properties"
        values = {"bootstrap.servers": bench.peer.bootstrap, "listeners": self.url, **settings}
        self.config.write_text("".join(f"{key}={value}\n" for key, value in values.items()))
        self.child = None

    def start(self):
        """Starts the JVM; it takes seconds until it answers."""
        main_class = "org.apache.kafka.connect.cli.ConnectDistributed"
        self.child = self.bench.start_java(main_class, [self.config], self.output, LEVELS)

    def kill(self):
        """SIGKILL."""
        self.child.kill()
        self.child.wait()

    def stop(self):
        """SIGTERM: it leaves the group, and a JVM that ran its shutdown hooks exits with 143."""
        code = processes.stop(self.child, STOP_SECONDS)
        if code != 143:
            raise Mismatch(f"{self.name} ended with {code}")

    def ask(self, method, path, body=None, wanted=(200, 201, 202, 204)):
        """One request, again and again while the cluster says that it is busy; the JSON answer."""
        deadline = time.monotonic() + READY_SECONDS
        while True:
            code, text = self._request(method, path, body)
            if code in wanted:
                return json.loads(text) if text else None
            if code not in BUSY or time.monotonic() > deadline:
                raise Mismatch(f"{self.name}: {method} {path} answered {code}: {text[:300]}")
            if self.child.poll() is not None:
                raise Mismatch(f"{self.name} ended with {self.child.returncode}")
            time.sleep(0.1)

    def _request(self, method, path, body):
        data = None if body is None else json.dumps(body).encode()
        headers = {"Content-Type": "application/json"}
        request = urllib.request.Request(self.url + path, data, headers, method=method)
        try:
            with urllib.request.urlopen(request, timeout=REQUEST_SECONDS) as answer:
                return answer.status, answer.read().decode("utf-8")
        except urllib.error.HTTPError as error:
            return error.code, error.read().decode("utf-8", "replace")
        except OSError as error:  # Nobody listens, or nobody answers.
            return None, str(error)


def overtaken(workers, transactional_id, last_topic):
    """Commits of this id that did not wait for the batch which ends their transaction, the one to
    `last_topic`, by producer id and epoch: the client's own EndTxn can overtake records (told in
    Transactions.java), and then there is no transaction, or it is not whole."""
    fields = rf"transactionalId='{transactional_id}', producerId=(\d+), producerEpoch=(\d+)"
    commit = re.compile(
        rf"Sending transactional request EndTxnRequestData\({fields}, committed=true"
    )
    batch = re.compile(rf"Assigned producerId (\d+) and producerEpoch (\d+) .* {last_topic}-\d+$")
    found = set()
    for worker in workers:
        whole = set()
        for line in worker.output.read_text(encoding="utf-8", errors="replace").splitlines():
            if sent := batch.search(line):
                whole.add(sent.groups())
            elif (ended := commit.search(line)) and ended.groups() not in whole:
                found.add(ended.groups())
    return found


def is_shared(statuses, workers):
    """Whether all connectors and the task of each run, and each worker has its share of both."""
    connectors = [one["connector"] for one in statuses.values()]
    tasks = [task for one in statuses.values() for task in one["tasks"]]
    running = [part["state"] for part in connectors + tasks] == ["RUNNING"] * 2 * len(statuses)
    share, rest = divmod(len(statuses), len(workers))
    shares = [share] * (len(workers) - rest) + [share + 1] * rest
    return running and spread(connectors, workers) == spread(tasks, workers) == shares


def spread(parts, workers):
    """How many of the parts each worker has, the fewest first."""
    places = [part["worker_id"] for part in parts]
    return sorted(places.count(f"127.0.0.1:{worker.port}") for worker in workers)


LEVELS = {
    "org.apache.kafka.connect.runtime.distributed": "info",
    # A line for every batch and for every EndTxn.
    "org.apache.kafka.clients.producer.internals.RecordAccumulator": "debug",
    "org.apache.kafka.clients.producer.internals.Sender": "debug",
}
# No such path yet, a rebalance, an answer that another worker owes, no listener yet.
BUSY = (404, 409, 500, 503, None)
READY_SECONDS = 60
REQUEST_SECONDS = 20
STOP_SECONDS = 30
