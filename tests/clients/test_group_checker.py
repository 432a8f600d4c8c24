#!/usr/bin/env python3
"""The checker of groups must be able to fail: each rule is broken once, and found.

    python3 tests/clients/test_group_checker.py
"""

import sys
import unittest

sys.dont_write_bytecode = True

import group_checker  # noqa: E402
from records import Mismatch  # noqa: E402


def life():
    """A partition with three records: A reads two, gives up, B reads the rest."""
    return [
        {"event": "produced", "ns": 1, "p": 0, "o": 0},
        {"event": "produced", "ns": 2, "p": 0, "o": 1},
        {"event": "produced", "ns": 3, "p": 0, "o": 2},
        {"event": "assigned", "ns": 10, "member": "A", "p": [0]},
        {"event": "record", "ns": 11, "member": "A", "p": 0, "o": 0},
        {"event": "record", "ns": 12, "member": "A", "p": 0, "o": 1},
        {"event": "commit", "ns": 14, "asked": 13, "member": "A", "offsets": {"0": 2}},
        {"event": "revoked", "ns": 20, "member": "A", "p": [0]},
        {"event": "closed", "ns": 21, "member": "A"},
        {"event": "assigned", "ns": 30, "member": "B", "p": [0]},
        {"event": "record", "ns": 31, "member": "B", "p": 0, "o": 2},
        {"event": "commit", "ns": 33, "asked": 32, "member": "B", "offsets": {"0": 3}},
        {"event": "committed", "ns": 42, "asked": 41, "offsets": {"0": 3}},
        {"event": "killed", "ns": 50, "member": "B"},
    ]


def outlived(away=(12.5, 14.5), ended="lost", extra=()):
    """A's session runs out while the broker is away; B has the partition before A hears of it."""
    since, ns = away
    lines = [line for line in life() if line["ns"] not in (13, 14, 20, 21)]
    lines += [{"event": "away", "ns": ns, "since": since}]
    lines += [{"event": "record", "ns": 30.2, "member": "A", "p": 0, "o": 2}]
    return lines + [{"event": ended, "ns": 30.4, "member": "A", "p": [0]}, *extra]


def without(ns):
    """The same life with one line less."""
    return [line for line in life() if line["ns"] != ns]


def changed(at, **fields):
    """The same life with one line changed."""
    return [{**line, **fields} if line["ns"] == at else line for line in life()]


class Checker(unittest.TestCase):
    """A good life passes; each of the others is turned down for its own reason."""

    def refused(self, lines, reason):
        """The checker says no, and why."""
        with self.assertRaisesRegex(Mismatch, reason):
            group_checker.check(lines, SESSION_SECONDS)

    def test_a_good_life_passes(self):
        counts = group_checker.check(life(), SESSION_SECONDS)
        self.assertEqual((3, 2, 2), (counts["records"], counts["moves"], counts["commits"]))

    def test_reading_again_after_a_crash_is_no_fault(self):
        killed = [{"event": "killed", "ns": 20, "member": "A"}]
        again = [{"event": "record", "ns": 30.5, "member": "B", "p": 0, "o": 1}]
        lines = [line for line in life() if line["ns"] not in (20, 21)]
        group_checker.check(lines + killed + again, SESSION_SECONDS)

    def test_a_record_that_nobody_read(self):
        self.refused(without(31), r"never read, the first is \(0, 2\)")

    def test_nothing_produced(self):
        self.refused(life()[3:], "nothing was produced")

    def test_two_owners(self):
        self.refused(changed(30, ns=19), "assigned to B at 19 and was A's")

    def test_an_owner_that_was_not_killed_yet(self):
        lines = [line for line in life() if line["ns"] not in (20, 21)]
        self.refused(lines + [{"event": "killed", "ns": 30.5, "member": "A"}], "was A's")

    def test_a_session_that_was_over_before_its_owner_could_know(self):
        self.assertEqual(2, group_checker.check(outlived(), SESSION_SECONDS)["moves"])
        killed = [line for line in outlived() if line["event"] != "lost"]
        killed += [{"event": "killed", "ns": 30.4, "member": "A"}]
        group_checker.check(killed, SESSION_SECONDS)

    def test_a_session_that_was_not_over(self):
        for lines in (
            outlived(away=(12.5, 13.5)),
            outlived(away=(5, 9)),
            outlived(away=(29, 31)),
            outlived(ended="revoked"),
            [line for line in outlived() if line["event"] != "away"],
            [line for line in outlived() if line["event"] != "lost"],
            outlived(extra=[{**life()[11], "ns": 30.3, "asked": 30.3, "member": "A"}]),
        ):
            with self.assertRaisesRegex(Mismatch, "assigned to B at 30 and was A's"):
                group_checker.check(lines, SESSION_SECONDS)

    def test_a_record_after_revocation(self):
        self.refused(changed(12, ns=20.5), "which was nobody's")

    def test_a_record_of_another_ones_partition(self):
        self.refused(changed(31, member="A"), "A read partition 0 offset 2 at 31, which was B's")

    def test_leaving_without_giving_up(self):
        self.refused(without(20), "A left and kept partitions")

    def test_giving_up_what_is_not_owned(self):
        lines = life() + [{"event": "revoked", "ns": 25, "member": "B", "p": [0]}]
        self.refused(lines, "B gave up partition 0, which was not its own")

    def test_a_commit_that_goes_back(self):
        self.refused(changed(33, offsets={"0": 1}), "commit 1 at 33, after 2 had been")

    def test_an_answer_that_goes_back(self):
        self.refused(changed(42, offsets={"0": 2}), "committed 2 at 42, after 3 had been")

    def test_an_answer_without_a_committed_offset(self):
        self.refused(changed(42, offsets={}), "committed None at 42, after 3 had been")

    def test_an_answer_while_a_commit_is_on_its_way_may_be_either(self):
        for offset in (2, 3):
            early = {"event": "committed", "ns": 32.8, "asked": 32.5, "offsets": {"0": offset}}
            group_checker.check(life() + [early], SESSION_SECONDS)

    def test_a_commit_of_what_nobody_read(self):
        self.refused(changed(14, offsets={"0": 3}), "3 committed, read to")

    def test_the_end_is_not_committed(self):
        self.refused(without(42), "committed at the end")

    def test_an_unknown_line(self):
        self.refused(life() + [{"event": "hello", "ns": 1}], "unknown kind")


SESSION_SECONDS = 2e-9

if __name__ == "__main__":
    unittest.main()
