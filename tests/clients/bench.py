"""What a program of the suite works with: the broker, a scratch directory and the real clients.

Owns: command lines of the tools and where their output is kept. One `Bench` serves one program.
Must never: join a consumer group by itself, or let a tool run without a bound.
"""

import contextlib
import pathlib
import time

import kafka_peer
import peer_cache
import processes
import records

PROGRAMS = pathlib.Path(__file__).resolve().parent / "programs"


class Bench:
    """The tools, bound to a running broker. `new_peer` starts a second broker of the same kind."""

    def __init__(self, name, peer, scratch, quick, new_peer, java_clients):
        self.name = name
        self.peer = peer
        self.scratch = pathlib.Path(scratch)
        self.quick = quick
        self.new_peer = new_peer
        self.java_clients = java_clients
        self.log_path = self.scratch / f"{name}.log"

    def on(self, peer):
        """The same tools against another broker."""
        shared = (self.quick, self.new_peer, self.java_clients)
        return Bench(self.name, peer, self.scratch, *shared)

    @contextlib.contextmanager
    def own_broker(self, properties=None):
        """The same tools with a broker of their own, which may be killed, and is found again after
        a restart. What comes with it ends before it; then it has to stop cleanly."""
        peer = self.new_peer(properties, fixed_ports=True)
        peer.start()
        try:
            yield self.on(peer)
            records.same("stop", "clean", True, peer.stop())
        finally:
            peer.stop()

    def kill_broker(self):
        """`kill -9`, and a start over the same directory and ports, in the middle of transactions;
        whether that was done. It is not with Apache Kafka 4.3.1: one broker, started anew, skips
        markers of partitions that nobody leads yet ("likely deleted already", it logs), completes
        the transaction without them, and readers of that partition stand still."""
        if self.peer.name == "kafka":
            return False
        self.peer.kill()
        self.peer.start()
        return True

    def topic(self, name, partitions=3, **configs):
        """Creates a topic with Kafka's Admin client and returns its name."""
        name = f"{self.name}-{name}".replace("_", "-")
        settings = [f"{key.replace('_', '.')}={value}" for key, value in configs.items()]
        self.records("create", f"{name}:{partitions}", *settings)
        return name

    def tool(self, main_class, *arguments, input_bytes=b"", timeout_seconds=60, check=True):
        """One of Kafka's command line tools, with --bootstrap-server."""
        command = kafka_peer.java(peer_cache.kafka_class_path(), main_class)
        command += ["--bootstrap-server", self.peer.bootstrap, *arguments]
        return self._run(command, timeout_seconds, input_bytes, check)

    def table(self, main_class, *arguments, timeout_seconds=60):
        """One of Kafka's tools that print a table, in the resident JVM, which is quicker; the rows
        as dictionaries, the exit code, and everything that it printed."""
        code, printed = self.resident_tool(main_class, *arguments, timeout_seconds=timeout_seconds)
        lines = [[cell.strip() for cell in line.split("\t")] for line in printed if "\t" in line]
        rows = [dict(zip(lines[0], line, strict=True)) for line in lines[1:]]
        for row in rows:
            del row[""]  # Every line ends with a tab.
        return rows, code, "\n".join(printed)

    def resident_tool(self, main_class, *arguments, timeout_seconds=60):
        """One of Kafka's tools in the resident JVM: the exit code and the lines that it printed."""
        words = ["tool", main_class, "--bootstrap-server", self.peer.bootstrap, *arguments]
        text = self.java_clients.call(words, timeout_seconds, self.log_path)
        *printed, last = text.splitlines()
        with open(self.log_path, "a", encoding="utf-8") as log:
            log.write(text)
        return int(last.removeprefix("exit ")), printed

    def check_topic(self, topic, partitions, cleanup_policy):
        """A topic that a client has made for itself."""
        tool = "org.apache.kafka.tools.TopicCommand"
        code, printed = self.resident_tool(tool, "--describe", "--topic", topic)
        records.same(topic, "exit of its description", 0, code)
        head = printed[0].split("\t")
        records.same(topic, "partitions", True, f"PartitionCount: {partitions}" in head)
        setting = f"cleanup.policy={cleanup_policy}"
        records.same(topic, setting, True, setting in head[-1].removeprefix("Configs: ").split(","))

    def command_first(self, main_class, word, *arguments, timeout_seconds=60, check=True):
        """A tool whose own command comes before --bootstrap-server."""
        command = kafka_peer.java(peer_cache.kafka_class_path(), main_class)
        command += [word, "--bootstrap-server", self.peer.bootstrap, *arguments]
        return self._run(command, timeout_seconds, b"", check)

    def records(self, command, *arguments, timeout_seconds=90):
        """A command of Records.java: Kafka's Java clients; its output."""
        words = [command] if command == "segments" else [command, self.peer.bootstrap]
        return self.java_clients.call(words + list(arguments), timeout_seconds, self.log_path)

    def produce(self, topic, to_send, *settings):
        """Sends with the Java producer; the records as acknowledged."""
        path = records.write_file(self.scratch / f"{topic}.jsonl", to_send)
        return records.from_text(self.records("produce", topic, path, *settings))

    def consume(self, topic, *settings):
        """Reads all of a topic with the Java consumer."""
        return records.from_text(self.records("consume", topic, *settings))

    def confluent(self, command, topic, *arguments):
        """confluent_records.py; the records that it prints."""
        python = peer_cache.python_with_confluent_kafka()
        words = [python, PROGRAMS / "confluent_records.py", command, self.peer.bootstrap, topic]
        return records.from_text(self._run(words + list(arguments), 90).text)

    def java(self, main_class, *arguments, logged=(), timeout_seconds=300):
        """A class of the suite's own in a JVM of its own; `logged` names Kafka's loggers whose
        every word is wanted on standard error. As a `Finished`."""
        class_path = peer_cache.kafka_class_path()
        class_path = f"{class_path}:{peer_cache.java_classes(class_path)}"
        command = ["java", "-Xmx512m", "-XX:+UseSerialGC", *kafka_peer.quick_start(class_path)]
        command += ["-Dorg.slf4j.simpleLogger.defaultLogLevel=warn"]
        command += [f"-Dorg.slf4j.simpleLogger.log.{name}=trace" for name in logged]
        return self._run([*command, "-cp", class_path, main_class, *arguments], timeout_seconds)

    def start_java(self, main_class, arguments, output, levels, class_path=None):
        """A long-running class, of Kafka or of the suite's own, with `arguments`;
        `levels` by logger. What it prints goes to `output`."""
        if class_path is None:
            class_path = peer_cache.kafka_class_path()
            class_path = f"{class_path}:{peer_cache.java_classes(class_path)}"
        command = kafka_peer.java(class_path, main_class, heap="256m")
        place = command.index("-cp")
        levels = [f"-Dorg.slf4j.simpleLogger.log.{name}={level}" for name, level in levels.items()]
        command[place:place] = [*levels, "-Dorg.slf4j.simpleLogger.showDateTime=true"]
        return processes.start([*command, *arguments], output, output)

    def confluent_transactions(self, *arguments):
        """confluent_transactions.py; as a `Finished`."""
        python = peer_cache.python_with_confluent_kafka()
        words = [python, PROGRAMS / "confluent_transactions.py", self.peer.bootstrap, *arguments]
        return self._run(words, 300)

    def kafkajs_transactions(self, *arguments):
        """kafkajs_transactions.js; as a `Finished`."""
        return self._node("kafkajs_transactions.js", 300, *arguments)

    def franz(self, *arguments):
        """franz_transactions.go; as a `Finished`."""
        program = peer_cache.franz_program(PROGRAMS / "franz_transactions.go")
        return self._run([program, self.peer.bootstrap, *arguments], 300)

    def kcat(self, *arguments, input_bytes=b""):
        """kcat against the broker."""
        return self._run(
            [peer_cache.kcat(), "-b", self.peer.bootstrap, *arguments], 60, input_bytes
        )

    def kafkajs(self, *arguments):
        """kafkajs_produce.js; its standard output."""
        return self._node("kafkajs_produce.js", 60, *arguments).text

    def _node(self, program, timeout_seconds, *arguments):
        node, home = peer_cache.node_with_kafkajs()
        words = [node, PROGRAMS / program, self.peer.bootstrap, *arguments]
        environment = {"NODE_PATH": str(home / "node_modules"), "PATH": "/usr/bin:/bin"}
        environment["KAFKAJS_NO_PARTITIONER_WARNING"] = "1"
        return self._run(words, timeout_seconds, env=environment)

    def _run(self, command, timeout_seconds, input_bytes=b"", check=True, env=None):
        return processes.run(command, timeout_seconds, self.log_path, input_bytes, check, env)


def now_window(started_milliseconds):
    """The timestamps that a client's clock may have given since `started_milliseconds`."""
    return (started_milliseconds - 1000, milliseconds() + 1000)


def milliseconds():
    """Wall clock in milliseconds."""
    return int(time.time() * 1000)
