"""What the Python programs with members of consumer groups share: lines, and the end by SIGTERM.

Owns: the lines that group_checker.py reads, each written at once, so that a process that is killed
has printed everything that it did but its last step; and what a member has read and not committed.
Must never: know a client library. Whoever calls it must never print `revoked` before the work on
these partitions is over, or `commit` before the broker has answered.
"""

import json
import os
import signal
import time

STOP = []


def listen():
    """Lets SIGTERM end the loop of the caller, and says that it may be sent."""
    signal.signal(signal.SIGTERM, lambda *_: STOP.append(True))
    say("started")


def say(event, **fields):
    """One line, in one write."""
    fields = {"event": event, "ns": time.monotonic_ns(), **fields}
    os.write(1, (json.dumps(fields, separators=(",", ":")) + "\n").encode())


def arguments(words):
    """BOOTSTRAP TOPIC NAME and settings by name."""
    bootstrap, topic, name, *settings = words
    return bootstrap, topic, name, dict(setting.split("=", 1) for setting in settings)


class Life:
    """What one member says, and what it has read but not committed."""

    def __init__(self, member):
        self.member = member
        self.next = {}  # By partition: the offset to commit, when it is not committed yet.
        self.committed_at = time.monotonic()

    def assigned(self, places):
        """Before the first record: whoever reads the line counts from then on."""
        say("assigned", member=self.member, p=sorted(places))

    def record(self, place, offset):
        """One record of an own partition."""
        say("record", member=self.member, p=place, o=offset)
        self.next[place] = offset + 1

    def revoked(self, places):
        """The work on them is over, and the group has not heard of it yet."""
        self._given_up("revoked", places)

    def lost(self, places):
        """Somebody else may have them already: nothing is committed."""
        self._given_up("lost", places)

    def closed(self):
        """It has left."""
        say("closed", member=self.member)

    def error(self, code):
        """Something that the client told, to be read by people."""
        say("error", member=self.member, code=str(code))

    def due(self):
        """Whether something waits to be committed, and long enough."""
        return bool(self.next) and time.monotonic() - self.committed_at > COMMIT_SECONDS

    def committed(self, asked, offsets):
        """The broker has answered."""
        self.committed_at = time.monotonic()
        for place, offset in offsets.items():
            if self.next.get(place) == offset:
                del self.next[place]
        say("commit", member=self.member, asked=asked, offsets=offsets)

    def commit_failed(self, code):
        """It may have been committed, or not."""
        self.committed_at = time.monotonic()
        say("commit_failed", member=self.member, code=str(code))

    def _given_up(self, event, places):
        for place in places:
            self.next.pop(place, None)
        say(event, member=self.member, p=sorted(places))


COMMIT_SECONDS = 0.2
