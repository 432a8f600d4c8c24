#!/usr/bin/env python3
"""A real Apache Kafka broker on loopback, to compare with.

Owns: format, start, readiness and stop of one broker (combined controller and broker, KRaft).
As a command it is a child process for other tests:

    kafka_peer.py start [--dir D] [--port P] [--property key=value]... [--until-stdin-closes]

prints `ready 127.0.0.1:PORT` once the broker answers, runs until SIGTERM (or until its standard
input closes, which also covers a parent that was killed) and stops the broker cleanly. With the
same --dir it starts again over the same data. `kafka_peer.py class-path` prints the class path of
Kafka's jars.
Must never: listen on anything but 127.0.0.1, or leave a JVM behind.
"""

import argparse
import pathlib
import shutil
import signal
import socket
import struct
import sys
import tempfile
import threading
import time

sys.dont_write_bytecode = True

import peer_cache  # noqa: E402
import processes  # noqa: E402


class KafkaPeer:
    """One broker over one directory; `start` and `stop` may alternate."""

    name = "kafka"

    def __init__(self, directory, port=0, properties=None, heap="1g"):
        self.directory = pathlib.Path(directory)
        self.data_directory = self.directory / "data"
        self.port = port or processes.free_port()
        self.properties = dict(properties or {})
        self.heap = heap
        self.child = None

    @property
    def bootstrap(self):
        """host:port of the broker."""
        return f"127.0.0.1:{self.port}"

    def start(self, timeout_seconds=90):
        """Formats the directory when new, starts the JVM and waits until it serves requests."""
        class_path = peer_cache.kafka_class_path()
        self.directory.mkdir(parents=True, exist_ok=True)
        config = self.directory / "server.properties"
        config.write_text(self._server_properties())
        log = self.directory / "format.log"
        if not (self.data_directory / "meta.properties").exists():
            words = java(class_path, "kafka.tools.StorageTool")
            words += ["format", "-t", CLUSTER_ID, "-c", str(config)]
            processes.run(words, timeout_seconds, log)
        level = "-Dorg.slf4j.simpleLogger.defaultLogLevel=info"
        collector = ["-XX:+UseG1GC", "-XX:MaxGCPauseMillis=20"]
        collector += ["-XX:InitiatingHeapOccupancyPercent=35"]
        command = ["java", f"-Xms{self.heap}", f"-Xmx{self.heap}", *collector, level]
        command += ["-Dorg.slf4j.simpleLogger.showDateTime=true"]
        command += ["-cp", class_path, "kafka.Kafka", str(config)]
        output = self.directory / "broker.log"
        self.child = processes.start(command, output, output)
        try:
            wait_until_ready(self.child, "127.0.0.1", self.port, timeout_seconds)
        except Exception:
            self.stop()
            raise

    def stop(self, timeout_seconds=60):
        """Stops the broker cleanly; True when it ended by itself after SIGTERM."""
        if self.child is None:
            return True
        code = processes.stop(self.child, timeout_seconds)
        self.child = None
        # A JVM that ran its shutdown hooks after SIGTERM exits with 143.
        return code in (0, 143)

    def kill(self):
        """SIGKILL: what the page cache holds stays."""
        self.child.kill()
        self.child.wait()
        self.child = None

    def segment_directory(self, topic, partition):
        """Where the segments of a partition are."""
        return self.data_directory / f"{topic}-{partition}"

    def logs(self):
        """Files worth keeping after a failure."""
        return [self.directory / "broker.log", self.directory / "server.properties"]

    def _server_properties(self):
        controller = processes.free_port()
        values = {
            "process.roles": "broker,controller",
            "node.id": "1",
            "controller.quorum.voters": f"1@127.0.0.1:{controller}",
            "listeners": f"PLAINTEXT://{self.bootstrap},CONTROLLER://127.0.0.1:{controller}",
            "advertised.listeners": f"PLAINTEXT://{self.bootstrap}",
            "controller.listener.names": "CONTROLLER",
            "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT",
            "inter.broker.listener.name": "PLAINTEXT",
            "log.dirs": str(self.data_directory),
            "num.partitions": "4",
            "default.replication.factor": "1",
            "min.insync.replicas": "1",
            "offsets.topic.replication.factor": "1",
            "offsets.topic.num.partitions": "8",
            "transaction.state.log.replication.factor": "1",
            "transaction.state.log.min.isr": "1",
            "transaction.state.log.num.partitions": "8",
            "share.coordinator.state.topic.replication.factor": "1",
            "share.coordinator.state.topic.min.isr": "1",
            "group.initial.rebalance.delay.ms": "0",
            "auto.create.topics.enable": "true",
            "num.network.threads": "2",
            "num.io.threads": "2",
            **self.properties,
        }
        return "".join(f"{key}={value}\n" for key, value in values.items())


def java(class_path, main_class, heap="512m"):
    """The start of a command line for one of Kafka's tools: quick to start, warnings only."""
    words = ["java", f"-Xmx{heap}", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC"]
    words += ["-Dorg.slf4j.simpleLogger.defaultLogLevel=warn"]
    words += quick_start(class_path)
    return words + ["-cp", class_path, main_class]


def quick_start(class_path):
    """What makes a JVM start quicker whose class path begins with Kafka's jars. An archive that
    another JVM has made is passed over, and nothing said of it where answers are read."""
    jars = class_path.split(":")[0]
    if jars != peer_cache.kafka_class_path():
        return []
    return [f"-XX:SharedArchiveFile={peer_cache.shared_classes(jars)}", "-Xlog:cds*=off"]


def wait_until_ready(child, host, port, timeout_seconds):
    """Returns once the broker names itself in Metadata; raises when it ends or is too slow."""
    deadline = time.monotonic() + timeout_seconds
    while time.monotonic() < deadline:
        if child.poll() is not None:
            raise processes.ChildFailed(f"the broker exited with {child.returncode}")
        try:
            if metadata_broker_count(host, port) > 0:
                return
        except OSError:
            pass
        time.sleep(0.1)
    raise processes.ChildFailed(f"the broker did not answer within {timeout_seconds} s")


def metadata_broker_count(host, port):
    """Metadata v1 for no topics: how many brokers the cluster has."""
    body = struct.pack(">hhihi", 3, 1, 1, -1, 0)
    with socket.create_connection((host, port), timeout=5) as connection:
        connection.sendall(struct.pack(">i", len(body)) + body)
        stream = connection.makefile("rb")
        size = stream.read(4)
        if len(size) < 4:
            raise OSError("closed before an answer")
        answer = stream.read(struct.unpack(">i", size)[0])
        return struct.unpack(">i", answer[4:8])[0]


def main():
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("class-path", help="print the class path of Kafka's jars")
    begin = commands.add_parser("start", help="run a broker until SIGTERM")
    begin.add_argument("--dir", help="its directory (default: a temporary one, removed at the end)")
    begin.add_argument("--port", type=int, default=0, help="its port (default: a free one)")
    begin.add_argument("--property", action="append", default=[], metavar="KEY=VALUE")
    begin.add_argument("--heap", default="1g")
    begin.add_argument("--until-stdin-closes", action="store_true")
    begin.add_argument("--max-seconds", type=float, default=3600, help="stop by itself after this")
    arguments = parser.parse_args()
    if arguments.command == "class-path":
        print(peer_cache.kafka_class_path())
        return 0
    return serve(arguments)


def serve(arguments):
    """Runs one broker in the foreground."""
    done = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: done.set())
    signal.signal(signal.SIGINT, lambda *_: done.set())
    directory = arguments.dir or tempfile.mkdtemp(prefix="kafka-peer-")
    properties = dict(pair.split("=", 1) for pair in arguments.property)
    peer = KafkaPeer(directory, arguments.port, properties, arguments.heap)
    clean = False
    try:
        peer.start()
        print(f"ready {peer.bootstrap}", flush=True)
        if arguments.until_stdin_closes:
            threading.Thread(target=wait_for_end_of_input, args=(done,), daemon=True).start()
        deadline = time.monotonic() + arguments.max_seconds
        while not done.wait(0.2) and peer.child.poll() is None:
            if time.monotonic() > deadline:
                print("stopping: out of time", file=sys.stderr)
                break
        clean = peer.child.poll() is None and peer.stop()
    finally:
        peer.stop()
        if arguments.dir is None:
            shutil.rmtree(directory, ignore_errors=True)
    return 0 if clean else 1


def wait_for_end_of_input(done):
    """Sets `done` when the parent closes our standard input."""
    while sys.stdin.buffer.read(4096):
        pass
    done.set()


CLUSTER_ID = "cmluZ2xvZy1wZWVyLTAwMQ"

if __name__ == "__main__":
    sys.exit(main())
