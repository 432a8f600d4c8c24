"""What has to hold in the life of a consumer group, told from the lines of all who took part.

Owns: the rules. A line is a JSON object with an `event` and `ns` of CLOCK_MONOTONIC, which all
processes of a machine share: produced (p, o); of a member assigned, revoked, lost (p: a list),
record (p, o), commit (asked, offsets: by partition), closed; of one outside the group
committed (asked, offsets); of the one who kills: killed (member), and away (since), when the broker
was.
Proves: every record that was acknowledged was read by the group; only its owner read a partition,
and no partition had two owners at one time (ownership ends with `revoked`, `lost` or `killed`);
committed offsets never go back, and nothing is committed that nobody has read.
What a session is too short for: an owner whose session ran out while the broker was away does not
know of its successor before it asks. Until it says `lost` it may go on to read, and not commit.
Must never: take a count for a proof, or pass over a line that it does not know.
"""

from records import Mismatch


def check(lines, session_seconds, ends_everywhere=True):
    """Raises `Mismatch` at the first rule that is broken; counts for the report. With
    `ends_everywhere` the last committed offsets have to be the ends of the partitions."""
    lines = sorted(lines, key=lambda line: line["ns"])
    unknown = {line["event"] for line in lines} - KNOWN
    if unknown:
        raise Mismatch(f"lines of an unknown kind: {sorted(unknown)}")
    produced = check_everything_read(lines)
    moves = check_one_owner(lines, session_seconds)
    commits = check_commits(lines, produced, ends_everywhere)
    counts = {"records": sum(len(offsets) for offsets in produced.values())}
    counts.update({"moves": moves, "commits": commits})
    for event in ("record", "lost", "killed", "closed", "commit_failed"):
        counts[event] = sum(line["event"] == event for line in lines)
    return counts


def unread(lines):
    """(partition, offset) of what was acknowledged and nobody has read."""
    produced = {(line["p"], line["o"]) for line in lines if line["event"] == "produced"}
    return produced - {(line["p"], line["o"]) for line in lines if line["event"] == "record"}


def check_everything_read(lines):
    """At least once; by partition the offsets that were produced."""
    missing = sorted(unread(lines))
    if missing:
        raise Mismatch(f"{len(missing)} records were never read, the first is {missing[0]}")
    produced = {}
    for line in lines:
        if line["event"] == "produced":
            produced.setdefault(line["p"], set()).add(line["o"])
    if not produced:
        raise Mismatch("nothing was produced")
    return produced


def check_one_owner(lines, session_seconds):
    """No partition with two owners, no record read by another; how often one was assigned."""
    owners, moves, outlived = {}, 0, set()
    for line, member in ((line, line.get("member")) for line in lines):
        if line["event"] == "assigned":
            for place in line["p"]:
                if place in owners:
                    if not session_was_over(lines, session_seconds, owners[place], place, line):
                        raise Mismatch(
                            f"partition {place} was assigned to {member} at {line['ns']} and was "
                            f"{owners[place]}'s"
                        )
                    outlived.add((owners[place], place))
                owners[place] = member
                moves += 1
        elif line["event"] in ("revoked", "lost"):
            for place in line["p"]:
                if (member, place) in outlived:
                    outlived.remove((member, place))
                elif owners.pop(place, None) != member:
                    raise Mismatch(f"{member} gave up partition {place}, which was not its own")
        elif line["event"] in ("killed", "closed"):
            left = [place for place, owner in owners.items() if owner == member]
            if left and line["event"] == "closed":
                raise Mismatch(f"{member} left and kept partitions {left}")
            for place in left:
                del owners[place]
        elif line["event"] == "record" and owners.get(line["p"]) != member:
            if (member, line["p"]) not in outlived:
                raise Mismatch(
                    f"{member} read partition {line['p']} offset {line['o']} at {line['ns']}, "
                    f"which was {owners.get(line['p'], 'nobody')}'s"
                )
    if not moves:
        raise Mismatch("nothing was ever assigned")
    return moves


def session_was_over(lines, session_seconds, owner, place, taken):
    """Whether the owner's session ran out while the broker was away, and all that it does after
    somebody else has got its partition is to read until it hears of it."""
    before = [line for line in lines if line["ns"] <= taken["ns"]]
    own = [line for line in before if line.get("member") == owner and line["event"] == "assigned"]
    since = max(line["ns"] for line in own if place in line["p"])
    long_enough = session_seconds * 1e9
    if not any(
        line["event"] == "away" and line["since"] > since
        and line["ns"] - line["since"] >= long_enough
        for line in before
    ):
        return False
    for line in lines[len(before) :]:
        if line.get("member") != owner:
            continue
        if line["event"] == "commit" and place in offsets_of(line):
            return False
        if line["event"] in ("assigned", "revoked", "lost") and place in line["p"]:
            return line["event"] == "lost"
        if line["event"] in ("killed", "closed"):
            return line["event"] == "killed"
    return False


def check_commits(lines, produced, ends_everywhere):
    """A commit or an answer that begins after another has ended is not below it; how many."""
    facts = [line for line in lines if line["event"] in ("commit", "committed")]
    ended = [(line["ns"], offsets_of(line)) for line in facts]
    read_to, read_lines = {}, iter([line for line in lines if line["event"] == "record"])
    pending = next(read_lines, None)
    for line in facts:
        while pending is not None and pending["ns"] <= line["ns"]:
            place = pending["p"]
            read_to[place] = max(read_to.get(place, 0), pending["o"] + 1)
            pending = next(read_lines, None)
        for place, offset in offsets_of(line).items():
            if offset > read_to.get(place, 0):
                raise Mismatch(f"partition {place}: {offset} committed, read to {read_to}")
    highest, position = {}, 0
    for line in sorted(facts, key=lambda line: line["asked"]):
        while position < len(ended) and ended[position][0] < line["asked"]:
            for place, offset in ended[position][1].items():
                highest[place] = max(highest.get(place, 0), offset)
            position += 1
        offsets = offsets_of(line)
        # An answer names all that is committed: what it leaves out has never been.
        places = highest if line["event"] == "committed" else offsets
        for place in places:
            if offsets.get(place, 0) < highest.get(place, 0):
                raise Mismatch(
                    f"partition {place}: {line['event']} {offsets.get(place)} at {line['ns']}, "
                    f"after {highest[place]} had been committed"
                )
    answers = [offsets_of(line) for line in facts if line["event"] == "committed"]
    if ends_everywhere:
        ends = {place: max(offsets) + 1 for place, offsets in produced.items()}
        if not answers or answers[-1] != ends:
            raise Mismatch(f"committed at the end {answers[-1:]}, the ends are {ends}")
    return len(facts) - len(answers)


def offsets_of(line):
    """JSON has no numbers as keys."""
    return {int(place): offset for place, offset in line["offsets"].items()}


KNOWN = {"produced", "assigned", "revoked", "lost", "record", "commit", "commit_failed"}
KNOWN |= {"started", "committed", "killed", "closed", "error", "away"}
