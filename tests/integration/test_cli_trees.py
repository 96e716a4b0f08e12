"""Trees of runs as the command's users meet them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from test_cli import Terminal, World, server

pytestmark = pytest.mark.real_time

__all__ = ["server"]

TEAM = '''
import time
from types import SimpleNamespace
from geartrain import Agent, Ask, Allow, ScriptedModel, tool
from geartrain.models import answer, call


@tool
def note(text: str) -> str:
    """Note a text."""
    with open("noted.txt", "a") as file:
        file.write(text + "\\n")
    return "noted"


def policy(call, run):
    return Allow() if call.sub_agent else Ask("it notes something")


writer = Agent("writer", model=ScriptedModel([[call("note", text="hello")], answer("written")]), tools=[note])
reader = Agent("reader", model=ScriptedModel([answer("read")]), description="Reads.")
team = Agent(
    "team",
    model=ScriptedModel([[call("writer", input="note it"), call("reader", input="read it")], answer("all done")]),
    sub_agents=[writer, reader],
)
app = SimpleNamespace(agents=[team], policy=policy)
'''

SMALL = """
from geartrain import Agent, Budget, ScriptedModel, tool
from geartrain.models import call


@tool(read_only=True)
def look(n: int) -> str:
    return f"saw {n}"


three = ScriptedModel([[call("look", n=n)] for n in range(3)] + ["seen"])
worker = Agent("worker", model=three, tools=[look], budget=Budget(max_turns=2), on_budget="suspend")
lead = ScriptedModel([[call("worker", input="go")], "all done"])
app = Agent("lead", model=lead, sub_agents=[worker], budget=Budget(max_turns=5))
"""

BOTH = """
writer.model = ScriptedModel([[call("note", text="a"), call("note", text="b")], answer("written")])
own = ScriptedModel([[call("writer", input="note it"), call("note", text="own")], answer("all done")])
both = SimpleNamespace(agents=[Agent("team", model=own, sub_agents=[writer], tools=[note])], policy=policy)
"""


@pytest.fixture
def world(tmp_path: Path, server: object) -> World:
    made = World(tmp_path, server)  # type: ignore[arg-type]
    (made.folder / "team.py").write_text(TEAM)
    return made


def test_a_tree_is_run_asked_about_shown_and_finished_from_the_root(world: World) -> None:
    ran = world.run("run", "go", "--app", "team:app", "--agent", "team")
    assert ran.returncode == 3, ran.stderr
    assert "writer starts as run r-" in ran.stderr
    (root,) = [run for run in world.runs() if run["parent"] is None]

    shown = world.run("show", root["id"], "--tree")
    lines = shown.stdout.splitlines()
    assert [line.split()[0] for line in lines] == ["team", "t1.c1", "t1.c2", "3"]
    assert "waits for approval: t1.c1 note" in lines[1]
    assert "FINISHED" in lines[2]
    assert (
        f"geartrain approve {json.loads(world.run('show', root['id'], '--tree', '--json').stdout)['children'][0]['id']}"
        in shown.stderr
    )

    approved = world.run("approve", root["id"], "--app", "team:app")
    assert (approved.returncode, approved.stdout.strip()) == (0, "all done"), approved.stderr
    assert world.noted == ["hello"]
    watched = world.run("watch", root["id"], "--tree")
    assert watched.returncode == 0
    assert watched.stdout.count("FINISHED") == 3


def test_a_sub_agents_run_that_is_answered_itself_lets_the_whole_tree_go_on(world: World) -> None:
    world.run("run", "go", "--app", "team:app", "--agent", "team", "-q")
    (child,) = [run for run in world.runs() if run["agent"] == "writer"]

    approved = world.run("approve", child["id"], "--app", "team:app")

    assert (approved.returncode, approved.stdout.strip()) == (0, "written"), approved.stderr
    assert {run["state"] for run in world.runs()} == {"FINISHED"}


def test_a_call_approved_twice_is_not_one_of_a_sub_agent_the_second_time(world: World) -> None:
    (world.folder / "team.py").write_text(TEAM + BOTH)
    ran = world.run("run", "go", "--app", "team:both")
    assert ran.returncode == 3, ran.stderr
    (root,) = [run["id"] for run in world.runs() if run["parent"] is None]

    first = world.run("approve", root, "t1.c2", "--app", "team:both")
    again = world.run("approve", root, "t1.c2", "--app", "team:both")

    assert (first.returncode, again.returncode) == (3, 2), first.stderr
    (below,) = [run["id"] for run in world.runs() if run["parent"] == root]
    assert f"{below}/t1.c2" in again.stderr
    assert world.run("approve", root, f"{below}/t1.c2", "--app", "team:both").returncode == 3
    assert world.run("approve", root, "--app", "team:both").returncode == 0
    assert world.noted == ["a", "b", "own"]


def test_a_list_keeps_to_one_tree(world: World) -> None:
    for _ in range(2):
        world.run("run", "go", "--app", "team:app", "--agent", "team", "-q")
    root = next(run["id"] for run in world.runs() if run["parent"] is None)

    rows = json.loads(world.run("list", "--root", root, "--json").stdout)

    assert len(rows) == 3
    assert {row["root"] for row in rows} == {root}
    below = next(row["id"] for row in rows if row["id"] != root)
    assert json.loads(world.run("list", "--root", below, "--json").stdout) == rows
    assert f"parent     {root}\n" in world.run("show", below).stdout


def test_what_all_ids_begin_with_names_the_root_of_the_only_tree(world: World) -> None:
    world.run("run", "go", "--app", "team:app", "--agent", "team", "-q")
    root = next(run["id"] for run in world.runs() if run["parent"] is None)

    shown = world.run("show", "r-", "--tree")

    assert shown.returncode == 0, shown.stderr
    assert shown.stdout.split()[:2] == ["team", root]


def test_more_for_a_sub_agent_is_paid_by_its_parent_whose_own_budget_can_be_raised_first(world: World) -> None:
    (world.folder / "small.py").write_text(SMALL)
    world.run("run", "go", "--app", "small:app", "-q")
    (worker,) = [run["id"] for run in world.runs() if run["agent"] == "worker"]
    more = ("resume", worker, "--app", "small:app", "--max-turns", "9")

    refused = world.run(*more)
    world.run("resume", "r-", "--app", "small:app", "--max-turns", "12")
    paid = world.run(*more)

    assert (refused.returncode, paid.returncode, paid.stdout.strip()) == (2, 0, "seen"), paid.stderr
    assert "max_turns can be raised to 3" in refused.stderr


def test_an_exported_run_has_no_tree_to_show(world: World) -> None:
    world.run("run", "go", "--app", "team:app", "--agent", "team", "-q")
    (world.folder / "team.jsonl").write_text(world.run("export", "r-", "-q").stdout)

    shown = world.run("show", "team.jsonl", "--tree")

    assert (shown.returncode, shown.stdout) == (2, "")
    assert "--tree: 'team.jsonl' has one run, and none of those below it" in shown.stderr


def test_a_watched_tree_stands_once_on_the_terminal_below_what_it_waits_for(world: World) -> None:
    world.run("run", "go", "--app", "team:app", "--agent", "team", "-q")
    terminal = Terminal(world, "watch", "r-", "--tree")

    terminal.wait_for("\x1b[J")
    terminal.type("\x03")
    terminal.wait_ended()

    assert terminal.text.index("geartrain approve") < terminal.text.index("3 runs:")
    assert terminal.text.count("\x1b[J") == terminal.text.count("3 runs:") - 1
