r"""A fan-out over a hundred files: an agent for each, at most eight at once, gathered in the order of the files.

$ mkdir words && for n in $(seq 100); do yes word | head -$n > words/$n.txt; done
$ geartrain run --app fan_out:app --store fan_out.db --root words "all of them" --quiet
100 files, 5050 words; the most are in 100.txt
"""

import re
from pathlib import Path

from geartrain import Agent, FanOut, Pipeline, ToolContext, tool


@tool(read_only=True)
def files(context: ToolContext) -> str:
    """List the files below the run's root, one a line."""
    return "\n".join(sorted(path.name for path in Path(context.context["root"]).glob("*.txt")))


@tool(read_only=True)
def count_words(context: ToolContext, path: str) -> int:
    """Count the words of a file."""
    return len(Path(context.context["root"], path).read_text("utf-8").split())


@tool(read_only=True)
def total(counts: str) -> str:
    """Add up what the agents have said, a line each."""
    found = [(int(number), file) for file, number in re.findall(r"`([\w.]+)` says: (\d+)", counts)]
    return f"{len(found)} files, {sum(number for number, _ in found)} words; the most are in {max(found)[1]}"


reader = Agent("reader", instructions="Answer the question.", model="offline", tools=[count_words])
# The inputs are what the stage before has brought: so this is an agent of its own, with a plan of its own.
each = Agent(
    "each", plan=FanOut(reader, lambda p: [f"How many words has {file}?" for file in p.input.split()], at_once=8)
)

app = Agent("count", plan=Pipeline(files, each, total))
