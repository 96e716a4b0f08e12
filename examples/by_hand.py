"""A run driven by hand: you are the model, and you are the tools. Each command may be given days after the one before.

$ geartrain run --app by_hand:app --store hand.db "Is the cellar warm enough?" --quiet; echo "exit code $?"
…geartrain reply r-…
exit code 3
$ geartrain reply r- --store hand.db --app by_hand:app --call 'measure {"place": "cellar"}' --quiet || true
…geartrain answer r-…
$ geartrain list --waiting --store hand.db
…answer(t1.c1)…
$ geartrain answer r- "11.5" --store hand.db --app by_hand:app --quiet || true
…geartrain reply r-…
$ geartrain reply r- "No: 11.5 degrees." --store hand.db --app by_hand:app --quiet
No: 11.5 degrees.
"""

from geartrain import Agent, tool


@tool(external=True, read_only=True)
def measure(place: str) -> float:
    """Measure the temperature at a place."""
    raise AssertionError("nobody calls this: its result is posted from outside")


app = Agent("by-hand", instructions="Answer what you are asked.", model="external", tools=[measure])
