"""`watch --tree` at a real terminal, while another process moves the tree."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import pty
import re
import select
import sqlite3
import struct
import subprocess
import sys
import termios
import time
from contextlib import closing
from pathlib import Path
from typing import Final

import pytest
from test_cli import TAKE_TERMINAL

pytestmark = pytest.mark.real_time

# As examples/fan_out.py, with agents that take their time.
TEAM: Final = """
import time
from types import SimpleNamespace
from geartrain import Agent, Allow, Ask, Budget, FanOut, ScriptedModel, tool
from geartrain.models import answer, call, Delay


@tool(read_only=True)
def read(file: str) -> str:
    "Read a file."
    time.sleep(0.5)
    return "words"


def policy(call, run):
    return Ask("sure?") if "99" in call.arguments.get("file", "") else Allow()


reader = Agent(
    "reader",
    model=ScriptedModel([lambda request: [call("read", file=request.messages[-1].text)], Delay(0.5, answer("read"))]),
    tools=[read],
)
team = Agent("team", plan=FanOut(reader, [f"{n}.txt" for n in range(100)], at_once=10))
small = Agent("small", plan=FanOut(reader, ["1.txt", "2.txt", "3.txt"]))
app = SimpleNamespace(agents=[team, small], policy=policy)
"""
_ORDER: Final = re.compile(r"\x1b\[(\??[0-9;]*)([A-Za-z])|([^\x1b])", re.DOTALL)


class Screen:
    """What a terminal of so many lines and columns shows of what is written to it; it knows what we use."""

    def __init__(self, lines: int, columns: int) -> None:
        self.columns, self.height = columns, lines
        self.rows = [""]
        self.row = 0
        self.scrolled = 0
        self.wrapped = False
        self._rest = ""

    def write(self, text: str) -> None:
        text = self._rest + text
        end = text.rfind("\x1b")
        whole = end < 0 or re.match(r"\x1b\[[0-9;?]*[A-Za-z]", text[end:])
        self._rest, text = ("", text) if whole else (text[end:], text[:end])
        for number, order, letter in _ORDER.findall(text):
            self._obey(order, int(number or 1) if number.isdecimal() or not number else 0) if order else self._put(
                letter
            )

    def _obey(self, order: str, number: int) -> None:
        if order == "F":
            assert number <= self.row, "the tree is drawn beyond the top of the terminal"
            self.row -= number
        elif order == "J":
            del self.rows[self.row + 1 :]
            self.rows[self.row] = ""
        elif order == "K":
            self.rows[self.row] = ""
        else:
            assert order == "m", order

    def _put(self, letter: str) -> None:
        if letter == "\n":
            self.row += 1
            if self.row == len(self.rows):
                self.rows.append("")
            if len(self.rows) > self.height:
                self.scrolled += 1
                self.row -= 1
                del self.rows[0]
        elif letter != "\r":
            self.rows[self.row] += letter
            self.wrapped = self.wrapped or len(self.rows[self.row]) >= self.columns

    @property
    def text(self) -> str:
        return "\n".join(self.rows)


class AtTerminal:
    """The command at a terminal of its own."""

    def __init__(self, folder: Path, *words: str, lines: int = 24, columns: int = 120) -> None:
        self.screen = Screen(lines, columns)
        self._descriptor, theirs = pty.openpty()
        fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))
        self.process = started(folder, *words, output=theirs)
        os.close(theirs)

    def read(self) -> bool:
        """Take what comes within a second; return whether more may come."""
        if not select.select([self._descriptor], [], [], 1.0)[0]:
            return True
        try:
            data = os.read(self._descriptor, 65536)
        except OSError:
            return False
        self.screen.write(data.decode())
        return bool(data)

    def wait_for(self, pattern: str, seconds: float = 40.0) -> str:
        """Return the screen as it is once *pattern* is on it."""
        until = time.monotonic() + seconds
        while not re.search(pattern, self.screen.text):
            assert self.read(), f"ended: {self.screen.text}"
            assert time.monotonic() < until, f"no {pattern!r} in\n{self.screen.text}"
        return self.screen.text

    def type(self, text: str) -> None:
        os.write(self._descriptor, text.encode())

    def wait_ended(self) -> int:
        until = time.monotonic() + 40
        while self.read():
            assert time.monotonic() < until, self.screen.text
        os.close(self._descriptor)
        return self.process.wait(20)


def started(folder: Path, *words: str, output: int) -> subprocess.Popen[bytes]:
    environment = {name: value for name, value in os.environ.items() if not name.startswith("GEARTRAIN")}
    environment |= {
        "HOME": str(folder),
        "XDG_STATE_HOME": str(folder),
        "TERM": "xterm",
        "PYTHONPATH": f"{folder}:{os.environ.get('PYTHONPATH', '')}",
    }
    command = [sys.executable, "-m", "geartrain", *words]
    take_terminal = [sys.executable, "-c", TAKE_TERMINAL, *command]
    return subprocess.Popen(
        take_terminal, cwd=folder, env=environment, stdin=output, stdout=output, stderr=output, start_new_session=True
    )


def called(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "geartrain", *words]
    environment = environment_in(folder)
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=60, check=False)


def environment_in(folder: Path) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith("GEARTRAIN")}
    sources = f"{folder}:{os.environ.get('PYTHONPATH', '')}"
    return {**kept, "HOME": str(folder), "XDG_STATE_HOME": str(folder), "TERM": "xterm", "PYTHONPATH": sources}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "team.py").write_text(TEAM)
    return tmp_path


RUN = ("run", "go", "--app", "team:app", "--store", "runs.db", "--agent")
WATCH = ("watch", "--tree", "--store", "runs.db")


def root_of(folder: Path) -> str:
    """Return the root of the first tree in the store, once there is one."""
    until = time.monotonic() + 30
    while time.monotonic() < until:
        with contextlib.suppress(sqlite3.Error), closing(sqlite3.connect(folder / "runs.db")) as store:
            for (root,) in store.execute("SELECT run_id FROM runs WHERE parent IS NULL"):
                return str(root)
        time.sleep(0.1)
    raise AssertionError("nothing was started")


def test_a_tree_of_a_hundred_is_watched_live_in_a_small_terminal_to_its_end(folder: Path) -> None:
    """Show 5: states, budgets and who waits for whom change on the screen, and it ends when the root ends."""
    running = AtTerminal(folder, *RUN, "team")
    watching = AtTerminal(folder, *WATCH, root_of(folder))

    early = watching.wait_for(r"team .*waits for \d+ sub-agents(.|\n)* reader .*1/20 turns, \d+/80,000 tokens")
    told = running.wait_for(r"\d+ runs: .*[1-9]\d FINISHED")
    later = watching.wait_for(r"… .*[5-9]\d FINISHED.* more")
    asked = watching.wait_for(
        r"team .*waits for 1 sub-agent,(.|\n)* reader .*SUSPENDED, waits for approval: t\d+.c1 read"
    )
    running.wait_for("Allow this call")
    running.type("y\n")

    assert watching.wait_ended() == 0
    assert running.wait_ended() == 0
    assert len({early, later, asked}) == 3
    assert watching.screen.scrolled == 0
    assert not watching.screen.wrapped
    assert "101 runs: 101 FINISHED" in watching.screen.text
    assert "FINISHED  " not in told.splitlines()[-1]


def test_a_tree_that_is_watched_without_a_terminal_is_a_line_for_each_change_or_a_picture_as_json(folder: Path) -> None:
    ran = called(folder, *RUN, "small")
    plain = called(folder, *WATCH, root_of(folder))
    shown = called(folder, *WATCH, root_of(folder), "--json")

    assert (ran.returncode, plain.returncode, shown.returncode) == (0, 0, 0)
    assert [line.split()[0] for line in plain.stdout.splitlines()] == ["small", "t1.c1", "t1.c2", "t1.c3"]
    assert "\x1b" not in plain.stdout + ran.stderr
    assert len(json.loads(shown.stdout)["children"]) == 3
    assert re.search(r"0 tokens .*, sub-agents \d+ tokens", ran.stderr)


def test_a_narrow_terminal_and_ctrl_c_leave_it_in_order(folder: Path) -> None:
    running = AtTerminal(folder, *RUN, "team")
    watching = AtTerminal(folder, *WATCH, root_of(folder), lines=10, columns=44)

    watching.wait_for(r"… .*\n\d+ runs: ")
    watching.type("\x03")

    assert watching.wait_ended() == 130
    assert not watching.screen.wrapped
    assert watching.screen.scrolled == 0
    assert "Traceback" not in watching.screen.text
    running.type("\x03")
    running.wait_ended()
