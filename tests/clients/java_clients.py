"""One JVM with Kafka's Java clients that serves the whole run (Records.java, command `serve`).

Owns: its start, a bound on every call, and its end by its own pid.
Must never: answer a call with the output of another; a call that fails or is late raises.
"""

import os
import select
import subprocess
import time

import kafka_peer
import peer_cache
import processes


class JavaClients:
    """Starts the JVM at the first call, and again after one that was too late."""

    def __init__(self, scratch):
        self.scratch = scratch
        self.child = None

    def call(self, words, timeout_seconds, log_path):
        """Runs one command; the text that it wrote."""
        if self.child is None:
            self._start()
        words = [str(word) for word in words]
        output = self.scratch / "java-clients.out"
        started = time.monotonic()
        self.child.stdin.write("\t".join([str(output), *words]).encode() + b"\n")
        self.child.stdin.flush()
        answer = self._answer(started + timeout_seconds)
        seconds = time.monotonic() - started
        with open(log_path, "a", encoding="utf-8") as log:
            log.write(f"$ Records {' '.join(words)[:400]}\n# {answer} after {seconds:.1f} s\n")
        if answer != "ok":
            raise processes.ChildFailed(f"Records {words[0]} {answer}")
        return output.read_text(encoding="utf-8")

    def stop(self):
        """Ends the JVM."""
        if self.child is not None:
            self.child.kill()
            self.child.wait()
            self.child = None

    def _start(self):
        class_path = peer_cache.kafka_class_path()
        classes = peer_cache.java_classes(class_path)
        command = ["java", "-Xmx1g", "-XX:+UseSerialGC"]
        # Not to standard error, which belongs to the tool that runs: TransactionsCommand leaves
        # its client open, and that one's warnings about a stopped broker would be in the answer.
        command += ["-Dorg.slf4j.simpleLogger.defaultLogLevel=warn"]
        command += [f"-Dorg.slf4j.simpleLogger.logFile={self.scratch / 'java-clients-slf4j.log'}"]
        command += kafka_peer.quick_start(class_path)
        command += ["-cp", f"{class_path}:{classes}", "Records", "serve"]
        with open(self.scratch / "java-clients.log", "ab") as log:
            self.child = subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                preexec_fn=processes.end_with_parent,
            )

    def _answer(self, deadline):
        line = b""
        while not line.endswith(b"\n"):
            rest = deadline - time.monotonic()
            ready, _, _ = select.select([self.child.stdout], [], [], max(rest, 0))
            if not ready:
                self.stop()
                return "was killed: out of time"
            data = os.read(self.child.stdout.fileno(), 4096)
            if not data:
                self.stop()
                return "ended without an answer"
            line += data
        return line.decode("utf-8", "replace").strip()
