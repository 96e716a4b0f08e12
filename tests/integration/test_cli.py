"""The command as its users meet it: real processes, real stores, real terminals."""

from __future__ import annotations

import asyncio
import json
import os
import pty
import re
import select
import signal
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import pytest
from command_processes import Command, CommandServer

from geartrain.persistence.sqlite import SqliteJournal
from geartrain.persistence.sqlite._rows import EVENT_COLUMNS, event_of, event_row

pytestmark = pytest.mark.real_time

# Agents of a user: what they write is noted in a file, so that "exactly once" can be counted.
APP = '''
import os, structlog, time
from types import SimpleNamespace
from geartrain import Agent, Allow, Ask, Budget, Deny, ScriptedModel, tool
from geartrain.models import answer, call


@tool
def note(text: str) -> str:
    """Note a text, slowly."""
    structlog.get_logger().warning("noting", text=text)
    with open("noted.txt", "a") as file:
        file.write(text + "\\n")
    time.sleep(float(os.environ.get("NOTE_SECONDS", "0")))
    return "noted"


@tool(read_only=True, timeout_seconds=60)
def wait(seconds: float) -> str:
    """Wait."""
    open("waiting.txt", "w").close()
    time.sleep(seconds if not os.path.exists("hurry.txt") else 0)
    return "waited"


def policy(call, run):
    if os.path.exists("deny.txt"):
        return Deny("not today")
    return Allow() if call.read_only or run.agent == "sure" else Ask("it notes something")


def an(name, *replies, **more):
    return Agent(name, model=ScriptedModel(replies), tools=[note, wait], **more)


NOTE = [call("note", text="hello")]
agents = [
    an("writer", NOTE, answer("written")),
    an("sure", NOTE, answer("written")),
    an("two", [call("note", text="one"), call("note", text="two")], answer("both")),
    an("polite", NOTE, answer("then not"), on_denied="tell"),
    an("waiter", [call("wait", seconds=30)], answer("waited")),
    an("again", NOTE, NOTE, answer("noted twice")),
    an("poor", [call("wait", seconds=0)], answer("rich"), budget=Budget(max_turns=1), on_budget="suspend"),
    an("spent", [call("wait", seconds=0)], answer("rich"), budget=Budget(max_tool_calls=1), on_budget="suspend"),
    an("rude", answer("\\x1b[31mred\\x1b[0m [bold]not bold[/bold] \\x9b2J \\u202egnorw")),
]
app = SimpleNamespace(agents=agents, policy=policy)
one = agents[0]
nothing = 42


def make():
    return agents[:1]
'''


class Done(NamedTuple):
    """How a command ended."""

    returncode: int
    stdout: str
    stderr: str


class World:
    """A folder, a home of its own, and the command."""

    def __init__(self, base: Path, server: CommandServer) -> None:
        self.base = base
        self.folder = base / "project"
        self.elsewhere = base / "elsewhere"
        self.elsewhere.mkdir()
        self.folder.mkdir()
        (self.folder / "README.md").write_text("# Gears\n\nThe train is tested with make test.\nIt has two gears.\n")
        (self.folder / "app.py").write_text(APP)
        self._server = server
        self.environment = {
            "PATH": os.environ["PATH"],
            "HOME": str(base),
            "XDG_STATE_HOME": str(base / "state"),
            "LOGNAME": "tester",
            "LANG": "C.UTF-8",
            "PYTHONPYCACHEPREFIX": str(Path(server.address).parent / "bytecode"),
            # Sources that are not those installed: a new Python is to have the same ones as this.
            **{name: os.environ[name] for name in ("PYTHONPATH",) if name in os.environ},
        }

    def start(self, *words: str, cwd: Path | None = None, **environment: str) -> Command:
        return Command(self._server.address, words, cwd or self.folder, {**self.environment, **environment})

    def run(self, *words: str, cwd: Path | None = None, **environment: str) -> Done:
        command = self.start(*words, cwd=cwd, **environment)
        try:
            return Done(command.wait(), *command.output)
        finally:
            command.close()

    def run_anew(self, *words: str, cwd: Path | None = None) -> Done:
        """Run the command as a shell does: a new Python, from its first line to its last."""
        done = subprocess.run(
            [sys.executable, "-m", "geartrain", *words],
            cwd=cwd or self.folder,
            env=self.environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=30,
            check=False,
        )
        return Done(done.returncode, done.stdout, done.stderr)

    def app(self, agent: str, *words: str) -> dict[str, Any]:
        """Start a run of one of the app's agents, and return how it rests."""
        done = self.run("run", "go", "--app", "app:app", "--agent", agent, "--json", "-q", *words)
        assert done.stdout, done.stderr
        return dict(json.loads(done.stdout))

    @property
    def noted(self) -> list[str]:
        file = self.folder / "noted.txt"
        return file.read_text().splitlines() if file.exists() else []

    @property
    def store(self) -> Path:
        return self.folder / ".geartrain" / "runs.db"

    def runs(self) -> list[dict[str, Any]]:
        return list(json.loads(self.run("list", "--json", "--all").stdout))

    @contextmanager
    def in_the_middle(self, agent: str = "waiter") -> Iterator[Command]:
        """A command in the middle of a call of its run; killed at the end if it is still there."""
        sign = self.folder / ("waiting.txt" if agent == "waiter" else "noted.txt")
        size = 0 if agent == "waiter" else 1  # a file that is there may not have been written to yet
        command = self.start("run", "go", "--app", "app:app", "--agent", agent, NOTE_SECONDS="20")
        try:
            until = time.monotonic() + 20
            while not sign.exists() or sign.stat().st_size < size:
                assert command.poll() is None, command.output
                assert time.monotonic() < until, command.output
                time.sleep(0.01)
            yield command
        finally:
            command.close()

    def killed(self, agent: str = "waiter") -> str:
        """Kill a command in the middle of a call, and return the id of its run."""
        with self.in_the_middle(agent) as command:
            command.send_signal(signal.SIGKILL)
            assert command.wait() == -signal.SIGKILL
        return str(self.runs()[0]["id"])


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[CommandServer]:
    # A short path: the address of a socket has room for about a hundred letters.
    with tempfile.TemporaryDirectory(prefix="gt") as folder:
        server = CommandServer(Path(folder))
        yield server
        server.close()


@pytest.fixture
def world(tmp_path: Path, server: CommandServer) -> World:
    return World(tmp_path, server)


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory, server: CommandServer) -> World:
    """A world that no test changes: one run finished, one suspended, one with hostile text."""
    world = World(tmp_path_factory.mktemp("shared"), server)
    assert world.run("run", "How is the train tested?").returncode == 0
    assert world.app("writer")["state"] == "SUSPENDED"
    assert world.app("rude")["state"] == "FINISHED"
    return world


# The main path: a run that waits for an approval, in other processes and from other folders


def test_a_run_that_needs_approval_suspends_and_is_finished_by_another_process_elsewhere(world: World) -> None:
    started = world.run_anew("run", "How is the train tested?", "--root", ".", "--write", "notes.md")
    run = world.runs()[0]
    target = world.folder / "notes.md"
    before = target.exists()

    approved = world.run_anew("approve", run["id"], "--by", "alice", "--reason", "go on", cwd=world.elsewhere)

    assert (started.returncode, run["state"], before) == (3, "SUSPENDED", False)
    assert f"geartrain approve {run['id']}" in started.stderr
    assert approved.returncode == 0, approved.stderr
    assert "make test" in approved.stdout
    assert str(world.store) in approved.stderr
    assert "make test" in target.read_text()
    shown = world.run("show", run["id"], cwd=world.elsewhere)
    assert "approved by alice" in shown.stdout
    assert shown.stdout.count("write begins") == 1
    assert re.search(r"\d\d:\d\d:\d\d\.\d\d\d +\d+  approved by alice: t\d+\.c1 write_file: go on", shown.stdout)
    assert world.run("replay", run["id"], cwd=world.elsewhere).returncode == 0


def test_a_denied_run_fails_and_says_who_denied_it(world: World) -> None:
    run = world.app("writer")

    denied = world.run("deny", run["id"], "--app", "app:app", "--reason", "not now", "--json")

    snapshot = json.loads(denied.stdout)
    assert denied.returncode == 1
    assert (snapshot["state"], snapshot["error"]["code"]) == ("FAILED", "approval_denied")
    assert world.noted == []
    assert "denied by tester: t1.c1 note: not now" in world.run("show", run["id"]).stdout


def test_a_killed_run_is_resumed_and_its_replay_shows_no_difference(world: World) -> None:
    run = world.killed()
    state = world.runs()[0]["state"]
    (world.folder / "hurry.txt").touch()

    resumed = world.run_anew("resume", run, "--app", "app:app")
    replayed = world.run("replay", run)

    assert state == "EXECUTE_TOOL"
    assert (resumed.returncode, resumed.stdout) == (0, "waited\n")
    assert re.fullmatch(rf"{run}: no difference in \d+ events, FINISHED\n", replayed.stdout)


def test_a_write_that_was_killed_is_settled_by_a_person_and_never_run_again_unasked(world: World) -> None:
    run = world.killed("sure")

    resumed = world.run("resume", run, "--app", "app:app")
    again = world.run("resume", run, "--app", "app:app")
    settled = world.run("settle", run, "--done", "--text", "it is there", "--app", "app:app")

    assert (resumed.returncode, again.returncode) == (3, 3)
    settle = f"cd {world.folder} && geartrain settle {run} --app app:app"
    for choice in ("--done", "--run", "--skip"):
        assert f": {settle} {choice}\n" in again.stderr
    assert (settled.returncode, settled.stdout) == (0, "written\n")
    assert world.noted == ["hello"]


def test_a_write_that_was_not_done_is_run_when_a_person_says_so(world: World) -> None:
    run = world.killed("sure")
    world.run("resume", run, "--app", "app:app")

    settled = world.run("settle", run, "t1.c1", "--run", "--app", "app:app")

    assert settled.returncode == 0, settled.stderr
    assert world.noted == ["hello", "hello"]


def test_a_policy_that_denies_now_wins_over_an_approval(world: World) -> None:
    run = world.app("writer")["id"]
    (world.folder / "deny.txt").touch()

    approved = world.run("approve", run, "--app", "app:app", "--json", "-q")

    assert approved.returncode == 1
    assert json.loads(approved.stdout)["error"]["code"] == "tool_denied"
    assert world.noted == []


def test_a_run_that_is_told_of_a_denial_goes_on(world: World) -> None:
    run = world.app("polite")["id"]

    denied = world.run("deny", run, "--app", "app:app")

    assert (denied.returncode, denied.stdout) == (0, "then not\n")


def test_a_run_is_found_by_its_id_in_spite_of_a_nearer_store(world: World) -> None:
    run = world.app("writer")["id"]
    assert world.run("run", "How many gears?", cwd=world.elsewhere).returncode == 0

    shown = world.run("show", run, cwd=world.elsewhere)
    limited = world.run("show", run, cwd=world.elsewhere, GEARTRAIN_STORE=".geartrain/runs.db")

    assert (shown.returncode, limited.returncode) == (0, 2)
    assert str(world.store) in shown.stdout


# What is asked at a terminal


TAKE_TERMINAL = (
    "import fcntl, os, sys, termios; fcntl.ioctl(0, termios.TIOCSCTTY, 0); os.execv(sys.executable, sys.argv[1:])"
)


class Terminal:
    """The command at a terminal of its own."""

    def __init__(self, world: World, *words: str) -> None:
        self._descriptor, theirs = pty.openpty()
        command = [sys.executable, "-m", "geartrain", *words]
        self._process = subprocess.Popen(
            [sys.executable, "-c", TAKE_TERMINAL, *command],
            cwd=world.folder,
            env={**world.environment, "TERM": "xterm"},
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
            start_new_session=True,
        )
        os.close(theirs)
        self.text = ""

    def wait_for(self, text: str) -> None:
        until = time.monotonic() + 20
        while text not in self.text:
            still_there = self._read()
            assert still_there, f"no {text!r} in {self.text!r}"
            assert time.monotonic() < until, f"no {text!r} in {self.text!r}"

    def _read(self) -> bool:
        ready, _, _ = select.select([self._descriptor], [], [], 1.0)
        if not ready:
            return True
        try:
            data = os.read(self._descriptor, 65536)
        except OSError:  # the other side is closed
            return False
        self.text += data.decode()
        return bool(data)

    def type(self, text: str) -> None:
        os.write(self._descriptor, text.encode())

    def wait_ended(self) -> int:
        until = time.monotonic() + 20
        while self._read():
            assert time.monotonic() < until, self.text
        os.close(self._descriptor)
        return self._process.wait(20)


QUESTION = "Allow this call?"


def at_terminal(world: World, agent: str) -> Terminal:
    terminal = Terminal(world, "run", "go", "--app", "app:app", "--agent", agent)
    terminal.wait_for(QUESTION)
    return terminal


def test_a_yes_at_the_terminal_lets_the_call_run(world: World) -> None:
    terminal = at_terminal(world, "writer")
    terminal.type("what?\n")
    terminal.text = ""
    terminal.wait_for(QUESTION)

    terminal.type("y\n")

    assert terminal.wait_ended() == 0
    assert world.noted == ["hello"]


def test_just_return_at_the_terminal_denies(world: World) -> None:
    terminal = at_terminal(world, "writer")

    terminal.type("\n")

    assert terminal.wait_ended() == 1
    assert world.noted == []
    assert world.runs()[0]["error"] == "approval_denied"


@pytest.mark.parametrize(("typed", "code"), [("\x04", 3), ("l\n", 3), ("\x03", 130)])
def test_leaving_the_question_leaves_the_run_suspended(world: World, typed: str, code: int) -> None:
    terminal = at_terminal(world, "writer")

    terminal.type(typed)

    assert terminal.wait_ended() == code
    assert "geartrain approve r-" in terminal.text
    assert world.runs()[0]["state"] == "SUSPENDED"


def test_each_of_two_calls_is_asked_about(world: World) -> None:
    terminal = at_terminal(world, "two")
    terminal.type("y\n")
    terminal.text = ""
    terminal.wait_for(QUESTION)

    terminal.type("y\n")

    assert terminal.wait_ended() == 0
    assert world.noted == ["one", "two"]


# Signals


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_ends_the_process_but_not_the_run(world: World, number: signal.Signals, code: int) -> None:
    with world.in_the_middle() as command:
        command.send_signal(number)
        ended, (_, errors) = command.wait(), command.output
    run = world.runs()[0]

    assert ended == code
    assert f"geartrain resume {run['id']}" in errors
    assert "Traceback" not in errors
    assert run["state"] == "EXECUTE_TOOL"


def test_ctrl_c_during_a_write_says_at_once_what_is_waited_for_and_then_what_is_in_doubt(world: World) -> None:
    with world.in_the_middle("sure") as command:
        command.send_signal(signal.SIGINT)
        time.sleep(0.5)
        at_once = command.output[1]
        command.wait()
        errors = command.output[1]

    assert "waiting up to 5 s for what has started (t1.c1); Ctrl-C again stops now" in at_once
    assert "nothing is lost" not in errors
    assert "in doubt" in errors or "may have been done" in errors
    assert f"{world.runs()[0]['id']} --app app:app" in errors


def test_a_second_ctrl_c_does_not_wait_for_what_runs(world: World) -> None:
    with world.in_the_middle("sure") as command:
        before = time.monotonic()
        while command.poll() is None:
            command.send_signal(signal.SIGINT)
            time.sleep(0.05)
        took = time.monotonic() - before
        errors = command.output[1]

    assert command.wait() == 130
    assert f"go on with: cd {world.folder} && geartrain resume r-" in errors
    assert "t1.c1 was cut off and may have been done: in doubt, unless the tool can tell" in errors
    assert took < 3  # the write that runs has a grace of 5 s


# Acts on runs that rest


def test_a_paused_run_goes_on_when_it_is_resumed(world: World) -> None:
    run = world.killed()
    (world.folder / "hurry.txt").touch()

    paused = world.run("pause", run, "--app", "app:app", "--json", "-q")
    resumed = world.run("resume", run, "--app", "app:app")

    assert (paused.returncode, json.loads(paused.stdout)["holds"]) == (3, ["paused"])
    assert (resumed.returncode, resumed.stdout) == (0, "waited\n")


def test_a_cancelled_run_ends_and_takes_no_more(world: World) -> None:
    run = world.app("writer")["id"]

    cancelled = world.run("cancel", run, "--reason", "enough", "--app", "app:app")
    late = world.run("approve", run, "--app", "app:app")

    assert (cancelled.returncode, late.returncode) == (4, 2)
    assert "cancelled_by_user" in cancelled.stderr
    assert late.stderr == f"geartrain: run {run} has ended: CANCELLED\n"
    assert world.noted == []


@pytest.mark.parametrize(
    "words", [("approve",), ("deny",), ("settle", "--done"), ("send", "hello"), ("pause",), ("cancel",)]
)
def test_an_act_on_a_run_that_has_ended_is_refused(shared: World, words: tuple[str, ...]) -> None:
    run = shared.runs()[-1]["id"]
    verb, *more = words

    done = shared.run(verb, run, *more)
    resumed = shared.run("resume", run)

    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == f"geartrain: run {run} has ended: FINISHED\n"
    assert resumed.returncode == 0


def test_a_call_that_does_not_wait_is_named_with_those_that_do(world: World) -> None:
    run = world.app("two")["id"]

    wrong = world.run("approve", run, "t9.c9", "--app", "app:app")
    other_act = world.run("settle", run, "--done", "--app", "app:app")

    assert (wrong.returncode, other_act.returncode) == (2, 2)
    assert "call 't9.c9' is not waiting for approval; these are: t1.c1, t1.c2" in wrong.stderr
    assert f"geartrain approve {run} t1.c1 --app app:app" in other_act.stderr


def test_approving_what_is_in_doubt_says_how_to_settle_it(world: World) -> None:
    run = world.killed("sure")
    world.run("resume", run, "--app", "app:app")

    approved = world.run("approve", run, "--app", "app:app")

    assert approved.returncode == 2
    assert f"geartrain settle {run} --app app:app --done" in approved.stderr
    assert [row["id"] for row in json.loads(world.run("list", "--waiting", "--json").stdout)] == [run]
    assert "in_doubt(t1.c1)" in world.run("list", "--waiting").stdout


def test_the_printed_line_goes_on_with_a_run_from_any_folder(world: World) -> None:
    started = world.run("run", "go", "--app", "app:app", "--agent", "writer")
    line = re.search(r"waits for approval: (cd .*)", started.stderr)
    assert line is not None
    command = line[1].replace("geartrain", f"{sys.executable} -m geartrain")

    done = subprocess.run(
        command, shell=True, cwd="/", env=world.environment, capture_output=True, text=True, timeout=30, check=False
    )

    assert (done.returncode, done.stdout) == (0, "written\n"), done.stderr


def test_a_run_of_an_agent_that_is_not_built_in_is_shown_with_a_place_for_its_app(world: World) -> None:
    run = world.app("writer")["id"]

    shown = world.run("show", run, cwd=world.elsewhere)

    assert f"geartrain approve {run} --app MODULE:ATTR" in shown.stdout
    assert "agent 'writer' is not built in: MODULE:ATTR is the app that has it" in shown.stdout


def test_a_run_in_the_middle_is_listed_with_who_moves_it_or_how_to_go_on(world: World) -> None:
    with world.in_the_middle() as command:
        moved = world.run("list").stdout
        pid = command.pid
    run = world.runs()[0]["id"]

    assert f"being moved by pid {pid}" in moved
    assert f"its process is gone: geartrain resume {run}" in world.run("list").stdout
    assert f"its process is gone: geartrain resume {run} --app MODULE:ATTR" in world.run("show", run).stdout


def test_a_run_whose_agent_is_gone_can_still_be_cancelled(world: World) -> None:
    run = world.app("writer")["id"]

    refused = world.run("approve", run)
    cancelled = world.run("cancel", run)

    assert refused.returncode == 2
    assert "agent 'writer': not known here (known: 'researcher'); name your agents with --app" in refused.stderr
    assert cancelled.returncode == 4


def test_what_is_said_to_a_waiting_run_is_kept_for_later(world: World) -> None:
    run = world.app("writer")["id"]

    sent = world.run("send", run, "and be quick", "--app", "app:app", "--by", "desk")

    assert sent.returncode == 3
    assert "desk says: and be quick" in world.run("show", run).stdout


def test_a_run_out_of_budget_goes_on_with_a_new_one(world: World) -> None:
    run = world.app("poor")

    resumed = world.run("resume", run["id"], "--app", "app:app")
    raised = world.run("resume", run["id"], "--max-turns", "5", "--app", "app:app")

    assert run["holds"] == ["budget"]
    assert resumed.returncode == 3
    assert f"geartrain resume {run['id']} --app app:app --max-turns N" in resumed.stderr
    assert (raised.returncode, raised.stdout) == (0, "rich\n")


def test_a_run_out_of_calls_is_told_which_limit_it_is_and_how_it_is_raised(world: World) -> None:
    run = world.app("spent")

    shown = world.run("show", run["id"], "--app", "app:app")
    raised = world.run("resume", run["id"], "--max-tool-calls", "2", "--app", "app:app")

    assert run["out_of_budget"]["code"] == "tool_call_budget_exceeded"
    assert "out of budget: tool_call_budget_exceeded: 1 of 1 tool calls used" in shown.stdout
    assert f"geartrain resume {run['id']} --app app:app --max-tool-calls N" in shown.stdout
    assert (raised.returncode, raised.stdout) == (0, "rich\n")


def test_one_of_several_calls_must_be_named(world: World) -> None:
    run = world.app("two")["id"]

    unclear = world.run("approve", run, "--app", "app:app")
    first = world.run("approve", run, "t1.c1", "--app", "app:app")
    twice = world.run("approve", run, "t1.c1", "--app", "app:app")
    second = world.run("approve", run, "--app", "app:app")

    assert (unclear.returncode, first.returncode, twice.returncode, second.returncode) == (2, 3, 2, 0)
    assert "say which: t1.c1, t1.c2" in unclear.stderr
    assert world.noted == ["one", "two"]


def test_edited_arguments_are_what_runs(world: World) -> None:
    run = world.app("writer")["id"]

    wrong = world.run("approve", run, "--arguments", '{"txt": 1}', "--app", "app:app")
    right = world.run("approve", run, "--arguments", '{"text": "edited"}', "--app", "app:app")

    assert (wrong.returncode, right.returncode) == (2, 0)
    assert world.noted == ["edited"]


def test_an_approval_that_is_remembered_is_asked_for_once(world: World) -> None:
    once, both = world.app("again")["id"], world.app("again")["id"]

    not_remembered = world.run("approve", once, "--app", "app:app")
    remembered = world.run("approve", both, "--remember", "--app", "app:app")

    assert (not_remembered.returncode, remembered.returncode) == (3, 0)
    assert remembered.stdout == "noted twice\n"


# Reading


def test_a_listing_is_newest_first_and_has_the_field_names_of_the_design(shared: World) -> None:
    rows = shared.runs()

    assert [row["agent"] for row in rows] == ["rude", "writer", "researcher"]
    assert {"id", "state", "agent", "turn_count", "created_at", "holds", "set_apart"} <= set(rows[0])


def test_a_listing_is_filtered_and_bounded(shared: World) -> None:
    def ids(*words: str) -> list[str]:
        return [row["agent"] for row in json.loads(shared.run("list", "--json", *words).stdout)]

    assert ids("--waiting") == ["writer"]
    assert ids("--state", "finished") == ["rude", "researcher"]
    assert ids("--agent", "researcher", "--state", "FAILED") == []
    assert ids("--limit", "1") == ["rude"]


def test_a_table_shows_whole_ids_however_narrow(shared: World) -> None:
    table = shared.run("list", COLUMNS="30").stdout

    assert all(row["id"] in table for row in shared.runs())


def test_a_timeline_as_json_is_an_array_of_records(shared: World) -> None:
    run = shared.runs()[-1]["id"]

    records = json.loads(shared.run("show", run, "--json").stdout)

    assert records[0]["event"] == "run_started"
    assert records[-1]["event"] == "run_finished"
    assert {"state_transition", "llm_call_finished", "tool_call_requested"} <= {record["event"] for record in records}


def test_a_full_timeline_has_what_each_model_call_saw(shared: World) -> None:
    run = shared.runs()[-1]["id"]

    shown = shared.run("show", run, "--full").stdout

    assert "| [system]" in shown
    assert "| [user] " in shown
    assert re.search(r"\| \[tool \w+ t1\.c1\]", shown)


def test_a_spec_that_has_changed_since_is_named(world: World) -> None:
    run = world.app("writer")["id"]
    text = (world.folder / "app.py").read_text()
    (world.folder / "app.py").write_text(text.replace("@tool\ndef note", "@tool(idempotent=True)\ndef note"))

    shown = world.run("show", run, "--app", "app:app").stdout

    assert "changed since: tool note: idempotent False then, True now" in shown


def test_text_of_a_run_gives_the_terminal_no_orders(shared: World) -> None:
    run = shared.runs()[0]["id"]

    outputs = [
        shared.run("show", run, "--full").stdout,
        shared.run("show", run, "--json").stdout,
        shared.run("run", "go", "--app", "app:app", "--agent", "rude", "--store", str(shared.base / "x.db")).stdout,
    ]

    for text in outputs:
        assert not set(text) & {"\x1b", "\x9b", "\u202e"}
        assert "[bold]not bold[/bold]" in text
    assert "\\x1b[31mred" in outputs[0]
    assert "\x1b[31mred" in json.loads(outputs[1])[-1]["payload"]["answer"]


def test_all_runs_are_replayed_at_once(shared: World) -> None:
    replayed = shared.run("replay", "--all")

    assert replayed.returncode == 0
    assert replayed.stdout.count("no difference") == 3


# Stores


def test_while_a_process_owns_the_store_others_read_it_and_change_nothing(world: World) -> None:
    with world.in_the_middle() as command:
        run = world.runs()[0]
        cancelled = world.run("cancel", run["id"], "--app", "app:app")
        shown = world.run("show", run["id"])

    assert run["state"] == "EXECUTE_TOOL"
    assert cancelled.returncode == 1
    assert f"owned by process {command.pid}" in cancelled.stderr
    assert (shown.returncode, "EXECUTE_TOOL" in shown.stdout) == (0, True)


def test_a_store_is_found_from_below_and_by_its_variable(shared: World) -> None:
    below = shared.folder / "a" / "b"
    below.mkdir(parents=True, exist_ok=True)

    from_below = shared.run("list", "--json", cwd=below)
    by_variable = shared.run("list", "--json", cwd=shared.elsewhere, GEARTRAIN_STORE=str(shared.store))

    assert from_below.stdout == by_variable.stdout
    assert len(json.loads(from_below.stdout)) == 3


def test_only_run_makes_a_store(world: World) -> None:
    listed = world.run("list")

    assert listed.returncode == 2
    assert "no store" in listed.stderr
    assert not (world.folder / ".geartrain").exists()


def test_a_new_store_is_kept_out_of_version_control(shared: World) -> None:
    assert (shared.folder / ".geartrain" / ".gitignore").read_text() == "*\n"


def test_without_a_place_for_the_index_runs_go_on_all_the_same(world: World) -> None:
    (world.base / "file").touch()

    done = world.run("run", "How many gears?", XDG_STATE_HOME=str(world.base / "file"))

    assert done.returncode == 0, done.stderr


def test_a_store_whose_lock_cannot_be_made_is_refused_with_the_reason(world: World) -> None:
    (world.folder / "x.db.lock").mkdir()

    done = world.run("run", "hi", "--store", "x.db")

    assert done.returncode == 2
    assert done.stderr.startswith(f"geartrain: store '{world.folder / 'x.db'}': its lock ")
    assert done.stderr.endswith("cannot be made: Is a directory\n")


def test_only_real_stores_are_remembered(world: World) -> None:
    (world.folder / "garbage.db").write_text("not a store" * 50)

    world.run("run", "hi", "--store", "garbage.db")
    world.run("run", "hi", "--store", "missing/x.db")
    world.run("run", "How many gears?", "--store", "real.db")

    assert (world.base / "state" / "geartrain" / "stores").read_text() == f"{world.folder / 'real.db'}\n"


def test_a_run_is_named_by_the_beginning_of_its_id(shared: World) -> None:
    runs = [row["id"] for row in shared.runs()]

    unique = shared.run("show", runs[0][:8])
    several = shared.run("show", "r-")
    unknown = shared.run("show", "r-nothing")

    assert unique.returncode == 0
    assert runs[0] in unique.stdout
    assert (several.returncode, unknown.returncode) == (2, 2)
    assert "give more of the id" in several.stderr
    assert "not found" in unknown.stderr


def refused(world: World, store: Path) -> tuple[int, str]:
    done = world.run("list", "--store", str(store))
    return done.returncode, done.stderr


def test_a_file_that_is_no_store_is_refused_and_left_alone(shared: World) -> None:
    garbage = shared.base / "garbage.db"
    garbage.write_bytes(b"not a store" * 50)

    code, errors = refused(shared, garbage)
    run = shared.run("run", "hi", "--store", str(garbage))

    assert (code, run.returncode) == (2, 2)
    assert "is not an SQLite file" in errors
    assert garbage.read_bytes() == b"not a store" * 50


def test_a_store_of_a_newer_version_is_refused_with_both_versions(shared: World, tmp_path: Path) -> None:
    newer = tmp_path / "newer.db"
    with sqlite3.connect(shared.store) as source, sqlite3.connect(newer) as target:
        source.backup(target)
        target.execute("PRAGMA user_version = 99")
    source.close()
    target.close()

    code, errors = refused(shared, newer)

    assert code == 2
    assert "found 99, this version reads 1 to" in errors


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everything")
def test_a_store_that_may_not_be_written_is_read_all_the_same(world: World) -> None:
    run = world.app("writer")["id"]
    world.store.chmod(0o400)

    approved = world.run("approve", run, "--app", "app:app")

    assert approved.returncode == 2
    assert "may not be written" in approved.stderr
    assert world.run("list").returncode == 0


def test_a_damaged_run_is_shown_as_far_as_it_can_be_read(world: World) -> None:
    run = world.app("writer")["id"]
    damage(world.store, run, seq=3)

    shown = world.run("show", run)
    replayed = world.run("replay", run)
    everything = world.run("replay", "--all")

    assert (shown.returncode, replayed.returncode, everything.returncode) == (1, 1, 1)
    assert "ModelReplied" in shown.stdout
    assert "damaged" in shown.stderr
    assert "Traceback" not in shown.stderr + replayed.stderr


def damage(store: Path, run: str, seq: int) -> None:
    connection = sqlite3.connect(store)
    with connection:
        changed = connection.execute("UPDATE events SET body = x'00' WHERE run_id = ? AND seq = ?", (run, seq)).rowcount
    connection.close()
    assert changed == 1


def test_a_journal_that_leads_another_way_is_named_at_its_first_difference(world: World) -> None:
    run = world.app("writer")["id"]
    mislead(world.store, run, seq=3)

    replayed = world.run("replay", run)
    as_json = json.loads(world.run("replay", run, "--json").stdout)

    assert replayed.returncode == 1
    assert "first difference at event 3 (PermissionsEvaluated): recorded FINISHED, found SUSPENDED" in replayed.stdout
    assert as_json["difference"]["seq"] == 3


def mislead(store: Path, run: str, seq: int) -> None:
    """Record another path for an event, with the right checksum, as an older or a broken version might have."""
    connection = sqlite3.connect(store)
    with connection:
        where = (run, seq)
        row = connection.execute(f"SELECT {EVENT_COLUMNS} FROM events WHERE run_id = ? AND seq = ?", where).fetchone()
        event = msgspec.structs.replace(event_of(run, row), path="FINISHED")
        values = event_row(run, event)
        marks = ", ".join("?" * len(values))
        connection.execute(f"REPLACE INTO events (run_id, {EVENT_COLUMNS}) VALUES ({marks})", values)
    connection.close()


def test_a_run_that_was_set_apart_is_listed_and_moved_no_more(world: World) -> None:
    run = world.app("writer")["id"]
    asyncio.run(set_apart(world.store, run, "row 3 is \x1b[31mdamaged"))

    cancelled = world.run("cancel", run, "--app", "app:app")

    assert (cancelled.returncode, cancelled.stdout) == (1, "")
    assert "set apart: row 3 is \\x1b[31mdamaged" in cancelled.stderr
    assert "set apart: row 3 is \\x1b[31mdamaged" in world.run("list").stdout
    assert "set apart: row 3 is \\x1b[31mdamaged" in world.run("show", run).stdout


async def set_apart(store: Path, run: str, reason: str) -> None:
    journal = await SqliteJournal.open(store)
    await journal.mark(run, reason, now=0.0)
    await journal.aclose()


def test_the_log_is_written_when_it_is_asked_for_and_only_then(world: World) -> None:
    words = ("run", "go", "--app", "app:app", "--agent", "sure", "--json", "-q")

    quiet, loud = world.run(*words), world.run("--verbose", *words)

    assert quiet.stderr == ""
    assert loud.stderr == "level=warning event=noting text=hello\n"
    assert json.loads(loud.stdout)["state"] == json.loads(quiet.stdout)["state"] == "FINISHED"


# Bad input: one line, an exit code, no traceback


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("run", ""), "QUESTION: must not be blank"),
        (("run", " \n"), "QUESTION: must not be blank"),
        (("run", "hi", "--root", "nowhere"), "--root: 'nowhere' is no folder"),
        (("run", "hi", "--write", "../x"), "--write: must name a file below the root"),
        (("run", "hi", "--write", "/x"), "--write: '/x' is not below the root"),
        (("run", "hi", "--model", "huge"), "model 'huge': not known (known: 'external', 'offline')"),
        (("run", "hi", "--max-turns", "0"), "Invalid value for '--max-turns'"),
        (("run", "hi", "--agent", "ghost"), "agent 'ghost': not known here"),
        (("run", "hi", "--app", "nowhere:app"), "No module named 'nowhere'"),
        (("run", "hi", "--app", "app:nothing"), "must be an Agent, several, or have `agents`"),
        (("run", "hi", "--app", "app:app"), "--agent: is needed, the app has several: writer, sure"),
        (("run", "hi", "--app", "app:one", "--model", "offline"), "agent 'writer' brings its own model"),
        (("run", "hi", "--store", "missing/x.db"), "does not exist; make it first"),
        (("run", "hi", "--store", "."), "is a folder"),
        (("show", "r-1", "--store", "missing.db"), "no store: looked for missing.db"),
        (("replay",), "replay must be given a run or --all"),
        (("settle", "r-1"), "settle must be given one of --done, --run and --skip"),
        (("settle", "r-1", "--run", "--text", "x"), "--text must be given with --done only"),
        (("list", "--state", "LOST"), "'LOST' is not one of CREATED, "),
        (("frobnicate",), "No such command 'frobnicate'"),
    ],
)
def test_a_wrong_command_line_is_refused_in_one_line(shared: World, words: tuple[str, ...], said: str) -> None:
    done = shared.run(*words)

    assert done.returncode == 2
    assert said in done.stderr.replace("\n", " ")
    assert "Traceback" not in done.stderr
    assert done.stdout == ""


def test_the_traceback_is_shown_when_it_is_asked_for(shared: World) -> None:
    done = shared.run("--debug", "show", "r-nothing")

    assert done.returncode == 2
    assert "Traceback" in done.stderr


def test_the_app_is_found_in_the_project_file(world: World) -> None:
    (world.folder / "pyproject.toml").write_text('[tool.geartrain]\napp = "app:make"\n')
    below = world.folder / "below"
    below.mkdir()

    done = world.run("run", "go", "--json", "-q", cwd=below)

    assert json.loads(done.stdout)["agent"] == "writer"


def test_nothing_is_written_to_standard_error_when_it_is_asked_to_be_quiet(shared: World) -> None:
    done = shared.run("run", "How many gears?", "-q", "--store", str(shared.base / "quiet.db"))

    assert (done.returncode, done.stderr) == (0, "")
    assert "two gears" in done.stdout


def test_every_state_is_told_as_it_is_entered(shared: World) -> None:
    done = shared.run("run", "How many gears?", "--store", str(shared.base / "told.db"))

    lines = done.stderr.splitlines()
    assert lines[1:5] == ["CREATED", "PREPARE_CONTEXT", "MODEL_THINKING", "DECIDE_ACTION"]
    assert {"EXECUTE_TOOL", "OBSERVE", "COMPACT_OR_SAVE", "FINISHED"} <= set(lines)
    assert re.match(r"  call t1\.c1 \w+\(", next(line for line in lines if line.startswith("  call")))
    assert re.fullmatch(r"r-\w+  FINISHED  \d+ turns?, \d+ calls?, [\d,]+ tokens \(.*\), \d+\.\d\d s", lines[-1])


def in_shell(world: World, words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["bash", "-c", f"{sys.executable} -m geartrain {words}"],
        cwd=world.folder,
        env=world.environment,
        capture_output=True,
        text=True,
        timeout=20,
        check=False,
    )


@pytest.mark.parametrize("words", ["list --json", "list", "show RUN --json", "show RUN --full"])
def test_a_reader_that_goes_away_ends_the_reading_quietly(shared: World, words: str) -> None:
    run = shared.runs()[-1]["id"]

    done = in_shell(shared, f"{words.replace('RUN', run)} | true; echo rc ${{PIPESTATUS[0]}}")

    assert (done.stdout, done.stderr) == ("rc 0\n", "")


@pytest.mark.parametrize("closed", ["<&-", "2>&-", "<&- 2>&-"])
def test_a_command_works_without_some_of_its_files(shared: World, closed: str) -> None:
    done = in_shell(shared, f"list --json {closed}")

    assert done.returncode == 0
    assert len(json.loads(done.stdout)) == 3


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="there is no /dev/full here")
def test_a_full_disk_under_standard_output_is_named(shared: World) -> None:
    done = in_shell(shared, "list --json > /dev/full")

    assert done.returncode == 1
    assert done.stderr.startswith("geartrain: standard output: ")
    assert "Traceback" not in done.stderr


def test_a_locale_without_umlauts_gets_escapes(shared: World) -> None:
    question = "How many gears, Jörg?"

    done = shared.run("run", question, "--store", str(shared.base / "l.db"), PYTHONIOENCODING="ascii")

    assert done.returncode == 0, done.stderr


def test_help_and_version_come_at_once(shared: World) -> None:
    def took(*words: str) -> float:
        before = os.times()
        assert shared.run_anew(*words).returncode == 0
        after = os.times()
        return (after.children_user - before.children_user) + (after.children_system - before.children_system)

    took("--help")

    assert min(took("--help"), took("--version"), took("--help")) < 1.0
