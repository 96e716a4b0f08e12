"""Runs that people drive from outside, by commands alone: each command is a process that comes, acts and goes."""

from __future__ import annotations

import json
import re
import shlex
import signal
import time
from pathlib import Path
from typing import Any

import pytest
from test_cli import World, server, world  # noqa: F401 - fixtures

pytestmark = pytest.mark.real_time

APP = '''
from geartrain import Agent, ScriptedModel, tool
from geartrain.models import answer, call
from geartrain.tools import ask_user


@tool(external=True, read_only=True)
def look_up(key: str) -> str:
    """Have somebody look a key up."""
    raise AssertionError("never run")


@tool(external=True)
def ship(parcel: str) -> str:
    """Have somebody ship a parcel."""
    raise AssertionError("never run")


agents = [
    Agent("by-hand", model="external", tools=[look_up, ship]),
    Agent("asking", model=ScriptedModel([[call("ask_user", question="which?")], answer("thanks")]), tools=[ask_user]),
    Agent("looking", model=ScriptedModel([[call("look_up", key="a"), call("look_up", key="b")], answer("found")]),
          tools=[look_up]),
]
'''


THREE = '''
from geartrain import Agent, ScriptedModel, tool
from geartrain.models import answer, call


@tool
def note(text: str) -> str:
    """Note a text."""
    with open("noted.txt", "a") as file:
        file.write(text + "\\n")
    return f"noted {text}"


agents = Agent(
    "noter",
    model=ScriptedModel([[call("note", text=text) for text in ("same", "same", "other")], answer("thanks")]),
    tools=[note],
    on_denied="tell",
)
'''


@pytest.fixture
def hand(world: World) -> World:  # noqa: F811
    (world.folder / "hand.py").write_text(APP)
    (world.folder / "pyproject.toml").write_text('[tool.geartrain]\napp = "hand"\n')
    return world


def started(world: World, agent: str) -> dict[str, Any]:  # noqa: F811
    done = world.run("run", "send it", "--agent", agent, "--json")
    assert done.returncode == 3, done.stderr
    return dict(json.loads(done.stdout))


def printed(stderr: str, command: str) -> list[str]:
    """Return the words of a command that was printed to go on with."""
    line = next(line for line in stderr.splitlines() if f"geartrain {command} " in line)
    words = shlex.split(line[line.index("cd ") :])
    assert words[:1] == ["cd"]
    return words[words.index("geartrain") + 1 :]


def test_a_run_is_driven_from_a_second_terminal_by_commands_alone_across_restarts(hand: World) -> None:
    """Show 2: nobody keeps a process; one terminal watches, another takes the turns and answers the calls."""
    begun = hand.run("run", "send it", "--agent", "by-hand", "--by", "ops")
    assert begun.returncode == 3
    (run,) = [row["id"] for row in hand.runs()]
    watching = hand.start("watch", run)
    try:
        turn = printed(begun.stderr, "reply")
        assert turn == ["reply", run, "TEXT"]
        asked = hand.run("reply", run, "let me see", "--call", 'look_up {"key": "a"}', "--by", "ops")
        assert (asked.returncode, printed(asked.stderr, "answer")) == (3, ["answer", run, "TEXT"])
        assert hand.run("answer", run, "it is 7", "--by", "desk").returncode == 3
        wants = hand.run("reply", run, "--call", 'ship {"parcel": "7"}', "--by", "ops", cwd=hand.folder)
        assert wants.returncode == 3
        assert "t2.c1 ship waits for approval" in wants.stderr
        approved = hand.run("approve", run, "--by", "audit")
        assert (approved.returncode, "ship waits for an answer" in approved.stderr) == (3, True)
        failed = hand.run("answer", run, "t2.c1", "the lorry is broken", "--status", "error", "--by", "desk")
        assert failed.returncode == 3
        ended = hand.run("reply", run, "It could not be sent.", "--by", "ops")
        assert (ended.returncode, ended.stdout) == (0, "It could not be sent.\n")
        assert watching.wait(20.0) == 0
        seen, told = watching.output
    finally:
        watching.close()

    assert "geartrain reply" in told
    for line in (
        "turn taken by ops with 1 call: let me see",
        "waits outside for an answer to t1.c1 look_up",
        "result t1.c1 look_up ok by desk",
        "approved by audit: t2.c1 ship",
        "result t2.c1 ship error by desk",
        "turn taken by ops: It could not be sent.",
    ):
        assert line in seen
    assert "run recovered" not in seen
    assert hand.run("replay", run).returncode == 0


def test_what_waits_for_somebody_is_listed(hand: World) -> None:
    turn, question, look = started(hand, "by-hand"), started(hand, "asking"), started(hand, "looking")

    rows = {row["id"]: row for row in json.loads(hand.run("list", "--waiting", "--json").stdout)}
    table = hand.run("list", "--waiting").stdout

    assert {run: tuple(row["holds"]) for run, row in rows.items()} == {
        turn["id"]: ("reply",),
        question["id"]: ("input(t1.c1)",),
        look["id"]: ("answer(t1.c1)", "answer(t1.c2)"),
    }
    assert "its process is gone" not in table
    assert hand.run("send", question["id"], "the red one").returncode == 0
    assert question["id"] not in hand.run("list", "--waiting").stdout


def test_one_of_several_answers_says_which_call_it_is_for(hand: World) -> None:
    run = started(hand, "looking")["id"]

    which = hand.run("answer", run, "7")
    assert (which.returncode, "say which: t1.c1, t1.c2" in which.stderr) == (2, True)
    assert hand.run("answer", run, "t1.c2", "8").returncode == 3
    assert hand.run("answer", run, "7").returncode == 0
    again = hand.run("answer", run, "t1.c1", "9")
    assert (again.returncode, "has ended" in again.stderr) == (2, True)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("reply",), "a turn is an answer, calls, or both"),
        (("reply", "--call", "look_up {"), "the arguments of 'look_up' are not JSON"),
        (("reply", "--call", "look_up [7]"), "must be a tool's name and a JSON object"),
        (("reply", "--call", 'lok_up {"key": "a"}'), "agent 'by-hand' has no tool 'lok_up'; there are: look_up, ship"),
        (("reply", "--call", 'look_up {"key": 7}'), "Expected `str`, got `int` - at `$.key`"),
        (("answer", "t1.c1", "too", "many"), "quote it"),
        (("answer", "7", "--status", "great"), "ok or error"),
        (("answer", "7"), "no call of it is"),
        (("answer", "t1.c1", "7"), "is not open"),
        (("approve",), "no call of it is"),
    ],
)
def test_what_a_run_does_not_wait_for_is_refused_and_changes_nothing(
    hand: World, words: tuple[str, ...], said: str
) -> None:
    run = started(hand, "by-hand")

    done = hand.run(words[0], run["id"], *words[1:])

    assert (done.returncode, said in done.stderr) == (2, True), done.stderr
    assert hand.runs()[0]["seq"] == run["seq"]


def test_resuming_a_run_that_waits_outside_says_what_it_waits_for(hand: World) -> None:
    run = started(hand, "by-hand")["id"]

    done = hand.run("resume", run)

    assert (done.returncode, "waits for reply; resuming lifts none" in done.stderr) == (3, True)
    assert hand.run("show", run).stdout.splitlines()[1] == "state      MODEL_THINKING  waits for reply"
    assert hand.run("cancel", run).returncode == 4


def test_the_built_in_agent_is_driven_by_hand_when_its_model_is_outside(world: World) -> None:  # noqa: F811
    begun = world.run("run", "what is here?", "--model", "external", "--json")
    run = json.loads(begun.stdout)["id"]

    assert world.run("reply", run, "--call", 'list_dir {"path": "."}').returncode == 3
    assert world.run("reply", run, "A README.").returncode == 0
    assert "README.md" in world.run("show", run).stdout


def test_a_run_is_watched_while_other_processes_move_it_and_while_nobody_does(world: World) -> None:  # noqa: F811
    with world.in_the_middle() as moving:
        run = world.runs()[0]["id"]
        watching = world.start("watch", run, "--json")
        try:
            _until(watching, "EXECUTE_TOOL")
            moving.send_signal(signal.SIGINT)
            moving.wait()
            _until(watching, "its process is gone: ", error=True)
            (world.folder / "hurry.txt").write_text("")
            assert world.run("resume", run, "--app", "app:app").returncode == 0
            assert watching.wait(20.0) == 0, watching.output[1]
            records = [json.loads(line) for line in watching.output[0].splitlines()]
        finally:
            watching.close()

    assert [record["seq"] for record in records] == sorted(record["seq"] for record in records)
    assert records[-1]["event"] == "run_finished"


def _until(command: Any, word: str, *, error: bool = False) -> None:
    until = time.monotonic() + 20.0
    while word not in command.output[error]:
        assert time.monotonic() < until, command.output
        time.sleep(0.02)


def test_a_watch_ends_with_ctrl_c_and_changes_nothing(hand: World) -> None:
    run = started(hand, "by-hand")
    watching = hand.start("watch", run["id"])
    try:
        _until(watching, "MODEL_THINKING")
        watching.send_signal(signal.SIGINT)
        assert watching.wait(20.0) == 130
    finally:
        watching.close()

    assert hand.runs()[0]["seq"] == run["seq"]


def test_watching_what_is_not_there_says_so(hand: World, tmp_path: Path) -> None:
    started(hand, "by-hand")

    done = hand.run("watch", "r-none")

    assert (done.returncode, "r-none" in done.stderr) == (2, True)


def test_a_conversation_goes_on_from_the_command_line(hand: World) -> None:
    first = started(hand, "by-hand")["id"]
    early = hand.run("run", "and?", "--continue", first)
    assert (early.returncode, "wait for its end" in early.stderr) == (2, True)
    assert hand.run("reply", first, "It is red.").returncode == 0

    second = hand.run("run", "and?", "--continue", first, "--json", cwd=hand.elsewhere, GEARTRAIN_STORE=str(hand.store))
    assert second.returncode == 2
    second = hand.run("run", "and?", "--continue", first, "--json")
    run = json.loads(second.stdout)

    assert (second.returncode, run["agent"], run["continues"]) == (3, "by-hand", first)
    assert hand.run("reply", run["id"], "Also blue.").stdout == "Also blue.\n"
    shown = hand.run("show", run["id"], "--full").stdout
    assert f"continues  {first}" in shown
    assert "It is red." in shown


def test_a_question_about_a_folder_goes_on_in_that_folder(world: World) -> None:  # noqa: F811
    first = world.run("run", "How is the train tested?", "--json", "--by", "ops")
    run = json.loads(first.stdout)

    second = world.run("run", "How many gears?", "--continue", run["id"], "--json", cwd=world.elsewhere)

    assert (second.returncode, json.loads(second.stdout)["context"]) == (0, run["context"])
    assert len(world.runs()) == 2


def test_three_approvals_are_decided_in_reverse_by_two_people_with_a_restart_between(world: World) -> None:  # noqa: F811
    """Show 1: each command is a process of its own, so there is a restart between any two of them."""
    (world.folder / "three.py").write_text(THREE)
    run = json.loads(world.run("run", "go", "--app", "three", "--json").stdout)
    assert [call["call_id"] for call in run["waiting"]] == ["t1.c1", "t1.c2", "t1.c3"]

    one = world.run("approve", run["id"], "t1.c3", "--app", "three", "--by", "ops")
    other = world.run("deny", run["id"], "t1.c2", "--app", "three", "--by", "desk", "--reason", "not twice")
    assert (one.returncode, other.returncode) == (3, 3)
    assert not (world.folder / "noted.txt").exists()
    edited = ("--arguments", '{"text": "better"}')
    last = world.run("approve", run["id"], "t1.c1", "--app", "three", "--by", "ops", *edited)
    again = world.run("approve", run["id"], "t1.c3", "--app", "three", "--by", "desk")

    assert (last.returncode, last.stdout, again.returncode) == (0, "thanks\n", 2)
    assert (world.folder / "noted.txt").read_text() == "better\nother\n"
    decisions = re.findall(r"(?:approved|denied) by .*", world.run("show", run["id"]).stdout)
    assert decisions == [
        "approved by ops: t1.c3 note",
        "denied by desk: t1.c2 note: not twice",
        'approved by ops: t1.c1 note, arguments changed to {"text": "better"}',
    ]
    seen = json.loads(world.run("show", run["id"], "--full", "--json").stdout)
    asked = next(record["payload"]["saw"] for record in reversed(seen) if "saw" in record["payload"])
    results = [(message["call_id"], message["text"]) for message in asked if message["role"] == "tool"]
    assert results == [("t1.c1", "noted better"), ("t1.c2", "[denied] not twice"), ("t1.c3", "noted other")]


def test_a_decision_made_by_two_processes_at_once_is_made_once(world: World) -> None:  # noqa: F811
    """AP-9: one decides; the others are told that, or that another process is at it."""
    (world.folder / "three.py").write_text(THREE)
    run = json.loads(world.run("run", "go", "--app", "three", "--json").stdout)["id"]

    commands = [
        world.start(verb, run, "t1.c1", "--app", "three", "--by", f"{verb}{number}")
        for number in range(5)
        for verb in ("approve", "deny")
    ]
    codes, said = [], []
    for command in commands:
        codes.append(command.wait())
        said.append(command.output[1])
        command.close()

    assert codes.count(3) == 1, said
    decided = json.loads(world.run("show", run, "--json").stdout)
    assert [record["event"] for record in decided].count("approval_decided") == 1
    # Those who looked before it was decided, and had the store after that, are told who decided.
    refusals = ("is not waiting", "is already decided", "owned by process")
    for code, told in zip(codes, said, strict=True):
        assert code == 3 or any(refusal in told for refusal in refusals), told
