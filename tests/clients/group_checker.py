"""What has to hold in the life of a consumer group, told from the lines of all who took part.

Owns: the rules. A line is a JSON object with an `event` and `ns` of CLOCK_MONOTONIC, which all
processes of a machine share: produced (p, o); of a member assigned, revoked, lost (p: a list),
record (p, o), commit (asked, offsets: by partition), closed; of one outside the group
committed (asked, offsets); of the one who kills: killed (member).
Proves: every record that was acknowledged was read by the group; only its owner read a partition,
and no partition had two owners at one time (ownership ends with `revoked`, `lost` or `killed`);
committed offsets never go back, and nothing is committed that nobody has read.
Must never: take a count for a proof, or pass over a line that it does not know.
"""

from records import Mismatch


def check(lines, ends_everywhere=True):
    """Raises `Mismatch` at the first rule that is broken; counts for the report. With
    `ends_everywhere` the last committed offsets have to be the ends of the partitions."""
    lines = sorted(lines, key=lambda line: line["ns"])
    unknown = {line["event"] for line in lines} - KNOWN
    if unknown:
        raise Mismatch(f"lines of an unknown kind: {sorted(unknown)}")
    produced = check_everything_read(lines)
    moves = check_one_owner(lines)
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


def check_one_owner(lines):
    """No partition with two owners, no record read by another; how often one was assigned."""
    owners, moves = {}, 0
    for line, member in ((line, line.get("member")) for line in lines):
        if line["event"] == "assigned":
            for place in line["p"]:
                if place in owners:
                    raise Mismatch(
                        f"partition {place} was assigned to {member} at {line['ns']} and was "
                        f"{owners[place]}'s"
                    )
                owners[place] = member
                moves += 1
        elif line["event"] in ("revoked", "lost"):
            for place in line["p"]:
                if owners.pop(place, None) != member:
                    raise Mismatch(f"{member} gave up partition {place}, which was not its own")
        elif line["event"] in ("killed", "closed"):
            left = [place for place, owner in owners.items() if owner == member]
            if left and line["event"] == "closed":
                raise Mismatch(f"{member} left and kept partitions {left}")
            for place in left:
                del owners[place]
        elif line["event"] == "record" and owners.get(line["p"]) != member:
            raise Mismatch(
                f"{member} read partition {line['p']} offset {line['o']} at {line['ns']}, which "
                f"was {owners.get(line['p'], 'nobody')}'s"
            )
    if not moves:
        raise Mismatch("nothing was ever assigned")
    return moves


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
KNOWN |= {"started", "committed", "killed", "closed", "error"}
