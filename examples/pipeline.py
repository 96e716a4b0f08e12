r"""Search, summarise, check: three stages over real files, the first of them an agent with a run of its own.

$ mkdir notes && printf 'Limits\n\nA run may take twenty turns, unless it is given more.\n' > notes/limits.md
$ printf 'Ends\n\nA run ends with an answer, or with the reason why there is none.\n' > notes/ends.md
$ geartrain run --app pipeline:app --store pipeline.db --root notes "How many turns may a run take?" --quiet
1 place is cited, and it is there.
- limits.md:3: A run may take twenty turns, unless it is given more.
$ geartrain list --store pipeline.db
…FINISHED  search…FINISHED  desk…
"""

import re
from pathlib import Path

from geartrain import Agent, Pipeline, ToolContext, tool
from geartrain.tools import file_tools

# A place in a file, as the offline model cites it.
PLACE = re.compile(r"`([^`\s]+):(\d+)`")

search = Agent("search", instructions="Answer from the files, and cite them.", model="offline", tools=file_tools)


def line_of(context: ToolContext, place: tuple[str, str]) -> str:
    """Return a line of a file below the run's root, or nothing if there is none."""
    file, number = Path(context.context["root"], place[0]), int(place[1])
    lines = file.read_text("utf-8").splitlines() if file.is_file() else []
    return lines[number - 1] if number <= len(lines) else ""


@tool(read_only=True)
def summarise(context: ToolContext, answer: str) -> str:
    """Keep of an answer the places that it cites, each with its line."""
    places = dict.fromkeys(PLACE.findall(answer))
    return "\n".join(f"- {':'.join(place)}: {line_of(context, place)}" for place in places)


@tool(read_only=True)
def check(context: ToolContext, summary: str) -> str:
    """Check that every place of a summary is there, and say what it says."""
    places = re.findall(r"^- ([^:]+):(\d+): (.*)$", summary, re.MULTILINE)
    wrong = [file for file, number, said in places if line_of(context, (file, number)) != said or not said]
    verdict = (
        f"wrong in {', '.join(wrong)}" if wrong else "it is there" if len(places) == 1 else "all of them are there"
    )
    return f"{len(places)} place{'s are' if len(places) != 1 else ' is'} cited, and {verdict}.\n{summary}"


app = Agent("desk", plan=Pipeline(search, summarise, check))
