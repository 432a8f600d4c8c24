"""Child processes that cannot outlive their welcome.

Owns: starting a child, bounding it in time, stopping it by its own pid, keeping what it printed.
Must never: signal a process by name, or leave a child behind when the parent dies (the kernel is
asked to end the child with it).
"""

import ctypes
import os
import random
import signal
import socket
import subprocess
import time


class ChildFailed(Exception):
    """A child ended with another exit code than 0, or did not end in time."""


class Finished:
    """What a child printed and how it ended."""

    def __init__(self, argv, code, stdout, stderr, seconds):
        self.argv = argv
        self.code = code
        self.stdout = stdout
        self.stderr = stderr
        self.seconds = seconds

    @property
    def text(self):
        """Standard output as text."""
        return self.stdout.decode("utf-8", "replace")

    @property
    def error_text(self):
        """Standard error as text."""
        return self.stderr.decode("utf-8", "replace")


def run(argv, timeout_seconds, log_path=None, input_bytes=b"", check=True, env=None, cwd=None):
    """Runs `argv` to its end and returns `Finished`; raises `ChildFailed` when it exits with
    another code than 0 (unless `check` is off) or is still running after `timeout_seconds`."""
    argv = [str(word) for word in argv]
    started = time.monotonic()
    child = subprocess.Popen(
        argv,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=env,
        cwd=cwd,
        preexec_fn=end_with_parent,
    )
    late = False
    try:
        stdout, stderr = child.communicate(input_bytes, timeout=timeout_seconds)
    except subprocess.TimeoutExpired:
        late = True
        # A JVM answers SIGQUIT with a dump of its threads, which tells what it waited for.
        if os.path.basename(argv[0]) == "java":
            child.send_signal(signal.SIGQUIT)
            time.sleep(0.5)
        child.kill()
        stdout, stderr = child.communicate()
    except BaseException:
        child.kill()
        child.wait()
        raise
    finished = Finished(argv, child.returncode, stdout, stderr, time.monotonic() - started)
    if log_path is not None:
        append_log(log_path, finished, late)
    if late:
        raise ChildFailed(f"{label(argv)} was still running after {timeout_seconds} s")
    if check and finished.code != 0:
        tail = (finished.error_text.strip() or finished.text.strip()).splitlines()[-6:]
        raise ChildFailed(f"{label(argv)} exited with {finished.code}: " + " | ".join(tail))
    return finished


def start(argv, stdout_path, stderr_path, env=None):
    """Starts a long-running child with its output in files."""
    with open(stdout_path, "ab") as stdout, open(stderr_path, "ab") as stderr:
        return subprocess.Popen(
            [str(word) for word in argv],
            stdin=subprocess.DEVNULL,
            stdout=stdout,
            stderr=stderr,
            env=env,
            preexec_fn=end_with_parent,
        )


def stop(child, timeout_seconds):
    """SIGTERM to this child, then SIGKILL when it has not ended in time. Returns its exit code;
    -9 says that it had to be killed."""
    if child.poll() is None:
        child.send_signal(signal.SIGTERM)
        try:
            child.wait(timeout=timeout_seconds)
        except subprocess.TimeoutExpired:
            child.kill()
            child.wait()
    return child.returncode


def free_port():
    """A loopback port that nobody listens on at this moment; taken from below the range that the
    kernel gives to outgoing connections, so that none of those can take it before its user does."""
    while True:
        port = random.randrange(*SERVER_PORTS)
        with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
            try:
                probe.bind(("127.0.0.1", port))
                return port
            except OSError:
                continue


def append_log(path, finished, late=False):
    """Writes the command line and everything that the child printed."""
    with open(path, "ab") as log:
        end = "killed: out of time" if late else f"exit {finished.code}"
        words = [word if len(word) < 400 else word[:400] + "..." for word in finished.argv]
        log.write(f"$ {' '.join(words)}\n# {end} after {finished.seconds:.1f} s\n".encode())
        for name, data in (("stdout", finished.stdout), ("stderr", finished.stderr)):
            if data:
                log.write(f"--- {name} ({len(data)} bytes)\n".encode())
                log.write(data[:LOG_LIMIT_BYTES])
                log.write(b"\n" if len(data) <= LOG_LIMIT_BYTES else b"\n... cut\n")


def label(argv):
    """A short name of a command line: the main class for a JVM, else the program."""
    if os.path.basename(argv[0]) == "java":
        names = [word for word in argv[1:] if not word.startswith("-") and ":" not in word]
        return next((word for word in names if not word.endswith("*")), "java").split(".")[-1]
    return os.path.basename(argv[0])


def end_with_parent():
    """Runs in the child before exec: SIGKILL when the starting thread dies (PR_SET_PDEATHSIG)."""
    LIBC.prctl(1, signal.SIGKILL, 0, 0, 0)


LIBC = ctypes.CDLL(None)
LOG_LIMIT_BYTES = 256 * 1024
SERVER_PORTS = (20_000, 32_000)
