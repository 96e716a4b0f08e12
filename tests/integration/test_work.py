"""`geartrain work` in real processes: a service that is started again and again, whatever its tools do to it."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from processes import Starvation

from geartrain.persistence.sqlite import SqliteJournal

pytestmark = [pytest.mark.real_time, pytest.mark.timeout(180)]

APP = """
import asyncio, os, time
from pathlib import Path
from types import SimpleNamespace

from geartrain import Agent, Allow, tool
from geartrain.models import ScriptedModel
from geartrain.machine import RequestedCall


@tool(read_only=True)
async def look(context_seconds: float) -> str:
    "Look for a while."
    Path("looking.txt").touch()
    await asyncio.sleep(context_seconds)
    return "seen"


@tool(read_only=True)
def kill() -> str:
    "Take the whole process down."
    with open("killed.txt", "a") as file:
        file.write("killed\\n")
    time.sleep(0.1)
    os._exit(7)


@tool
async def write(text: str) -> str:
    "Write for a while."
    Path("writing.txt").touch()
    await asyncio.sleep(30)
    return "written"


LOOK = [RequestedCall(tool="look", arguments='{"context_seconds": 0.05}')]
WRITE = [RequestedCall(tool="write", arguments='{"text": "x"}')]
LONG = [RequestedCall(tool="look", arguments='{"context_seconds": 20}')]
agents = [
    Agent("good", model=ScriptedModel([LOOK, LOOK, LOOK, "good"]), tools=[look]),
    Agent("bad", model=ScriptedModel([[RequestedCall(tool="kill", arguments="{}")], "bad"]), tools=[kill]),
    Agent("long", model=ScriptedModel([LONG, "long"]), tools=[look]),
    Agent("writer", model=ScriptedModel([WRITE, "w"]), tools=[write]),
]
app = SimpleNamespace(agents=agents, policy=lambda call, run: Allow())
"""

BEGIN = """
import asyncio, sys
from app import app
from geartrain import Runtime

async def main():
    async with Runtime.open("runs.db", agents=app.agents, policy=app.policy, recover="none") as runtime:
        node = runtime._host.node
        node.closing = True  # stored and not begun: what a process leaves that dies at once
        for each in sys.argv[1:]:
            name, _, count = each.partition("=")
            for number in range(int(count)):
                await runtime.start(name, "go", run_id=f"{name}-{number}")

asyncio.run(main())
"""


class Service:
    """A folder with an app and a store, and the command."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        (folder / "app.py").write_text(APP)
        self.environment = {**os.environ, "HOME": str(folder), "XDG_STATE_HOME": str(folder / "state")}

    def begins(self, *runs: str) -> None:
        subprocess.run([sys.executable, "-c", BEGIN, *runs], cwd=self.folder, env=self._env, check=True, timeout=60)

    @property
    def _env(self) -> dict[str, str]:
        paths = [str(self.folder), self.environment.get("PYTHONPATH", "")]
        return {**self.environment, "PYTHONPATH": os.pathsep.join(path for path in paths if path)}

    def start(self, *words: str) -> subprocess.Popen[str]:
        command = [sys.executable, "-m", "geartrain", "work", "--app", "app:app", "--store", "runs.db", *words]
        return subprocess.Popen(
            command, cwd=self.folder, env=self._env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )

    def works(self, *words: str) -> tuple[int, str, str]:
        process = self.start(*words)
        out, err = process.communicate(timeout=60)
        return process.returncode, out, err

    def runs(self) -> list[dict[str, Any]]:
        done = self.command("list", "--json", "--all", "--store", "runs.db")
        return list(json.loads(done.stdout))

    def command(self, *words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", "geartrain", *words],
            cwd=self.folder,
            env=self._env,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )

    def appears(self, name: str, process: subprocess.Popen[str]) -> None:
        until = time.monotonic() + 30
        while not (self.folder / name).exists():
            assert process.poll() is None, process.communicate()
            assert time.monotonic() < until
            time.sleep(0.02)


@pytest.fixture
def service(tmp_path: Path) -> Service:
    return Service(tmp_path)


def test_a_tool_that_kills_the_process_every_time_is_set_apart_and_all_others_finish(service: Service) -> None:
    """Show 2: from a shell loop, which knows nothing but the exit code."""
    service.begins("good=20", "bad=1")
    codes = []
    while (code := service.works("-q")[0]) not in (0, 3):
        codes.append(code)
        assert len(codes) < 10

    states = Counter((run["agent"], run["state"]) for run in service.runs())
    assert states == {("good", "FINISHED"): 20, ("bad", "SUSPENDED"): 1}
    # Twice with all others, twice alone.
    assert codes == [7] * 4
    assert code == 3
    assert len((service.folder / "killed.txt").read_text().split()) == 4
    shown = service.command("show", "bad-0", "--store", "runs.db").stdout
    assert "call t1.c1 of 'kill' kills the process" in shown
    assert service.command("cancel", "bad-0", "--app", "app:app", "--store", "runs.db").returncode == 4


def test_work_says_how_all_runs_stand(service: Service) -> None:
    service.begins("good=3")
    code, out, err = service.works("--json", "-q")

    assert code == 0, err
    assert json.loads(out) == {"by_state": {"FINISHED": 3}, "set_apart": [], "signal": None}
    assert service.works()[2].strip() == "3 runs: 3 FINISHED"


def test_work_names_what_is_set_apart_in_whatever_state_it_is(service: Service) -> None:
    service.begins("good=2", "long=1")

    async def mark() -> None:
        journal = await SqliteJournal.open(service.folder / "runs.db")
        await journal.mark("long-0", "damaged", now=0.0)
        await journal.aclose()

    asyncio.run(mark())
    code, out, err = service.works("--json", "-q")

    assert code == 3, err
    assert json.loads(out)["set_apart"] == ["long-0"]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_work_within_the_grace_and_no_run(service: Service, number: int) -> None:
    """CR-8: the next process says that it was a shutdown."""
    service.begins("long=2", "good=1")
    process = service.start("--stay", "-q")
    service.appears("looking.txt", process)
    time.sleep(0.5)
    process.send_signal(number)
    with Starvation() as starvation:
        began = time.monotonic()
        process.communicate(timeout=30)
        took = time.monotonic() - began

    assert process.returncode == 128 + number
    assert took < 6.0 + starvation.allowance
    states = {run["id"]: run["state"] for run in service.runs()}
    assert states == {"long-0": "EXECUTE_TOOL", "long-1": "EXECUTE_TOOL", "good-0": "FINISHED"}
    (service.folder / "looking.txt").unlink()
    process = service.start("-q")
    service.appears("looking.txt", process)  # so that it was recovered is stored
    shown = service.command("show", "long-0", "--store", "runs.db").stdout
    process.send_signal(number)
    process.communicate(timeout=30)
    assert "shutdown" in shown


def test_a_second_signal_ends_work_at_once(service: Service) -> None:
    service.begins("writer=1")
    process = service.start("--stay")
    service.appears("writing.txt", process)
    process.send_signal(signal.SIGINT)
    assert process.stderr is not None
    assert "again stops now" in process.stderr.readline()
    time.sleep(0.5)  # one that comes together with the first is no second one
    with Starvation() as starvation:
        process.send_signal(signal.SIGINT)
        began = time.monotonic()
        _, err = process.communicate(timeout=30)
        took = time.monotonic() - began

    assert took < 1.0 + starvation.allowance
    assert process.returncode == 130
    assert "stopped at once" in err
