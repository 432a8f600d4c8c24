"""BrokerApiVersionsCommand: every advertised node answers, and what clients need is there."""

import re

from records import Mismatch


def run(bench):
    """Parses the ranges of every node and checks the APIs that the other programs use."""
    text = bench.tool("org.apache.kafka.tools.BrokerApiVersionsCommand").text
    nodes = re.findall(r"^(\S+:\d+) \(id: (\d+) rack: ", text, re.MULTILINE)
    if not nodes:
        raise Mismatch("no node in the output")
    blocks = text.split("-> (")[1:]
    for (address, _), block in zip(nodes, blocks, strict=True):
        ranges = {}
        for name, low, high in re.findall(r"(\w+)\(\d+\): (\d+)(?: to (\d+))? \[usable", block):
            ranges[name] = (int(low), int(high or low))
        for name, version in NEEDED.items():
            low, high = ranges.get(name, (1, 0))
            if not low <= version <= high:
                raise Mismatch(f"{address}: {name} v{version} is not in {ranges.get(name)}")
    return f"{len(nodes)} node(s), {len(ranges)} APIs"


# The newest version that a program of this suite asks for is not needed; these are the floors.
NEEDED = {
    "Produce": 7,
    "Fetch": 11,
    "ListOffsets": 3,
    "Metadata": 6,
    "ApiVersions": 2,
    "CreateTopics": 3,
    "InitProducerId": 1,
}
