"""Ringlog itself as the broker under test, with the same interface as `KafkaPeer`.

Owns: start (waits for the `ready` line), stop (SIGTERM, exit 0 expected) and the paths of its
segments. Must never: listen on anything but 127.0.0.1, or read a log instead of the ready line.
"""

import pathlib
import re
import time

import processes


class RinglogPeer:
    """One broker over one directory; `start` and `stop` may alternate."""

    name = "ringlog"

    def __init__(self, directory, binary, shards=None, advertise=None, port=0, properties=None):
        self.directory = pathlib.Path(directory)
        self.data_directory = self.directory / "data"
        self.command = [str(binary), "serve", "--data-dir", str(self.data_directory)]
        self.command += ["--listen", f"127.0.0.1:{port}"]
        # May be changed between two starts.
        self.shards = shards
        if advertise is not None:
            self.command += ["--advertise", advertise]
        properties = dict(properties or {})
        if port:
            # Not the usual ones: another broker of the machine may take those while this one is
            # away, and clients would then find themselves in its cluster.
            properties["extra_port_first"] = str(processes.free_port())
        for key, value in properties.items():
            self.command += ["--set", f"{key}={value}"]
        self.child = None
        self.bootstrap = None

    def start(self, timeout_seconds=60):
        """Starts the binary and waits for `ready HOST:PORT[, HOST:PORT...]` on its output."""
        self.directory.mkdir(parents=True, exist_ok=True)
        output = self.directory / "stdout.log"
        start = output.stat().st_size if output.exists() else 0
        shards = [] if self.shards is None else ["--shards", str(self.shards)]
        command = self.command + shards
        self.child = processes.start(command, output, self.directory / "stderr.log")
        deadline = time.monotonic() + timeout_seconds
        while time.monotonic() < deadline:
            ready = READY.search(output.read_bytes()[start:])
            if ready:
                self.bootstrap = ",".join(ADDRESS.findall(ready.group(1).decode()))
                return
            if self.child.poll() is not None:
                raise processes.ChildFailed(f"ringlog exited with {self.child.returncode}")
            time.sleep(0.02)
        self.stop()
        raise processes.ChildFailed(f"no ready line within {timeout_seconds} s")

    def stop(self, timeout_seconds=60):
        """Stops the broker cleanly; True when it answered SIGTERM with exit code 0."""
        if self.child is None:
            return True
        code = processes.stop(self.child, timeout_seconds)
        self.child = None
        return code == 0

    def kill(self):
        """SIGKILL: what is not on the medium is lost."""
        self.child.kill()
        self.child.wait()
        self.child = None

    def segment_directory(self, topic, partition):
        """Where the segments of a partition are."""
        return self.data_directory / "topics" / f"{topic}-{partition}"

    def logs(self):
        """Files worth keeping after a failure."""
        return [self.directory / "stdout.log", self.directory / "stderr.log"]


READY = re.compile(rb"^ready ([^\n]+)\n", re.MULTILINE)
ADDRESS = re.compile(r"127\.0\.0\.1:\d+")
